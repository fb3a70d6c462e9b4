// The definitions, for gradient rules and whoever needs an op itself.
#pragma once
#include "ops/op.h"

namespace sinter::ops {

// pointwise.cpp
extern const OpDef add, sub, mul, div, neg, exp, log, sqrt, rsqrt, sigmoid, silu, gelu, tanh, relu, square, affine,
    where, cast, copy, sigmoid_backward, silu_backward, gelu_backward, tanh_backward, relu_backward;
// fused.cpp: what the compiler makes of several; nobody calls it
extern const OpDef fused;
// host_action.cpp: what a trace makes of host_action()
extern const OpDef host_action;
// view.cpp
extern const OpDef reshape, transpose, slice, expand;
// reduce.cpp
extern const OpDef sum;
// matmul.cpp
extern const OpDef matmul, linear, linear_input_grad, linear_weight_grad;
// norm.cpp
extern const OpDef rms_norm, rms_norm_backward, layer_norm, layer_norm_backward;
// attention.cpp
extern const OpDef attention, attention_backward, attention_weights, attention_weights_backward;
// softmax.cpp
extern const OpDef softmax, softmax_backward;
// loss.cpp
extern const OpDef cross_entropy, cross_entropy_backward, cross_entropy_in_place;
// embed.cpp
extern const OpDef embedding, embedding_backward;
// heads.cpp
extern const OpDef split_heads, split_heads_backward;
// swiglu.cpp
extern const OpDef swiglu, swiglu_backward;
// fill.cpp
extern const OpDef fill, random_normal, random_uniform, random_integers;
// comm.cpp
extern const OpDef all_reduce, reduce_scatter, all_gather, broadcast;
// optim.cpp
extern const OpDef sum_squares, prepare_step, adamw, adamw_product, sgd;

}  // namespace sinter::ops
