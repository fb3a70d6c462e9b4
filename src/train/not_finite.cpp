#include "train/not_finite.h"

#include <cmath>

#include "core/range.h"
#include "ops/ops.h"
#include "ops/table.h"

namespace sinter {
namespace {

bool is_finite(const Tensor& x) {
  NoGrad off;
  Autocast none(std::nullopt);
  Scoped<Interceptor*> unheard(context().interceptor, nullptr);
  return std::isfinite(item(sum(dispatch(ops::sum_squares, {}, reshape(contiguous(x), {-1}))[0])));
}

class Watch : public Interceptor {
 public:
  void called(const OpCall& used, TensorPtrs, const Outputs& outputs) override {
    if (!first.empty()) return;
    for (int i = 0; i < outputs.n; ++i)
      if (const Tensor& x = outputs[i]; x.defined() && is_float(x.dtype()) && x.numel() > 0 && !is_finite(x)) {
        first = fmt::format("the output of {} in {}", used.op.name, Range::path());
        return;
      }
  }

  std::string first;
};

}  // namespace

bool parameters_are_finite(const Parameters& parameters) { return is_finite(parameters.role("master").flat()); }

std::string first_not_finite(const Parameters& parameters) {
  const Parameters::Role& master = parameters.role("master");
  if (is_finite(master.flat())) return "";
  for (const Parameters::Entry& e : parameters.entries())
    if (Tensor value = master.view(e); value.defined() && !is_finite(value)) return "the parameter " + e.name;
  for (const Parameters::Stretch& s : parameters.stretches())
    if (s.own_end > s.own_begin && !is_finite(master.range(s.own_begin, s.own_end)))
      return "a parameter of " + (s.unit < 0 ? "those that are frozen" : parameters.units()[size_t(s.unit)].name);
  return "a parameter";
}

std::string first_not_finite(Trainer& trainer, std::span<const Batch> micro_batches) {
  std::string found = first_not_finite(trainer.parameters());
  for (size_t i = 0; i < micro_batches.size(); ++i) {  // also if it is known: other ranks may have to look
    Watch watch;
    {
      Listening all(watch);
      trainer.run_eagerly(Pass::forward_backward, micro_batches[i]);
    }
    if (found.empty() && !watch.first.empty())
      found = watch.first + (micro_batches.size() > 1 ? fmt::format(", micro-batch {}", i + 1) : "");
  }
  return found;
}

}  // namespace sinter
