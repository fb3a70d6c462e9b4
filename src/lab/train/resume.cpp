#include "lab/train/resume.h"

namespace sinter::lab {
namespace {

std::string manifest_of(const CheckpointInfo& from) { return from.folder + "/manifest.json"; }

}  // namespace

std::optional<CheckpointInfo> checkpoint_to_resume(TrainOptions& o) {
  if (!o.resume.empty()) {
    check(o.out.empty() || o.out == o.resume,
          "--resume {} with --out {}: a run goes on in the folder of its checkpoints; leave --out out", o.resume,
          o.out);
    o.out = o.resume;
    std::optional<CheckpointInfo> from = latest_checkpoint(o.resume);
    check(from.has_value(), "--resume {}: there is no checkpoint; begin with --out {}", o.resume, o.resume);
    return from;
  }
  if (!o.resume_if_possible) return {};
  check(!o.out.empty(), "--resume-if-possible: say where checkpoints are, with --out DIR");
  return latest_checkpoint(o.out);
}

void lay_under(const CheckpointInfo& from, int64_t ranks, TrainOptions& o) {
  const Json& config = from.config;
  check(config.is_object() && config.contains("d_model") && config.contains("global_batch"),
        "{}: the checkpoint does not say what run it is of, as those of sinter train do; it cannot be gone on from",
        manifest_of(from));
  SweepOptions base = sweep_from_json(config, manifest_of(from));
  bool divides_anew =
      given(o.sweep.batch) || o.sweep.accumulate || o.fields.global_batch || ranks != config.value("ranks", int64_t(1));
  if (divides_anew) base.batch = {}, base.accumulate = {};
  o.sweep = overlaid(base, o.sweep);
  o.fields = overlaid(train_fields_from_json(config, manifest_of(from)), o.fields);
  bool arranged = ranks == 1 || !o.shard.levels.empty() || !o.strategy.empty();
  if (arranged || !config.contains("shard")) return;
  o.shard.levels = {config.value("shard", "none")};
  o.strategy = config.value("strategy", "");
  o.shard.bucket_mb = config.value("bucket_mb", o.shard.bucket_mb);
  o.shard.reshard_after_forward = config.value("reshard_after_forward", true) ? "yes" : "no";
  o.shard.accumulate_unsharded = config.value("accumulate_unsharded", o.shard.accumulate_unsharded);
}

void refuse_other_run(const CheckpointInfo& from, const Json& now) {
  const Json& then = from.config;
  for (const char* field : {"d_model", "d_ff", "layers", "heads", "kv_heads", "vocab", "ctx", "rope_theta", "norm_eps",
                            "tied_embeddings", "rope_scaling", "seed", "global_batch"}) {
    if (!then.contains(field) || !now.contains(field) || then[field] == now[field]) continue;
    fail_with(ErrorKind::usage, "{} {}: the run of {} has {}; leave the flag out, or begin another run with --out",
              flag_named(field), now[field].dump(), from.folder, then[field].dump());
  }
  const Json none = Json::array();
  const Json &files = now.at("data").at("files"),
             &old = then.contains("data") ? then["data"].value("files", none) : none;
  for (const Json& f : files)
    for (const Json& o : old)
      check(
          f.at("file") != o.value("file", Json()) || f.at("tokens") == o.value("tokens", Json()),
          "{}: has {} tokens, but had {} when {} was written, and the order of sequences follows from that; bring the "
          "old file back, or begin another run with --out",
          f.at("file").get<std::string>(), f.at("tokens").dump(), o.value("tokens", Json()).dump(), from.folder);
}

}  // namespace sinter::lab
