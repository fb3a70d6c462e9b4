#include "train/hugging_face_config.h"

#include <algorithm>

#include "core/check.h"

namespace sinter {
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

  HuggingFaceConfig read() {
    check_model_type();
    m_.d_model = whole("hidden_size");
    m_.d_ff = whole("intermediate_size");
    m_.layers = whole("num_hidden_layers");
    m_.heads = whole("num_attention_heads");
    m_.vocab = whole("vocab_size");
    m_.ctx = has("max_position_embeddings") ? whole("max_position_embeddings") : 0;
    m_.norm_eps = has("rms_norm_eps") ? real(j_, "rms_norm_eps") : 1e-6;  // which transformers takes then
    if (has("tie_word_embeddings")) m_.tied_embeddings = flag("tie_word_embeddings");
    read_rope();
    check_attention();
    check_block();
    check_token_ids();
    for (const auto& [field, value] : j_.items())
      if (!seen(field) && !is_harmless(field) && !says_nothing(value))
        refuse(path_, field, value,
               "sinter does not know this field; remove it from the file if the model does not depend on it");
    return {m_, max_token_id_};
  }

 private:
  bool has(const char* field) {
    seen_.push_back(field);
    return j_.contains(field) && !j_[field].is_null();
  }
  bool seen(const std::string& field) const { return std::find(seen_.begin(), seen_.end(), field) != seen_.end(); }
  int64_t whole(const char* field) {
    check(has(field), "{}: \"{}\" is missing; a Llama-style configuration needs it", path_, field);
    return whole(j_, field);
  }
  int64_t whole(const Json& of, const char* field) {
    Json value = of.value(field, Json());
    if (!value.is_number_integer()) refuse(path_, field, value, "it must be a whole number");
    return value.get<int64_t>();
  }
  double real(const Json& of, const char* field) {
    Json value = of.value(field, Json());
    if (!value.is_number()) refuse(path_, field, value, "it must be a number");
    return value.get<double>();
  }
  bool flag(const char* field) {
    if (!j_[field].is_boolean()) refuse(path_, field, j_[field], "it must be true or false");
    return j_[field].get<bool>();
  }
  // The field is absent, or has the one value that the model has.
  void only(const char* field, const Json& value, const char* why) {
    if (has(field) && j_[field] != value) refuse(path_, field, j_[field], why);
  }

  void check_model_type() {
    std::string type =
        j_.contains("model_type") && j_["model_type"].is_string() ? j_["model_type"].get<std::string>() : "llama";
    if (type != "llama" && type != "mistral")
      refuse(path_, "model_type", type, "only llama (and mistral without a sliding window) has this model's block");
  }
  void check_attention() {
    if (has("num_key_value_heads")) m_.kv_heads = whole("num_key_value_heads");
    if (has("head_dim") && m_.heads > 0 && j_["head_dim"] != m_.d_model / m_.heads)
      refuse(path_, "head_dim", j_["head_dim"], "it must be hidden_size / num_attention_heads");
    only("attention_bias", false, "the model has no biases");
    only("attention_dropout", 0, "the model has no dropout");
    only("use_sliding_window", false, "attention sees the whole context");
    if (has("sliding_window"))
      refuse(path_, "sliding_window", j_["sliding_window"], "attention sees the whole context");
  }
  // Base and scaling have stood in several places over the years.
  void read_rope() {
    if (has("rope_theta")) m_.rope_theta = real(j_, "rope_theta");
    only("partial_rotary_factor", 1, "RoPE rotates the whole head");
    for (const char* field : {"rope_scaling", "rope_parameters"}) {
      if (!has(field)) continue;
      const Json& rope = j_[field];
      std::string kind = rope.is_object() ? rope.value("rope_type", rope.value("type", Json(""))).dump() : "";
      if (kind != "\"default\"" && kind != "\"llama3\"")
        refuse(path_, field, rope, "RoPE is either plain (\"default\") or scaled as in Llama 3 (\"llama3\")");
      if (rope.contains("rope_theta")) m_.rope_theta = real(rope, "rope_theta");
      if (kind == "\"llama3\"")
        m_.rope_scaling = {real(rope, "factor"), real(rope, "low_freq_factor"), real(rope, "high_freq_factor"),
                           whole(rope, "original_max_position_embeddings")};
    }
  }
  void check_block() {
    if (has("hidden_act") && j_["hidden_act"] != "silu" && j_["hidden_act"] != "swish")
      refuse(path_, "hidden_act", j_["hidden_act"], "the feed-forward is SwiGLU; it must be \"silu\"");
    only("mlp_bias", false, "the model has no biases");
    if (has("quantization_config"))
      refuse(path_, "quantization_config", j_["quantization_config"], "weights are not quantised; use --dtype");
  }
  void check_token_ids() {
    for (const char* field : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
      if (!has(field)) continue;
      for (const Json& id : j_[field].is_array() ? j_[field] : Json::array({j_[field]})) {
        if (!id.is_number_integer()) refuse(path_, field, id, "it must be a whole number");
        max_token_id_ = std::max(max_token_id_, id.get<int64_t>());
      }
    }
  }

  const Json& j_;
  const std::string& path_;
  std::vector<std::string> seen_;
  ModelConfig m_;
  int64_t max_token_id_ = -1;
};

}  // namespace

HuggingFaceConfig read_hugging_face_config(const Json& config, const std::string& path) {
  return HuggingFace(config, path).read();
}

Json hugging_face_config(const ModelConfig& m, DType dtype) {
  Json j = {{"architectures", {"LlamaForCausalLM"}},
            {"model_type", "llama"},
            {"hidden_size", m.d_model},
            {"intermediate_size", m.d_ff},
            {"num_hidden_layers", m.layers},
            {"num_attention_heads", m.heads},
            {"num_key_value_heads", m.key_value_heads()},
            {"head_dim", m.head_dim()},
            {"vocab_size", m.vocab},
            {"max_position_embeddings", m.ctx},
            {"rms_norm_eps", m.norm_eps},
            {"rope_theta", m.rope_theta},
            {"rope_scaling", Json()},
            {"hidden_act", "silu"},
            {"attention_bias", false},
            {"attention_dropout", 0.0},
            {"mlp_bias", false},
            {"tie_word_embeddings", m.tied_embeddings},
            {"bos_token_id", Json()},
            {"eos_token_id", Json()},
            {"torch_dtype", dtype == DType::bf16  ? "bfloat16"
                            : dtype == DType::f16 ? "float16"
                                                  : "float32"}};
  if (const RopeScaling& s = m.rope_scaling; s.on())
    j["rope_scaling"] = {{"rope_type", "llama3"},
                         {"factor", s.factor},
                         {"low_freq_factor", s.low_frequency_factor},
                         {"high_freq_factor", s.high_frequency_factor},
                         {"original_max_position_embeddings", s.original_ctx}};
  return j;
}

}  // namespace sinter
