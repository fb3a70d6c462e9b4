#include "lab/config_file.h"

#include "core/check.h"
#include "lab/record.h"
#include "train/hugging_face_config.h"

namespace sinter::lab {

SweepOptions sweep_of(const ModelConfig& m) {
  SweepOptions o;
  o.d_model = {m.d_model}, o.d_ff = {m.d_ff}, o.layers = {m.layers}, o.heads = {m.heads}, o.vocab = {m.vocab};
  if (m.kv_heads != 0) o.kv_heads = {m.kv_heads};
  o.rope_theta = m.rope_theta, o.norm_eps = m.norm_eps;
  o.tied_embeddings = m.tied_embeddings, o.rope_scaling = text_of(m.rope_scaling);
  return o;
}

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
  if (j.contains("hidden_size") || j.contains("num_hidden_layers") || j.contains("model_type")) {
    HuggingFaceConfig c = read_hugging_face_config(j, path);
    SweepOptions o = sweep_of(c.model);
    if (c.model.ctx > 0) o.max_ctx = c.model.ctx;
    if (c.max_token_id >= 0) o.max_token_id = c.max_token_id;
    return o;
  }
  bool ours = j.contains("d_model") || j.contains("size");  // the "config" of one result
  check(ours, "{}: neither a sinter record nor a Llama-style config.json (no \"hidden_size\")", path);
  return sweep_from_json(j, path);
}

}  // namespace sinter::lab
