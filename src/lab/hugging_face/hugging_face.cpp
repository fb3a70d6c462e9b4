#include "lab/hugging_face/hugging_face.h"

#include <filesystem>

#include "lab/config_file.h"
#include "lab/stored_model.h"
#include "system/units.h"
#include "train/checkpoint.h"
#include "train/hugging_face.h"

namespace sinter::lab {
namespace {

namespace fs = std::filesystem;

// Masters alone, and for an import what the checkpoint's writer stages of them.
void check_memory(const ModelConfig& c, int copies, const MakeModel& make_model) {
  ModelConfig shape = c;
  shape.ctx = 1;
  Parameters p({DeviceType::meta, DType::f32, {}, 0});
  make_model(shape, p);
  double need = 0;
  for (const auto& e : p.entries()) need += 4.0 * copies * double(e.dims.numel());
  int64_t free = allocator_of(DeviceType::cpu).free_bytes();
  if (need > double(free))
    fail_with(ErrorKind::memory, "the model's fp32 parameters need {} of the host's memory, {} are free",
              bytes_text(need), bytes_text(double(free)));
}

void check_new_folder(const char* flag, const std::string& folder) {
  std::error_code unknown;  // making it will say
  check(!fs::exists(folder, unknown) || (fs::is_directory(folder, unknown) && fs::is_empty(folder, unknown)),
        "{} {}: exists and is not an empty folder; name a new one", flag, folder);
}

}  // namespace

int export_model(const std::string& checkpoint, const std::string& folder, const std::string& dtype,
                 const MakeModel& make_model) {
  check(!folder.empty(), "--hf is missing: the folder to write");
  Precision stored_as = precision_named(dtype);
  check(stored_as.master == DType::f32 && stored_as.math == MathMode::full,
        "--dtype {}: weights are stored as fp32, bf16 or fp16", dtype);
  check_new_folder("--hf", folder);
  SweepOptions on_the_cpu;
  on_the_cpu.device = "cpu", on_the_cpu.dtype = {"fp32"};
  StoredModel stored = stored_model(checkpoint, on_the_cpu);
  check_memory(stored.run.model, 1, make_model);
  Progress progress;
  Parameters parameters({DeviceType::cpu, DType::f32, {}, 0});
  std::unique_ptr<Model> model = make_model(stored.run.model, parameters);
  parameters.allocate();
  load_masters(stored.checkpoint, parameters, progress);
  progress.now("writing " + folder);
  export_hugging_face(parameters, stored.run.model, stored_as.compute.value_or(DType::f32), folder);
  progress.done(fmt::format("{}: {} parameters as {}, of step {} in {}", folder, grouped(parameters.count()), dtype,
                            stored.checkpoint.step, checkpoint));
  return 0;
}

int import_model(const std::string& folder, const std::string& out, const MakeModel& make_model) {
  check(!folder.empty(), "--hf is missing: the folder with config.json and model.safetensors");
  check(!out.empty(), "--out is missing: the folder for the checkpoint");
  check_new_folder("--out", out);
  HuggingFaceFolder source(folder);
  ModelConfig config = source.config();
  check_memory(config, 2, make_model);
  Progress progress;
  progress.now("reading " + folder);
  Trainer trainer(config, {}, make_model);
  source.load(trainer.parameters());
  SweepOptions run = sweep_of(config);
  run.ctx = {config.ctx};
  progress.now("writing " + out);
  Checkpoints checkpoints(trainer, {.dir = out});
  checkpoints.save(0, to_json(run));
  for (const SaveResult& saved : checkpoints.wait()) check(saved.error.empty(), "--out {}: {}", out, saved.error);
  progress.done(fmt::format("{}: {} parameters, from {}", out, grouped(trainer.parameters().count()), folder));
  return 0;
}

}  // namespace sinter::lab
