#include "lab/generate/generate.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/clock.h"
#include "lab/generate/safe_text.h"
#include "lab/machine.h"
#include "lab/record.h"
#include "lab/stored_model.h"
#include "ops/ops.h"
#include "system/safetensors.h"
#include "system/signals.h"
#include "system/streams.h"
#include "system/units.h"
#include "train/generator.h"

namespace sinter::lab {
namespace {

constexpr int64_t byte_vocabulary = 256;  // tokens are bytes: what sinter train --text makes
bool is_text(const ModelConfig& c) { return c.vocab == byte_vocabulary; }

std::string file_text(const std::string& path) {
  std::error_code unknown;
  check(!std::filesystem::is_directory(path, unknown), "--prompt-file {}: is a folder, not a file", path);
  std::ifstream in(path, std::ios::binary);
  check(bool(in), "--prompt-file {}: cannot be opened ({}); check the path", path, std::strerror(errno));
  std::string text(size_t(1) << 24, '\0');  // more than any model has positions
  in.read(text.data(), std::streamsize(text.size()));
  text.resize(size_t(in.gcount()));
  return text;
}

struct Prompt {
  const char* flag;
  std::vector<int64_t> ids;
};
Prompt prompt_of(const GenerateOptions& o, const ModelConfig& c) {
  int given = int(o.prompt.has_value()) + int(o.prompt_file.has_value()) + int(!o.prompt_ids.empty());
  check(given == 1, "{}: give --prompt TEXT, --prompt-file FILE or --prompt-ids N,N,…, one of them",
        given == 0 ? "what is to be continued is missing" : "prompts are given in more than one way");
  if (!o.prompt_ids.empty()) return {"--prompt-ids", o.prompt_ids};
  const char* flag = o.prompt ? "--prompt" : "--prompt-file";
  check(is_text(c),
        "{}: this model has a vocabulary of {}, not the {} bytes, and sinter has no tokenizer; give --prompt-ids", flag,
        c.vocab, byte_vocabulary);
  std::string text = o.prompt ? *o.prompt : file_text(*o.prompt_file);
  std::vector<int64_t> ids;
  for (char byte : text) ids.push_back(uint8_t(byte));
  return {flag, ids};
}

void check_options(const GenerateOptions& o, const ModelConfig& c) {
  validate(o.sampling);
  check(o.samples >= 1 && o.samples <= 1000000, "--samples must be 1 to 1000000, not {}", o.samples);
  check(o.stop.empty() || is_text(c), "--stop: this model has a vocabulary of {}, not the {} bytes; give --stop-ids",
        c.vocab, byte_vocabulary);
  for (int64_t id : o.stop_ids)
    check(id >= 0 && id < c.vocab, "--stop-ids {}: the model's vocabulary is 0 to {}", id, c.vocab - 1);
}

// Prints a continuation as it comes: text where tokens are bytes, otherwise ids with commas between them.
class Printer {
 public:
  Printer(bool text, const std::string& stop, bool silent) : text_(text), silent_(silent), stop_(stop) {}
  void prompt(const std::vector<int64_t>& ids) {
    for (int64_t id : ids) print(text_ ? safe_.add(std::string(1, char(id))) : number(id));
  }
  void add(int64_t id) {
    ids.push_back(id);
    if (!text_) return print(number(id));
    keep(stop_.add(std::string(1, char(id))));
  }
  void end() {
    if (text_) keep(stop_.end());
    print(safe_.end() + "\n");
  }
  bool stopped() const { return stop_.found(); }
  std::vector<int64_t> ids;
  std::string continuation;  // bytes

 private:
  std::string number(int64_t id) { return (std::exchange(first_, false) ? "" : ",") + std::to_string(id); }
  void keep(const std::string& bytes) {
    continuation += bytes;
    print(safe_.add(bytes));
  }
  void print(const std::string& s) const {
    if (!silent_ && !s.empty()) write_stdout(s);
  }
  bool text_, silent_, first_ = true;
  StopText stop_;
  SafeText safe_;
};

struct Loaded {
  Parameters parameters;
  std::unique_ptr<Model> model;
  Generator generator;
  Loaded(const MeasuredRun& run, int64_t capacity, DeviceType where, const MakeModel& make_model)
      : parameters({where, run.precision.master, run.precision.compute, 0}),
        model(make_model(run.model, parameters)),
        generator(*model, run.model, run.precision, capacity, where) {
    parameters.allocate();
  }
};

// The peak, of the same calls on the meta device: parameters, which are loaded one by one, cache, and the largest pass.
// Refuses what does not fit.
int64_t predicted_peak(const MeasuredRun& run, const std::vector<int64_t>& prompt, int64_t capacity,
                       const MakeModel& make_model) {
  int64_t need = 0;
  {
    MetaTarget target(target_of(run.device));
    CachingAllocator& allocator = allocator_of(DeviceType::meta);
    allocator.release_cached();
    int64_t before = allocator.stats().allocated;
    allocator.reset_peak();
    Loaded rehearsal(run, capacity, DeviceType::meta, make_model);
    for (const auto& e : rehearsal.parameters.entries()) empty(e.dims, run.precision.master, DeviceType::meta);
    rehearsal.generator.read(prompt);
    need = allocator.stats().peak_allocated - before;
  }
  allocator_of(DeviceType::meta).release_cached();
  int64_t free = allocator_of(run.device).free_bytes();
  if (need > free)
    fail_with(ErrorKind::memory, "{} with {} positions needs {}, {} are free; use fewer --tokens{}", run.model.name,
              capacity, bytes_text(double(need)), bytes_text(double(free)),
              run.precision.compute ? "" : ", or --dtype bf16");
  return need;
}

// The prompt's logits, position by position.
void write_logits(const std::string& path, Loaded& m, const MeasuredRun& run, const std::vector<int64_t>& ids) {
  NoGrad off;
  Autocast types(run.precision.compute);
  Scoped math(context().math, run.precision.math);
  Tensor tokens = from_vector(ids, {int64_t(ids.size())}, DeviceType::cpu);
  Tensor logits = m.model->logits(to(reshape(tokens, {1, int64_t(ids.size())}), run.device));
  Tensor values =
      contiguous(to(cast(reshape(logits, {int64_t(ids.size()), run.model.vocab}), DType::f32), DeviceType::cpu));
  SafetensorsWriter writer(path,
                           {{"logits", "F32", {values.size(0), values.size(1)}}, {"tokens", "I64", {tokens.size(0)}}});
  for (const StoredTensor& t : writer.tensors()) {
    const Tensor& from = t.name == "logits" ? values : tokens;
    writer.write({from.data_as<char>(), size_t(from.bytes())});
  }
  writer.finish();
}

double ms_since(int64_t begin) { return double(steady_ns() - begin) * 1e-6; }

}  // namespace

int generate(GenerateOptions o, const OutputOptions& output, const MakeModel& make_model) {
  check_output(output, {{"--logits", o.logits}});
  set_up_process(o.sweep);
  StoredModel stored = stored_model(o.checkpoint, o.sweep);
  const MeasuredRun& run = stored.run;
  check_options(o, run.model);
  Prompt prompt = prompt_of(o, run.model);
  check_prompt(prompt.ids, o.tokens, run.model, prompt.flag);
  int64_t capacity = int64_t(prompt.ids.size()) + o.tokens;
  int64_t predicted = predicted_peak(run, prompt.ids, capacity, make_model);
  catch_interrupts();

  bool silent = output.json == "-";
  Progress progress(silent);
  CachingAllocator& allocator = allocator_of(run.device);
  allocator.reset_peak();
  Loaded m(run, capacity, run.device, make_model);
  load_masters(stored.checkpoint, m.parameters, progress);
  Json record = new_record("generate", machine_block(run.device),
                           {{"checkpoint", stored.checkpoint.folder},
                            {"step", stored.checkpoint.step},
                            {"model", config_of(run)},
                            {"prompt_ids", prompt.ids},
                            {"tokens", o.tokens},
                            {"samples", o.samples},
                            {"temperature", o.sampling.temperature},
                            {"top_k", o.sampling.top_k},
                            {"top_p", o.sampling.top_p},
                            {"seed", o.sampling.seed},
                            {"stop", safe_text(o.stop)},
                            {"stop_ids", o.stop_ids}});
  progress.now("reading the prompt");
  int64_t begin = steady_ns();
  m.generator.read(prompt.ids);
  double reading_ms = ms_since(begin);
  for (int64_t s = 0; s < o.samples && !interrupted(); ++s) {
    Printer printer(is_text(run.model), o.stop, silent);
    progress.now("");
    printer.prompt(prompt.ids);
    std::string ended = "tokens";
    double first_ms = 0;
    begin = steady_ns();
    m.generator.continue_with(o.tokens, o.sampling, uint64_t(s), [&](int64_t token) {
      if (printer.ids.empty()) first_ms = ms_since(begin);
      printer.add(token);
      bool stops = printer.stopped() || std::find(o.stop_ids.begin(), o.stop_ids.end(), token) != o.stop_ids.end();
      ended = interrupted() ? "interrupted" : stops ? "stop" : ended;
      return ended == "tokens";
    });
    double later_ms = ms_since(begin) - first_ms;
    printer.end();
    int64_t later = int64_t(printer.ids.size()) - 1;
    Json row = {{"sample", s}, {"ended_by", ended}, {"ids", printer.ids}, {"first_token_ms", reading_ms + first_ms}};
    if (later > 0) row["tokens_per_s"] = double(later) / later_ms * 1e3;
    if (is_text(run.model)) row["text"] = safe_text(printer.continuation);
    record["results"].push_back(row);
    progress.done(fmt::format("{} tokens after a prompt of {}: the first after {} ms{}", printer.ids.size(),
                              prompt.ids.size(), significant(reading_ms + first_ms, 3),
                              later > 0 ? fmt::format(", then {} tokens/s", significant(row["tokens_per_s"], 3)) : ""));
  }
  record["config"]["predicted_peak_bytes"] = predicted;
  record["config"]["peak_bytes"] = allocator.stats().peak_allocated;
  if (!o.logits.empty()) write_logits(o.logits, m, run, prompt.ids);
  if (output.json == "-") write_stdout(record.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  else write_record(output, record);
  return interrupted() ? interrupted_exit_code : 0;
}

View generate_view(const Json& record) {
  const Json& config = record.at("config");
  View view;
  view.preamble = machine_lines(record.at("machine"));
  view.preamble.push_back(fmt::format("{}: {} tokens of prompt", config.value("checkpoint", "?"),
                                      config.value("prompt_ids", Json::array()).size()));
  Table t;
  t.title = "Continuations";
  t.columns = {{"sample"},          {"tokens"},   {"ended by", true},
               {"first token, ms"}, {"tokens/s"}, {"text", true, 0, Column::wrap}};
  auto in_one_line = [](std::string text) {
    for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) text.replace(at, 1, "⏎");
    return text;
  };
  for (const Json& r : record.at("results"))
    t.rows.push_back({std::to_string(r.value("sample", 0)), std::to_string(r.at("ids").size()),
                      r.value("ended_by", "?"), significant(r.value("first_token_ms", 0.0), 3),
                      r.contains("tokens_per_s") ? significant(r["tokens_per_s"], 3) : "–",
                      r.contains("text") ? in_one_line(r["text"]) : "ids only"});
  view.tables = {t};
  return view;
}

}  // namespace sinter::lab
