#include "lab/config_file.h"

#include <algorithm>

#include "core/check.h"
#include "lab/record.h"

namespace sinter::lab {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& field, const Json& value, const std::string& why) {
  fail_with(ErrorKind::usage, "{}: \"{}\": {} cannot be honoured: {}", path, field, value.dump(), why);
}

// Fields that say nothing about the shape or the arithmetic.
bool is_harmless(const std::string& field) {
  static const std::vector<std::string> names = {"architectures",
                                                 "model_type",
                                                 "torch_dtype",
                                                 "dtype",
                                                 "transformers_version",
                                                 "use_cache",
                                                 "initializer_range",
                                                 "pretraining_tp",
                                                 "bos_token_id",
                                                 "eos_token_id",
                                                 "pad_token_id",
                                                 "unk_token_id",
                                                 "_name_or_path",
                                                 "auto_map",
                                                 "name_or_path",
                                                 "attn_implementation",
                                                 "_attn_implementation",
                                                 "output_attentions",
                                                 "output_hidden_states",
                                                 "return_dict",
                                                 "use_flash_attention_2",
                                                 "max_window_layers",
                                                 "task_specific_params",
                                                 "id2label",
                                                 "label2id"};
  return field.rfind('_', 0) == 0 || std::find(names.begin(), names.end(), field) != names.end();
}

bool says_nothing(const Json& v) {
  if (v.is_string()) return v.get_ref<const std::string&>().empty();
  return v.is_null() || v == false || v == 0 || ((v.is_array() || v.is_object()) && v.empty());
}

class HuggingFace {
 public:
  HuggingFace(const Json& j, const std::string& path) : j_(j), path_(path) {}

  SweepOptions read() {
    check_model_type();
    o_.d_model = {whole("hidden_size")};
    o_.d_ff = {whole("intermediate_size")};
    o_.layers = {whole("num_hidden_layers")};
    o_.heads = {whole("num_attention_heads")};
    o_.vocab = {whole("vocab_size")};
    if (has("max_position_embeddings")) o_.max_ctx = whole("max_position_embeddings");
    if (has("rope_theta")) o_.rope_theta = real("rope_theta");
    if (has("rms_norm_eps")) o_.norm_eps = real("rms_norm_eps");
    check_attention();
    check_block();
    check_token_ids();
    for (const auto& [field, value] : j_.items())
      if (!seen(field) && !is_harmless(field) && !says_nothing(value))
        refuse(path_, field, value,
               "sinter does not know this field; remove it from the file if the model does not depend on it");
    return o_;
  }

 private:
  bool has(const char* field) {
    seen_.push_back(field);
    return j_.contains(field) && !j_[field].is_null();
  }
  bool seen(const std::string& field) const { return std::find(seen_.begin(), seen_.end(), field) != seen_.end(); }
  int64_t whole(const char* field) {
    check(has(field), "{}: \"{}\" is missing; a Llama-style configuration needs it", path_, field);
    if (!j_[field].is_number_integer()) refuse(path_, field, j_[field], "it must be a whole number");
    return j_[field].get<int64_t>();
  }
  double real(const char* field) {
    if (!j_[field].is_number()) refuse(path_, field, j_[field], "it must be a number");
    return j_[field].get<double>();
  }
  // The field is absent, or has the one value that the model has.
  void only(const char* field, const Json& value, const char* why) {
    if (has(field) && j_[field] != value) refuse(path_, field, j_[field], why);
  }

  void check_model_type() {
    std::string type =
        j_.contains("model_type") && j_["model_type"].is_string() ? j_["model_type"].get<std::string>() : "llama";
    if (type != "llama" && type != "mistral")
      refuse(path_, "model_type", type, "only llama (and mistral without a sliding window) has the benchmark's block");
  }
  void check_attention() {
    if (has("num_key_value_heads")) o_.kv_heads = {whole("num_key_value_heads")};
    if (has("head_dim") && o_.heads[0] > 0 && j_["head_dim"] != o_.d_model[0] / o_.heads[0])
      refuse(path_, "head_dim", j_["head_dim"], "it must be hidden_size / num_attention_heads");
    only("attention_bias", false, "the model has no biases");
    only("attention_dropout", 0, "the model has no dropout");
    only("partial_rotary_factor", 1, "RoPE rotates the whole head");
    only("use_sliding_window", false, "attention sees the whole context");
    if (has("sliding_window"))
      refuse(path_, "sliding_window", j_["sliding_window"], "attention sees the whole context");
    for (const char* field : {"rope_scaling", "rope_parameters"}) {
      if (!has(field)) continue;
      const Json& rope = j_[field];
      std::string kind = rope.is_object() ? rope.value("rope_type", rope.value("type", "")) : "";
      if (kind != "default") refuse(path_, field, rope, "RoPE is not scaled");
      if (rope.contains("rope_theta")) o_.rope_theta = rope["rope_theta"].get<double>();
    }
  }
  void check_block() {
    if (has("hidden_act") && j_["hidden_act"] != "silu" && j_["hidden_act"] != "swish")
      refuse(path_, "hidden_act", j_["hidden_act"], "the feed-forward is SwiGLU; it must be \"silu\"");
    only("mlp_bias", false, "the model has no biases");
    only("tie_word_embeddings", false, "embedding and head are not tied");
    if (has("quantization_config"))
      refuse(path_, "quantization_config", j_["quantization_config"], "weights are not quantised; use --dtype");
  }
  void check_token_ids() {
    for (const char* field : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
      if (!has(field)) continue;
      for (const Json& id : j_[field].is_array() ? j_[field] : Json::array({j_[field]})) {
        if (!id.is_number_integer()) refuse(path_, field, id, "it must be a whole number");
        o_.max_token_id = std::max(o_.max_token_id.value_or(0), id.get<int64_t>());
      }
    }
  }

  const Json& j_;
  const std::string& path_;
  std::vector<std::string> seen_;
  SweepOptions o_;
};

}  // namespace

SweepOptions read_config_file(const std::string& path) {
  Json j = parse_json_file(path);
  check(j.is_object(), "{}: a configuration is a JSON object, not {}", path, j.type_name());
  if (is_record(j)) {
    Json config = checked_record(j, path)["config"];
    check(config.contains("size") || config.contains("d_model"),
          "{}: the record of \"{}\" names no model; give one of bench model, profile model or memory model", path,
          j["command"].get<std::string>());
    return sweep_from_json(config, path);
  }
  if (j.contains("hidden_size") || j.contains("num_hidden_layers") || j.contains("model_type"))
    return HuggingFace(j, path).read();
  bool ours = j.contains("d_model") || j.contains("size");  // the "config" of one result
  check(ours, "{}: neither a sinter record nor a Llama-style config.json (no \"hidden_size\")", path);
  return sweep_from_json(j, path);
}

}  // namespace sinter::lab
