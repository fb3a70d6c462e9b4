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
                                     &attention,
                                     &attention_backward,
                                     &fill,
                                     &random_normal,
                                     &random_uniform,
                                     &random_integers,
                                     &ops::all_reduce,
                                     &ops::reduce_scatter,
                                     &ops::all_gather,
                                     &ops::broadcast,
                                     &sum_squares,
                                     &prepare_step,
                                     &adamw,
                                     &sgd};
  return all;
}

double bytes_moved(const OpCall& call, const Outputs& outputs) {
  double bytes = 0;
  for (int i = 0; i < call.n_in(); ++i) {
    bool gathered = call.op.gathers >> i & 1, changed = call.op.mutates >> i & 1;
    bytes += double((gathered ? outputs[0] : call.in(i)).bytes()) * (changed ? 2 : 1);
  }
  for (int j = 0; j < outputs.n; ++j) bytes += double(outputs[j].bytes());
  return bytes;
}

}  // namespace sinter
