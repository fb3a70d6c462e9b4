#include <map>

#include "ops/table.h"
#include "support/op_cases.h"

namespace sinter {
namespace {

using In = SampleInput;

template <class A> Sample sample(std::vector<In> inputs, const A& attrs) {
  return {std::move(inputs), Attrs::of(attrs)};
}
Sample sample(std::vector<In> inputs) { return {std::move(inputs), {}}; }
In ids(Dims dims, int64_t below) { return {dims, In::token_ids, below}; }
In statistic(Dims dims) { return {dims, In::positive, 0, true}; }
In mean_of(Dims dims) { return {dims, In::normal, 0, true}; }
In table(Dims dims) { return {dims, In::angles}; }

constexpr MatmulAttrs linear_attrs{false, true, true, false}, input_grad_attrs{false, false, true, false},
    weight_grad_attrs{true, false, true, true};

// Rows beyond 4096, rows longer than a block of threads, odd sizes, head dimension 80, GPT-2's vocabulary.
std::map<const OpDef*, std::vector<Sample>> hand_picked() {
  NormAttrs norm;
  SoftmaxAttrs plain, causal{0.25, true, 0}, offset{1, true, 65};
  return {
      {&ops::add,
       {sample({{{67, 1031}}, {{1031}}}), sample({{{5, 1, 7, 33}}, {{3, 1, 33}}}), sample({{{6, 50257}}, {{6, 1}}})}},
      {&ops::mul, {sample({{{4100, 33}}, {{4100, 1}}})}},
      {&ops::div, {sample({{{129, 257}}, {{129, 257}, In::positive}})}},
      {&ops::where, {sample({{{130, 257}, In::boolean}, {{130, 257}}, {{1, 257}}})}},
      {&ops::sum,
       {sample({{{4097, 129}}}, ReduceAttrs{0b01, false}), sample({{{4097, 129}}}, ReduceAttrs{0b10, false}),
        sample({{{300, 1031}}}, ReduceAttrs{0b11, false}), sample({{{3, 65, 7, 33}}}, ReduceAttrs{0b0101, true}),
        sample({{{2, 90001}}}, ReduceAttrs{0b10, false}), sample({{{70001, 2}}}, ReduceAttrs{0b01, false})}},
      {&ops::matmul,
       {sample({{{4, 129, 80}}, {{4, 80, 257}}}, MatmulAttrs{}),
        sample({{{2, 3, 65, 80}}, {{2, 3, 33, 80}}}, MatmulAttrs{false, true}),
        sample({{{3, 200, 63}}, {{3, 200, 71}}}, MatmulAttrs{true, false}),
        sample({{{250, 120}}, {{130, 250}}}, MatmulAttrs{true, true})}},
      {&ops::linear,
       {sample({{{3, 43, 96}}, {{255, 96}}}, linear_attrs), sample({{{9, 16}}, {{50257, 16}}}, linear_attrs)}},
      {&ops::linear_input_grad, {sample({{{3, 43, 255}}, {{255, 96}}}, input_grad_attrs)}},
      {&ops::linear_weight_grad, {sample({{{3, 343, 65}}, {{3, 343, 96}}}, weight_grad_attrs)}},
      {&ops::rms_norm,
       {sample({{{4099, 80}}, {{80}}}, norm), sample({{{37, 2560}}, {{2560}}}, norm),
        sample({{{3, 10241}}, {{10241}}}, norm)}},
      {&ops::rms_norm_backward,
       {sample({{{4099, 80}}, {{80}}, statistic({4099}), {{4099, 80}}}, norm),
        sample({{{37, 2560}}, {{2560}}, statistic({37}), {{37, 2560}}}, norm)}},
      {&ops::layer_norm,
       {sample({{{4099, 80}}, {{80}}, {{80}}}, norm), sample({{{37, 1601}}, {{1601}}, {{1601}}}, norm)}},
      {&ops::layer_norm_backward,
       {sample({{{4099, 80}}, {{80}}, mean_of({4099}), statistic({4099}), {{4099, 80}}}, norm),
        sample({{{37, 1601}}, {{1601}}, mean_of({37}), statistic({37}), {{37, 1601}}}, norm)}},
      {&ops::attention,
       {sample({{{2, 4, 133, 80}}, {{2, 4, 133, 80}}, {{2, 4, 133, 80}}}, AttentionAttrs{0.11, true, 0}),
        sample({{{1, 6, 65, 64}}, {{1, 2, 700, 64}}, {{1, 2, 700, 64}}}, AttentionAttrs{0.125, true, 635})}},
      {&ops::softmax,
       {sample({{{2, 3, 129, 129}}}, causal), sample({{{65, 5001}}}, plain), sample({{{1, 2, 65, 130}}}, offset)}},
      {&ops::softmax_backward,
       {sample({{{2, 3, 129, 129}}, {{2, 3, 129, 129}}}, causal), sample({{{65, 5001}}, {{65, 5001}}}, plain)}},
      {&ops::cross_entropy, {sample({{{7, 50257}}, ids({7}, 50257)}), sample({{{4099, 33}}, ids({4099}, 33)})}},
      {&ops::cross_entropy_backward, {sample({{{7, 50257}}, ids({7}, 50257), statistic({7}), mean_of({})})}},
      {&ops::embedding, {sample({{{1000, 80}}, ids({7, 700}, 1000)})}},
      {&ops::embedding_backward,
       {sample({ids({7, 700}, 100), {{7, 700, 80}}}, int64_t(100)),
        sample({ids({9001}, 77), {{9001, 20}}}, int64_t(77)),  // several stretches of tokens (workspace.h)
        sample({ids({3, 2500}, 6000), {{3, 2500, 12}}}, int64_t(6000))}},
      {&ops::split_heads,
       {sample({{{2, 133, 12 * 80}}, table({140, 40}), table({140, 40})}, HeadsAttrs{4, 4, true}),
        sample({{{3, 65, 10 * 64}}, table({65, 32}), table({65, 32})}, HeadsAttrs{6, 2, true})}},
      {&ops::split_heads_backward,
       {sample({{{2, 4, 133, 80}}, {{2, 4, 133, 80}}, {{2, 4, 133, 80}}, table({140, 40}), table({140, 40})},
               HeadsAttrs{4, 4, true})}},
      {&ops::swiglu, {sample({{{77, 2 * 1333}}}), sample({{{4099, 34}}})}},
      {&ops::swiglu_backward, {sample({{{77, 2 * 1333}}, {{77, 1333}}})}},
      {&ops::sum_squares, {sample({{{300007}}})}},
  };
}

}  // namespace

std::vector<OpCase> larger_cases() {
  auto picked = hand_picked();
  std::vector<OpCase> cases;
  for (const OpDef* op : all_ops()) {
    if (!op->kernel || op->samples.empty()) continue;
    std::vector<Sample> samples = picked.count(op) ? picked[op] : std::vector<Sample>{};
    if (samples.empty()) {  // the rest are pointwise: the first sample, with more elements
      Sample s = op->samples[0];
      for (In& in : s.inputs) in.dims = {143, 1031};
      samples.push_back(s);
    }
    for (size_t i = 0; i < samples.size(); ++i)
      cases.push_back({op, samples[i], std::string(op->name) + "_large_" + std::to_string(i)});
  }
  return cases;
}

}  // namespace sinter
