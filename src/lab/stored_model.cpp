#include "lab/stored_model.h"

#include <algorithm>
#include <filesystem>

#include "ops/ops.h"
#include "train/checkpoint_reader.h"

namespace sinter::lab {
namespace {

CheckpointInfo checkpoint_in(const std::string& dir) {
  check(!dir.empty(), "--checkpoint is missing: the folder that sinter train --out, or sinter import, wrote");
  check(std::filesystem::is_directory(dir), "--checkpoint {}: is not a folder", dir);
  if (auto newest = latest_checkpoint(dir)) return *newest;
  check(std::filesystem::exists(std::filesystem::path(dir) / "manifest.json"),
        "--checkpoint {}: holds no checkpoint; give the folder that sinter train --out wrote", dir);
  CheckpointReader reader(dir);
  return {dir, reader.manifest().step, reader.manifest().config};
}

}  // namespace

StoredModel stored_model(const std::string& dir, const SweepOptions& flags) {
  CheckpointInfo checkpoint = checkpoint_in(dir);
  const Json& config = checkpoint.config;
  check(config.is_object() && (config.contains("size") || config.contains("d_model")),
        "{}: the manifest's config names no model; it was not written by sinter train or sinter import",
        checkpoint.folder);
  SweepOptions of_run = sweep_from_json(config, checkpoint.folder), used;
  used.size = of_run.size, used.d_model = of_run.d_model, used.d_ff = of_run.d_ff, used.layers = of_run.layers;
  used.heads = of_run.heads, used.kv_heads = of_run.kv_heads, used.vocab = of_run.vocab, used.ctx = of_run.ctx;
  used.rope_theta = of_run.rope_theta, used.norm_eps = of_run.norm_eps, used.rope_scaling = of_run.rope_scaling;
  used.tied_embeddings = of_run.tied_embeddings, used.dtype = of_run.dtype;
  used.pass = {"forward"}, used.batch = {1};
  SweepOptions all = overlaid(used, flags);
  all.device = chosen_device(flags.device);
  std::vector<MeasuredRun> runs = expand(with_defaults(all));
  check(runs.size() == 1, "one model at a time: --dtype, --attention and --ctx take one value here");
  return {std::move(checkpoint), std::move(runs[0])};
}

void load_masters(const CheckpointInfo& checkpoint, Parameters& into, Progress& progress) {
  CheckpointReader reader(checkpoint.folder);
  auto stored = std::ranges::count_if(reader.manifest().tensors, [](const auto& t) { return t.role == "master"; });
  check(size_t(stored) == into.entries().size(), "{}: has {} parameters, but the model has {}: it is of another one",
        checkpoint.folder, stored, into.entries().size());
  int64_t done = 0;
  for (const auto& e : into.entries()) {
    progress.now(fmt::format("loading {}, {} of {} tensors", checkpoint.folder, ++done, into.entries().size()));
    NoGrad off;
    Tensor values = cast(reader.tensor("master", e.name), into.options().master);
    into.load("master", e.name, to(values, into.options().device));
  }
}

}  // namespace sinter::lab
