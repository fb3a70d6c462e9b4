// Exports that another implementation understands, imports that give the same bytes back, and folders that are refused.
#include "train/hugging_face.h"

#include <fstream>

#include "nn/transformer.h"
#include "support/reference_llama.h"
#include "support/temporary_folder.h"
#include "support/values.h"
#include "system/json.h"
#include "system/safetensors.h"

namespace sinter {
namespace {

namespace fs = std::filesystem;

ModelConfig little(int64_t kv_heads = 0) {
  ModelConfig c;
  c.d_model = 48, c.d_ff = 40, c.layers = 2, c.heads = 6, c.kv_heads = kv_heads, c.vocab = 37, c.ctx = 64;
  return c;
}

struct Ready {
  Parameters parameters;
  std::unique_ptr<Model> model;
  explicit Ready(const ModelConfig& c, uint64_t seed = 1)
      : parameters({DeviceType::cpu, DType::f32, {}, seed}), model(make_transformer(c, parameters)) {
    parameters.allocate();
    for (const auto& e : parameters.entries())  // norms that are not all one
      if (e.dims.rank() == 1) fill_uniform(e.value, seed, uint64_t(e.offset), 0.5, 1.5);
  }
};

const std::vector<int64_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 36, 0};

Values our_logits(const Ready& r) {
  NoGrad off;
  return to_vector(r.model->logits(from_vector(tokens, {1, int64_t(tokens.size())}, DeviceType::cpu)));
}

class HuggingFace : public FolderTest {
 protected:
  std::string out() const { return (folder_ / "model").string(); }
  std::string file(const char* name) const { return (folder_ / "model" / name).string(); }

  // The configuration in the folder, changed.
  void change(const std::function<void(Json&)>& edit) const {
    Json j = parse_json_file(file("config.json"));
    edit(j);
    std::ofstream(file("config.json")) << j;
  }
  // The weights in the folder, changed: names, types, shapes and bytes.
  struct Stored {
    StoredTensor tensor;
    std::string bytes;
  };
  std::vector<Stored> stored() const {
    SafetensorsFile f(file("model.safetensors"));
    std::vector<Stored> all;
    for (const StoredTensor& t : f.tensors()) all.push_back({t, std::string(f.bytes(t))});
    return all;
  }
  static void store(const std::string& path, const std::vector<Stored>& all) {
    fs::remove(path);
    std::vector<StoredTensor> tensors;
    for (const Stored& s : all) tensors.push_back(s.tensor);
    SafetensorsWriter writer(path, tensors);
    for (const StoredTensor& t : writer.tensors())
      for (const Stored& s : all)
        if (s.tensor.name == t.name) writer.write(s.bytes);
    writer.finish();
  }
  void change_weights(const std::function<void(std::vector<Stored>&)>& edit) const {
    std::vector<Stored> all = stored();
    edit(all);
    store(file("model.safetensors"), all);
  }
  std::string refusal() const {
    return error_of(ErrorKind::usage, [&] { HuggingFaceFolder{out()}; });
  }
  void fresh(const ModelConfig& c) const {
    fs::remove_all(out());
    export_hugging_face(Ready(c).parameters, c, DType::f32, out());
  }
};

TEST_F(HuggingFace, AnotherImplementationGetsTheSameLogits) {
  std::vector<ModelConfig> configs = {little(), little(2), little(1)};
  configs.push_back(little(3));
  configs.back().tied_embeddings = true, configs.back().norm_eps = 1e-3, configs.back().rope_theta = 500;
  configs.push_back(little(2));
  configs.back().rope_scaling = {8, 1, 4, 40}, configs.back().rope_theta = 50;
  for (const ModelConfig& c : configs) {
    Ready r(c);
    fs::remove_all(out());
    export_hugging_face(r.parameters, c, DType::f32, out());
    EXPECT_LE(normwise_error(our_logits(r), reference_llama_logits(out(), tokens)), 1e-5);
  }
}

// Each field of the configuration that changes the arithmetic does so on both sides.
TEST_F(HuggingFace, TheConfigurationComesBack) {
  ModelConfig c = little(2);
  c.tied_embeddings = true, c.norm_eps = 3e-6, c.rope_theta = 500000, c.rope_scaling = {8, 1, 4, 8192};
  fresh(c);
  ModelConfig back = HuggingFaceFolder(out()).config();
  EXPECT_EQ(back.d_model, 48);
  EXPECT_EQ(back.d_ff, 40);
  EXPECT_EQ(back.layers, 2);
  EXPECT_EQ(back.heads, 6);
  EXPECT_EQ(back.key_value_heads(), 2);
  EXPECT_EQ(back.vocab, 37);
  EXPECT_EQ(back.ctx, 64);
  EXPECT_EQ(back.norm_eps, 3e-6);
  EXPECT_EQ(back.rope_theta, 500000);
  EXPECT_TRUE(back.tied_embeddings);
  EXPECT_EQ(text_of(back.rope_scaling), "8,1,4,8192");
}

TEST_F(HuggingFace, ImportingGivesTheBytesBack) {
  for (DType type : {DType::f32, DType::bf16, DType::f16})
    for (bool tied : {false, true}) {
      ModelConfig c = little(2);
      c.tied_embeddings = tied;
      Ready original(c), imported(c, 2);
      fs::remove_all(out());
      export_hugging_face(original.parameters, c, type, out());
      HuggingFaceFolder(out()).load(imported.parameters);
      for (const auto& e : original.parameters.entries()) {
        NoGrad off;
        Tensor expected = cast(cast(e.value, type), DType::f32);
        EXPECT_TRUE(same_bits(imported.parameters.find(e.name).value, expected)) << e.name;
      }
      std::vector<Stored> first = stored();
      fs::remove_all(out());
      export_hugging_face(imported.parameters, c, type, out());
      std::vector<Stored> second = stored();
      ASSERT_EQ(first.size(), second.size());
      EXPECT_EQ(first.size(), size_t(tied ? 20 : 21));
      for (size_t i = 0; i < first.size(); ++i) {
        EXPECT_EQ(first[i].tensor.name, second[i].tensor.name);
        EXPECT_TRUE(first[i].bytes == second[i].bytes) << first[i].tensor.name;
      }
    }
}

TEST_F(HuggingFace, WritesTheNamesThatTransformersReads) {
  fresh(little(2));
  SafetensorsFile f(file("model.safetensors"));
  EXPECT_EQ(f.metadata().at("format"), "pt");
  EXPECT_EQ(f.at("model.layers.1.self_attn.k_proj.weight").shape, (std::vector<int64_t>{16, 48}));
  EXPECT_EQ(f.at("model.layers.0.mlp.down_proj.weight").shape, (std::vector<int64_t>{48, 40}));
  for (const char* name :
       {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight", "model.layers.0.input_layernorm.weight",
        "model.layers.0.post_attention_layernorm.weight", "model.layers.1.self_attn.q_proj.weight",
        "model.layers.1.self_attn.v_proj.weight", "model.layers.1.self_attn.o_proj.weight",
        "model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight"})
    EXPECT_TRUE(f.find(name)) << name;
  Json config = parse_json_file(file("config.json"));
  EXPECT_EQ(config["architectures"], Json({"LlamaForCausalLM"}));
  EXPECT_EQ(config["torch_dtype"], "float32");
}

TEST_F(HuggingFace, ReadsShardsAndIgnoresWhatFollowsFromTheConfiguration) {
  ModelConfig c = little(2);
  Ready original(c), imported(c, 2);
  export_hugging_face(original.parameters, c, DType::f32, out());
  std::vector<Stored> all = stored(), shards[2];
  all.push_back({{"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {4}}, std::string(16, 'x')});
  Json map;
  const char* names[2] = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
  for (size_t i = 0; i < all.size(); ++i) {
    shards[i % 2].push_back(all[i]);
    map[all[i].tensor.name] = names[i % 2];
  }
  for (int i : {0, 1}) store(file(names[i]), shards[i]);
  fs::remove(file("model.safetensors"));
  auto write_index = [&](const Json& weights) {
    std::ofstream(file("model.safetensors.index.json"))
        << Json{{"metadata", {{"total_size", 1}}}, {"weight_map", weights}};
  };
  write_index(map);
  HuggingFaceFolder(out()).load(imported.parameters);
  for (const auto& e : original.parameters.entries())
    EXPECT_TRUE(same_bits(imported.parameters.find(e.name).value, e.value)) << e.name;

  Json wrong = map;
  wrong["lm_head.weight"] = wrong["lm_head.weight"] == names[0] ? names[1] : names[0];
  write_index(wrong);
  EXPECT_TRUE(mentions(refusal(), {"index.json", "lm_head.weight", "should be in"}));
  wrong["lm_head.weight"] = "../elsewhere.safetensors";
  write_index(wrong);
  EXPECT_TRUE(mentions(refusal(), {"../elsewhere.safetensors", "not in the folder"}));
  write_index(Json::array());
  EXPECT_TRUE(mentions(refusal(), {"weight_map"}));
  write_index(map);
  fs::remove(file(names[1]));
  EXPECT_TRUE(mentions(refusal(), {names[1]}));
}

TEST_F(HuggingFace, RefusesOtherModelsByName) {
  fresh(little(2));
  struct Change {
    const char* field;
    Json value;
    std::vector<std::string> says;
  };
  for (const Change& c : std::vector<Change>{
           {"model_type", "gpt2", {"model_type", "gpt2"}},
           {"architectures", {"LlamaForSequenceClassification"}, {"LlamaForSequenceClassification"}},
           {"attention_bias", true, {"attention_bias"}},
           {"mlp_bias", true, {"mlp_bias"}},
           {"hidden_act", "gelu", {"hidden_act", "gelu"}},
           {"sliding_window", 4096, {"sliding_window", "4096"}},
           {"head_dim", 16, {"head_dim", "16"}},
           {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}, {"rope_scaling", "linear", "llama3"}},
           {"rope_scaling", {{"rope_type", "yarn"}}, {"yarn"}},
           {"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}, {"low_freq_factor"}},
           {"rope_theta", "big", {"rope_theta", "number"}},
           {"quantization_config", {{"bits", 4}}, {"quantization_config"}},
           {"num_experts", 8, {"num_experts"}},
           {"tie_word_embeddings", 1, {"tie_word_embeddings", "true or false"}},
           {"num_hidden_layers", 3, {"model.layers.2.", "no file has"}},
           {"num_hidden_layers", int64_t(1) << 60, {"num_hidden_layers", "the most is 10000"}},
           {"intermediate_size", INT64_MAX - 47, {"intermediate_size", "beyond"}},
           {"max_position_embeddings", INT64_MAX, {"max_position_embeddings", "beyond"}},
           {"num_attention_heads", 0, {"--heads"}},
           {"num_key_value_heads", -2, {"--kv-heads"}},
           {"num_hidden_layers", 1, {"model.layers.1.", "not part of the model"}},
           {"vocab_size", 38, {"lm_head", "(37, 48)", "(38, 48)"}},
           {"num_attention_heads", 5, {"head_dim"}}}) {
    fresh(little(2));
    change([&](Json& j) { j[c.field] = c.value; });
    EXPECT_TRUE(mentions(refusal(), c.says)) << c.field;
  }
  fresh(little(2));
  change([](Json& j) { j.erase("max_position_embeddings"); });
  EXPECT_TRUE(mentions(refusal(), {"max_position_embeddings"}));
}

// Whatever the text: a model or one clear error.
TEST_F(HuggingFace, ADamagedConfigurationIsAnErrorOrAModel) {
  fresh(little(2));
  std::ifstream in(file("config.json"));
  std::string text((std::istreambuf_iterator<char>(in)), {});
  Rng rng(6);
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string damaged = text;
    auto at = size_t(integer(rng, 0, int64_t(text.size()))), n = size_t(integer(rng, 0, 12));
    const char* const pieces[] = {"null", "-1", "1e999", "[]", "{}", "\"\"", "9223372036854775807", "", ",", "0"};
    if (round % 3 == 0) damaged[at] = char(integer(rng, 0, 256));
    else if (round % 3 == 1) damaged.replace(at, std::min(n, text.size() - at), pieces[integer(rng, 0, 10)]);
    else {  // a value that is another
      size_t value = std::min(text.find(": ", at), text.rfind(": ")) + 2, end = text.find_first_of(",\n", value);
      damaged.replace(value, end - value, pieces[integer(rng, 0, 10)]);
    }
    std::ofstream(file("config.json"), std::ios::binary) << damaged;
    try {
      Ready imported(HuggingFaceFolder(out()).config());
    } catch (const Error& e) {
      EXPECT_EQ(int(e.kind()), int(ErrorKind::usage)) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST_F(HuggingFace, RefusesOtherWeightsByName) {
  ModelConfig tied = little(2);
  tied.tied_embeddings = true;
  auto named = [](std::vector<Stored>& all, const std::string& name) -> Stored& {
    return *std::find_if(all.begin(), all.end(), [&](const Stored& s) { return s.tensor.name == name; });
  };
  fresh(little(2));
  change_weights([&](auto& all) { named(all, "model.norm.weight").tensor.name = "model.norm.bias"; });
  EXPECT_TRUE(mentions(refusal(), {"no file has", "model.norm.weight"}));
  fresh(little(2));
  change_weights([&](auto& all) {
    all.push_back({{"model.layers.0.self_attn.q_proj.bias", "F32", {1}}, std::string(4, '\0')});
  });
  EXPECT_TRUE(mentions(refusal(), {"q_proj.bias", "not part of the model"}));
  fresh(little(2));
  change_weights([&](auto& all) { named(all, "model.norm.weight").tensor.type = "I32"; });
  EXPECT_TRUE(mentions(refusal(), {"model.norm.weight", "I32", "BF16"}));
  fresh(little(2));
  change_weights([&](auto& all) { named(all, "lm_head.weight").tensor.shape = {48, 37}; });
  EXPECT_TRUE(mentions(refusal(), {"lm_head.weight", "(48, 37)", "(37, 48)"}));
  fresh(tied);
  change([](Json& j) { j["tie_word_embeddings"] = false; });
  EXPECT_TRUE(mentions(refusal(), {"lm_head.weight", "tie_word_embeddings", "true"}));

  // A head that is stored all the same, as some do.
  for (bool same : {true, false}) {
    fresh(tied);
    change_weights([&](auto& all) {
      Stored head = named(all, "model.embed_tokens.weight");
      head.tensor.name = "lm_head.weight";
      if (!same) head.bytes[5] ^= 1;
      all.push_back(head);
    });
    if (same) HuggingFaceFolder{out()};
    else EXPECT_TRUE(mentions(refusal(), {"lm_head.weight", "differs from the embedding"}));
  }
}

TEST_F(HuggingFace, RefusesFoldersThatAreNone) {
  EXPECT_TRUE(mentions(refusal(), {"not a folder", "config.json"}));
  fs::create_directories(out());
  EXPECT_TRUE(mentions(refusal(), {"config.json"}));
  fresh(little());
  fs::remove(file("model.safetensors"));
  EXPECT_TRUE(mentions(refusal(), {"neither model.safetensors nor"}));
  std::ofstream(file("pytorch_model.bin")) << "x";
  EXPECT_TRUE(mentions(refusal(), {"pytorch_model.bin", "safe_serialization"}));
  Ready r(little());
  EXPECT_TRUE(
      mentions(error_of(ErrorKind::usage, [&] { export_hugging_face(r.parameters, little(), DType::f32, out()); }),
               {"not an empty folder"}));
}

}  // namespace
}  // namespace sinter
