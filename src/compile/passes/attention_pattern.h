// Attention as a model spells it out, found among the calls of a graph: p = softmax(scale · q·kᵀ), o = p·v, and its
// backward pass dv = pᵀ·do, dp = do·vᵀ, ds = softmax_backward(p, dp), dq = ds·k, dk = dsᵀ·q.
#pragma once
#include "compile/rewrite.h"

namespace sinter::compile {

// Nobody else reads the scores, the probabilities or their gradients, and q, k, v, o and do hold what they held for as
// long as calls of the pattern need them: those can be replaced by others that give the same o, dq, dk and dv.
struct SpelledAttention {
  int scores = -1, softmax = -1, values = -1;                     // calls
  int dv = -1, dp = -1, softmax_backward = -1, dq = -1, dk = -1;  // -1: there is none
  std::vector<int> between;  // copies, casts and scalings of what passes between them
  bool plain = true;         // … of which there are none but copies of scores and dp to another layout

  SoftmaxAttrs mask;  // its scale includes all scalings
  int64_t batch = 1, heads = 1, kv_heads = 1, queries = 0, keys = 0, head_dim = 0;
  Placed q, o, grad_o, grad_q;  // (batch, heads, queries, head_dim)
  Placed k, v, grad_k, grad_v;  // (batch, kv_heads, keys, head_dim)

  bool has_backward() const { return softmax_backward >= 0; }
  std::vector<int> calls() const;  // all of them
};
std::vector<SpelledAttention> find_attention(const Graph& graph);
// Whether the device's attention kernels take its types and layouts.
bool has_kernels(const Graph& graph, const SpelledAttention& a);

}  // namespace sinter::compile
