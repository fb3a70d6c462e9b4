// Attribute structs of the ops, shared by shape rules and kernels.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "core/kernel_call.h"

namespace sinter {

// Tables read better as tables.
// clang-format off

// Members of the pointwise family. The kernel computes in fp32 (fp64 when any operand is fp64).
enum class PointwiseFn : int {
  // two inputs
  add, sub, mul, div,
  // one input
  copy, neg, exp, log, sqrt, rsqrt, sigmoid, silu, gelu /* exact, by erf */, tanh, relu, square,
  affine,  // alpha * x + beta
  // gradients: inputs (x, dy), except sigmoid, tanh: (y, dy)
  sigmoid_backward, silu_backward, gelu_backward, tanh_backward, relu_backward,
  // three inputs: (mask, a, b) -> mask ? a : b
  where,
};

struct AffineAttrs { double alpha = 1, beta = 0; };
struct CastAttrs { DType to = DType::f32; };

// Two matrices in the last two dimensions; leading dimensions are batches.
//   out[b] = op(a[b]) · op(b[b]),  op(x) = xᵀ when the flag is set.
// fold_a / fold_b: the operand's leading dimensions are folded into its rows first, so that it counts as one matrix
// (an activation (B, T, d) in a linear layer, or both operands of a weight gradient).
struct MatmulAttrs {
  bool transpose_a = false, transpose_b = false;
  bool fold_a = false, fold_b = false;
};

struct ReduceAttrs { uint32_t dims = 0; bool keepdim = false; };  // dims: bit mask of reduced dimensions
struct NormAttrs { double eps = 1e-5; bool low_precision_statistics = false; };  // 16-bit sums, only to show why not
struct SoftmaxAttrs { double scale = 1; bool causal = false; int64_t causal_offset = 0; };
// Which kernel computes attention. best: the fastest that the device has for the call; tiled: the CPU's readable
// reference, tile by tile; portable: CUDA's for any GPU since sm_80, where best may take one made for the GPU at hand.
enum class AttentionKernel : uint8_t { best, tiled, portable };
struct AttentionAttrs {
  double scale = 1;
  bool causal = false;
  int64_t causal_offset = 0;  // query i sees keys j <= i + offset
  AttentionKernel kernel = AttentionKernel::best;
  bool deterministic = false;  // backward gives the same bits every time, where it would otherwise not
  int32_t tile = 0;            // rows and columns of a tile, for tiled and portable; 0: the kernel's choice
};
// strip: rows for which probabilities are written no further than the last of them sees, in
// multiples of 64; 0: to the end.
struct AttentionWeightsAttrs { double scale = 1; bool causal = false; int64_t causal_offset = 0; int64_t strip = 0; };
struct HeadsAttrs { int64_t heads = 1, kv_heads = 1; bool rotate = true; };
struct ViewAttrs { int32_t rank = 0; int64_t dims[max_rank] = {}; };
struct TransposeAttrs { int32_t dim0 = 0, dim1 = 0; };
struct SliceAttrs { int64_t dim = 0, start = 0, length = 0; };
struct FillAttrs { double value = 0; };
// low, high: the cut of the normal in standard deviations, or the range of the integers.
struct RandomAttrs { uint64_t seed = 0, stream = 0; double low = 0, high = 1, scale = 1; };
struct AdamWAttrs { double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01; };
// share: of the GPU's multiprocessors, where others work beside it.
struct AdamWProductAttrs { AdamWAttrs rule; double share = 1; };
struct SgdAttrs { double momentum = 0, weight_decay = 0; };
struct PrepareStepAttrs {
  double max_norm = 0;
  double growth = 2, backoff = 0.5;
  int64_t growth_interval = 2000;
  bool dynamic_scale = false;
};

// Elements of a flat buffer whose squares are summed by themselves (sum_squares). Parameters that ranks share are cut
// at multiples of it, so that the norm of a gradient has the same bits on every number of ranks.
constexpr int64_t squares_block = 1024;

// The optimizer's numbers live on the device (fp64[step_state_size]), so that no step waits for the host and a replayed
// step reads fresh values. prepare_step writes them, adamw and sgd read them.
enum StepState : int {
  state_step,          // steps taken (skipped ones do not count)
  state_lr,            // learning rate of this step, written by the host
  state_loss_scale,    // fp16: the loss was multiplied by this
  state_good_steps,    // fp16: finite steps since the scale last changed
  state_skip,          // 1: this step's gradients were not finite, nothing may change
  state_grad_factor,   // gradients are multiplied by this: clipping and 1 / loss scale in one
  state_grad_norm,     // global norm of the unscaled gradients, before clipping
  state_skipped,       // steps skipped so far
  step_state_size
};

// clang-format on

}  // namespace sinter
