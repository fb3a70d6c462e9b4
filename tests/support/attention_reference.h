// Attention of random shapes, spelled out and by the op, for comparison on any device.
#pragma once
#include "support/values.h"

namespace sinter {

struct AttentionShape {
  int64_t B, H, Hkv, Nq, Nk, D;
  AttentionAttrs attrs;
  std::string text() const;
  AttentionShape tiled(int32_t tile) const;  // the same by the CPU's readable reference
};
AttentionShape random_attention(Rng& rng);

struct AttentionInputs {
  Tensor q, k, v, grad;
};
AttentionInputs random_inputs(const AttentionShape& s, Rng& rng, DType type, double size = 1);  // on the CPU
AttentionInputs cast_to(const AttentionInputs& x, DType type);
AttentionInputs on_device(const AttentionInputs& x, DeviceType device);
// The same values where q, k, v and the gradient lie side by side, rows of one after rows of another, with NaN between
// and around them. shift: elements by which all of it is moved from an aligned address.
AttentionInputs among_nans(const AttentionInputs& x, int64_t shift = 0);

struct AttentionResults {
  Values o, lse, dq, dk, dv;
};
AttentionResults spelled_out(const AttentionShape& s, const AttentionInputs& x);
AttentionResults by_the_op(const AttentionShape& s, const AttentionInputs& x);

// Each of o, dq, dk, dv within `bound` of the norm, L within 1e-5. Where rows see one key each,
// gradients are differences of equal numbers, exactly 0, of which no error can be a part: `absolute`,
// if larger, bounds the norm then.
void expect_close(const AttentionResults& a, const AttentionResults& e, double bound, const std::string& what,
                  double absolute = 0);
double error(const Values& a, const Values& e);  // of the norm, or the norm itself where e is 0
// The largest error is at most twice that of `naive`, plus 1e-5. Of a handful of numbers (less than 1000) the largest
// error is luck, for naive too: those may be off by `luck` of their root mean square besides.
void expect_fair(const AttentionResults& a, const AttentionResults& naive, const AttentionResults& e,
                 const std::string& what, double luck = 0);

}  // namespace sinter
