#include "ops/table.h"

#include <cstring>

namespace sinter {

std::span<const OpDef* const> all_ops() {
  using namespace ops;
  static const OpDef* const all[] = {&add,
                                     &sub,
                                     &mul,
                                     &div,
                                     &neg,
                                     &ops::exp,
                                     &ops::log,
                                     &ops::sqrt,
                                     &rsqrt,
                                     &sigmoid,
                                     &silu,
                                     &gelu,
                                     &ops::tanh,
                                     &relu,
                                     &square,
                                     &affine,
                                     &where,
                                     &cast,
                                     &copy,
                                     &sigmoid_backward,
                                     &silu_backward,
                                     &gelu_backward,
                                     &tanh_backward,
                                     &relu_backward,
                                     &reshape,
                                     &transpose,
                                     &slice,
                                     &expand,
                                     &sum,
                                     &matmul,
                                     &linear,
                                     &linear_input_grad,
                                     &linear_weight_grad,
                                     &rms_norm,
                                     &rms_norm_backward,
                                     &layer_norm,
                                     &layer_norm_backward,
                                     &softmax,
                                     &softmax_backward,
                                     &cross_entropy,
                                     &cross_entropy_backward,
                                     &embedding,
                                     &embedding_backward,
                                     &split_heads,
                                     &split_heads_backward,
                                     &swiglu,
                                     &swiglu_backward,
                                     &fill,
                                     &random_normal,
                                     &random_uniform,
                                     &random_integers,
                                     &sum_squares,
                                     &prepare_step,
                                     &adamw,
                                     &sgd};
  return all;
}

}  // namespace sinter
