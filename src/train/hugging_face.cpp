#include "train/hugging_face.h"

#include <algorithm>
#include <filesystem>
#include <fmt/ranges.h>

#include "nn/transformer.h"
#include "ops/ops.h"
#include "system/files.h"
#include "system/safetensors.h"
#include "train/hugging_face_config.h"

namespace sinter {
namespace {

namespace fs = std::filesystem;

constexpr const char *single_file = "model.safetensors", *index_file = "model.safetensors.index.json",
                     *config_file = "config.json", *head_name = "lm_head.weight";

bool is_rotated(const std::string& entry) {
  return entry.ends_with(".attn.q.weight") || entry.ends_with(".attn.k.weight");
}

// Rows of the heads of q or k, from one order to the other (Note [Half-split rows]).
enum class To { halves, neighbours };
std::string reordered(std::string_view rows, int64_t row_bytes, int64_t head_dim, To to) {
  std::string out(rows.size(), '\0');
  int64_t half = head_dim / 2, count = int64_t(rows.size()) / row_bytes;
  for (int64_t row = 0; row < count; ++row) {
    int64_t head = row / head_dim, at = row % head_dim;
    int64_t neighbours = head * head_dim + at, halves = head * head_dim + at % 2 * half + at / 2;
    auto [from, there] = to == To::halves ? std::pair(neighbours, halves) : std::pair(halves, neighbours);
    std::copy_n(rows.begin() + from * row_bytes, row_bytes, out.begin() + there * row_bytes);
  }
  return out;
}

int64_t row_bytes(const Dims& dims, DType dtype) { return dims[dims.rank() - 1] * size_of(dtype); }

// What a model of that configuration consists of.
std::vector<Parameters::Entry> entries_of(ModelConfig c) {
  c.ctx = 1;
  Parameters p({DeviceType::meta, DType::f32, {}, 0});
  make_transformer(c, p);
  return p.entries();
}

std::string shape_text(const StoredTensor& t) { return fmt::format("({})", fmt::join(t.shape, ", ")); }

}  // namespace

std::string hugging_face_name(const std::string& entry) {
  static const std::pair<const char*, const char*> whole[] = {{"embedding.weight", "model.embed_tokens.weight"},
                                                              {"norm.weight", "model.norm.weight"},
                                                              {"head.weight", head_name}};
  static const std::pair<const char*, const char*> parts[] = {{".attn.q.", ".self_attn.q_proj."},
                                                              {".attn.k.", ".self_attn.k_proj."},
                                                              {".attn.v.", ".self_attn.v_proj."},
                                                              {".attn.o.", ".self_attn.o_proj."},
                                                              {".ffn.w1.", ".mlp.gate_proj."},
                                                              {".ffn.w2.", ".mlp.down_proj."},
                                                              {".ffn.w3.", ".mlp.up_proj."},
                                                              {".norm1.", ".input_layernorm."},
                                                              {".norm2.", ".post_attention_layernorm."}};
  for (auto [ours, theirs] : whole)
    if (entry == ours) return theirs;
  for (auto [ours, theirs] : parts)
    if (size_t at = entry.find(ours); at != std::string::npos && entry.starts_with("layers."))
      return "model." + entry.substr(0, at) + theirs + entry.substr(at + std::string(ours).size());
  fail_with(ErrorKind::usage, "{}: Llama has no such parameter, so this model cannot be exported", entry);
}

void export_hugging_face(const Parameters& parameters, const ModelConfig& config, DType dtype,
                         const std::string& folder) {
  std::error_code failed;
  check(!fs::exists(folder) || (fs::is_directory(folder) && fs::is_empty(folder, failed)),
        "{}: exists and is not an empty folder; name a new one", folder);
  std::map<std::string, const Parameters::Entry*> ours;
  std::vector<StoredTensor> tensors;
  for (const auto& e : parameters.entries()) {
    StoredTensor t{.name = hugging_face_name(e.name), .type = safetensors_type(dtype)};
    t.shape.assign(e.dims.begin(), e.dims.end());
    ours[t.name] = &e;
    tensors.push_back(std::move(t));
  }
  fs::create_directories(folder, failed);
  check(!failed, "{}: cannot be made ({})", folder, failed.message());
  NoGrad off;
  SafetensorsWriter writer((fs::path(folder) / single_file).string(), std::move(tensors), {{"format", "pt"}});
  for (const StoredTensor& t : writer.tensors()) {
    const Parameters::Entry& e = *ours.at(t.name);
    Tensor values = contiguous(cast(to(e.value.detach(), DeviceType::cpu), dtype));
    std::string_view bytes(values.data_as<char>(), size_t(values.bytes()));
    if (is_rotated(e.name)) writer.write(reordered(bytes, row_bytes(e.dims, dtype), config.head_dim(), To::halves));
    else writer.write(bytes);
  }
  writer.finish();
  // Last: a folder with it is whole.
  write_file((fs::path(folder) / config_file).string(), hugging_face_config(config, dtype).dump(2) + "\n");
}

HuggingFaceFolder::HuggingFaceFolder(const std::string& folder) : folder_(folder) {
  check(fs::is_directory(folder), "{}: is not a folder; give one with {} and {}", folder, config_file, single_file);
  std::string path = (fs::path(folder) / config_file).string();
  Json json = parse_json_file(path);
  check(json.is_object(), "{}: a configuration is a JSON object, not {}", path, json.type_name());
  for (const Json& name : json.value("architectures", Json::array()))
    check(name == "LlamaForCausalLM" || name == "MistralForCausalLM",
          "{}: \"architectures\": {} cannot be imported; LlamaForCausalLM can", path, name.dump());
  config_ = read_hugging_face_config(json, path).model;
  check(config_.ctx > 0, "{}: \"max_position_embeddings\" is missing; it says how long sequences may be", path);
  struct Limit {
    const char* field;
    int64_t value, most;
  };
  for (const Limit& l :
       {Limit{"hidden_size", config_.d_model, 1 << 20}, Limit{"intermediate_size", config_.d_ff, 1 << 22},
        Limit{"vocab_size", config_.vocab, 1 << 26}, Limit{"num_hidden_layers", config_.layers, 10000},
        Limit{"max_position_embeddings", config_.ctx, 1 << 20}})
    check(l.value <= l.most, "{}: \"{}\": {} is beyond what sinter is made for; the most is {}", path, l.field, l.value,
          l.most);
  validate(config_);
  open_files();
  check_tensors();
}
HuggingFaceFolder::~HuggingFaceFolder() = default;

void HuggingFaceFolder::open(const std::string& file) {
  check(!file.empty() && file.find('/') == std::string::npos && file != "..",
        "{}/{}: names the file {}, which is not in the folder", folder_, index_file, Json(file).dump());
  files_.push_back(std::make_unique<SafetensorsFile>((fs::path(folder_) / file).string()));
  for (const StoredTensor& t : files_.back()->tensors())
    check(where_.emplace(t.name, files_.back().get()).second, "{}: tensor {} is in two files of the folder",
          files_.back()->path(), t.name);
}

void HuggingFaceFolder::open_files() {
  fs::path folder = folder_, index = folder / index_file;
  if (fs::exists(folder / single_file)) return open(single_file);
  check(fs::exists(index), "{}: has neither {} nor {}{}", folder_, single_file, index_file,
        fs::exists(folder / "pytorch_model.bin") || fs::exists(folder / "pytorch_model.bin.index.json")
            ? "; save pytorch_model.bin again with safe_serialization=True"
            : "");
  Json json = parse_json_file(index.string()), map = json.is_object() ? json.value("weight_map", Json()) : Json();
  check(map.is_object() && !map.empty(), "{}: has no \"weight_map\" that says which tensor is in which file",
        index.string());
  std::map<std::string, std::string> named;
  std::vector<std::string> files;
  for (const auto& [tensor, file] : map.items()) {
    check(file.is_string(), "{}: \"{}\" is in {}, which is no file", index.string(), tensor, file.dump());
    named[tensor] = file.get<std::string>();
    if (std::find(files.begin(), files.end(), named[tensor]) == files.end()) files.push_back(named[tensor]);
  }
  for (const std::string& file : files) open(file);
  for (const auto& [tensor, file] : named)
    check(where_.contains(tensor) && fs::path(where_.at(tensor)->path()).filename() == file,
          "{}: \"{}\" should be in {}, and is not", index.string(), tensor, file);
}

void HuggingFaceFolder::check_tensors() const {
  std::map<std::string, Dims> wanted;
  for (const auto& e : entries_of(config_)) wanted[hugging_face_name(e.name)] = e.dims;
  for (const auto& [name, dims] : wanted) {
    auto found = where_.find(name);
    check(found != where_.end(), "{}: no file has the tensor {}{}", folder_, name,
          name == head_name ? "; if the head is the embedding, config.json should have \"tie_word_embeddings\": true"
                            : ", which a model of this config.json needs");
    const SafetensorsFile& file = *found->second;
    const StoredTensor& t = file.at(name);
    std::optional<DType> type = dtype_of_safetensors(t.type);
    check(type && is_float(*type) && *type != DType::f64, "{}: tensor {} is {}; F32, BF16 and F16 can be imported",
          file.path(), name, t.type);
    check(std::ranges::equal(t.shape, dims), "{}: tensor {} has shape {}, but config.json asks for {}", file.path(),
          name, shape_text(t), dims);
  }
  for (const auto& [name, file] : where_) {
    if (wanted.contains(name) || name.ends_with("rotary_emb.inv_freq")) continue;  // which follows from config.json
    check(name == head_name && config_.tied_embeddings, "{}: tensor {} is not part of the model, which is Llama's",
          file->path(), name);
    const SafetensorsFile& other = *where_.at("model.embed_tokens.weight");
    check(file->bytes(file->at(name)) == other.bytes(other.at("model.embed_tokens.weight")),
          "{}: {} differs from the embedding, and config.json says that they are tied (\"tie_word_embeddings\")",
          file->path(), name);
  }
}

void HuggingFaceFolder::load(Parameters& into) const {
  NoGrad off;
  for (const auto& e : into.entries()) {
    std::string name = hugging_face_name(e.name);
    const SafetensorsFile& file = *where_.at(name);
    const StoredTensor& t = file.at(name);
    DType type = *dtype_of_safetensors(t.type);
    std::string_view bytes = file.bytes(t);
    std::string turned;
    if (is_rotated(e.name))
      bytes = turned = reordered(bytes, row_bytes(e.dims, type), config_.head_dim(), To::neighbours);
    Tensor values = cast(from_host(bytes.data(), e.dims, type, DeviceType::cpu), into.options().master);
    into.load("master", e.name, to(values, into.options().device));
  }
}

}  // namespace sinter
