#include "lab/precision/precision.h"

#include "lab/driver.h"
#include "ops/ops.h"

namespace sinter::lab {

// 1000 × 0.01, one addition at a time.
Json accumulation_rows(DeviceType device) {
  NoGrad off;
  struct Case {
    const char* name;
    DType sum, term;
    bool explicit_cast;
  };
  Json rows = Json::array();
  for (const Case& c : {Case{"fp32 sum, fp32 terms", DType::f32, DType::f32, false},
                        Case{"fp16 sum, fp16 terms", DType::f16, DType::f16, false},
                        Case{"fp32 sum, fp16 terms", DType::f32, DType::f16, false},
                        Case{"fp32 sum, fp16 terms cast to fp32", DType::f32, DType::f16, true},
                        Case{"bf16 sum, bf16 terms", DType::bf16, DType::bf16, false}}) {
    Tensor sum = zeros({1}, c.sum, device), term = full({1}, 0.01, c.term, device);
    for (int i = 0; i < 1000; ++i) sum = add(sum, c.explicit_cast ? cast(term, DType::f32) : term);
    rows.push_back({{"experiment", "accumulation"}, {"case", c.name}, {"sum", item(sum)}, {"error", item(sum) - 10}});
  }
  return rows;
}

// fc1 → ReLU → LayerNorm → fc2 → cross-entropy: every type is read from the tensor itself.
Json autocast_rows(DeviceType device, DType lower, uint64_t seed) {
  constexpr int64_t batch = 8, in = 16, hidden = 32, classes = 10;
  Parameters p({device, DType::f32, lower, seed});
  Tensor fc1 = p.add({"fc1.weight", {hidden, in}, Init::linear(in, hidden)});
  Tensor gain = p.add({"ln.weight", {hidden}, {Init::ones, 0}}), shift = p.add({"ln.bias", {hidden}, {Init::zeros, 0}});
  Tensor fc2 = p.add({"fc2.weight", {classes, hidden}, Init::linear(hidden, classes)});
  p.allocate();
  Tensor x = empty({batch, in}, DType::f32, device), y = empty({batch}, DType::i64, device);
  fill_normal(x, seed, 1, 1);
  fill_integers(y, seed, 2, 0, classes);

  Json rows = Json::array();
  auto say = [&](const char* what, const Tensor& t) {
    rows.push_back(
        {{"experiment", "autocast"}, {"autocast", name_of(lower)}, {"tensor", what}, {"dtype", name_of(t.dtype())}});
  };
  Tensor loss;
  {
    Autocast on(lower);
    Tensor h = linear(x, fc1);
    Tensor normed = layer_norm(relu(h), gain, shift);
    Tensor logits = linear(normed, fc2);
    loss = cross_entropy(logits, y);
    say("parameters", fc1);
    say("fc1 output", h);
    say("LayerNorm output", normed);
    say("logits", logits);
    say("loss", loss);
  }
  backward(loss);
  say("gradients", grad_of(fc1));
  return rows;
}

int precision_experiment(DeviceType device, uint64_t seed, const OutputOptions& output) {
  Experiment e{"precision", {{"device", name_of(device)}, {"seed", seed}}, device};
  auto add = [&](const char* text, const std::function<Json()>& rows) {
    e.groups.emplace_back().cases.push_back(simple_case(text, [rows](Progress&) { return rows(); }));
  };
  add("accumulation", [=] { return accumulation_rows(device); });
  std::vector<DType> types = {DType::f16, DType::bf16};
  for (DType t : types) add("autocast", [=] { return autocast_rows(device, t, seed); });
  for (DType t : types) add("normalisation", [=] { return norm_rows(device, t, seed); });
  return run(e, output);
}

}  // namespace sinter::lab
