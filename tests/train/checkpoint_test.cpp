// A run that goes on from a checkpoint is the run that was never interrupted, and whatever cannot be read is refused
// before anything has changed.
#include "train/checkpoint.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/attrs.h"
#include "support/checkpoints.h"
#include "support/temporary_folder.h"
#include "system/checksum.h"

namespace sinter {
namespace {

namespace fs = std::filesystem;

class Checkpointing : public FolderTest {
 protected:
  std::string dir() const { return folder_.string(); }
  CheckpointInfo latest() const {
    auto info = latest_checkpoint(dir());
    if (!info) throw Error(ErrorKind::other, "there is no checkpoint");
    return *info;
  }
  // Of a run that has trained so many steps.
  std::unique_ptr<Trainer> save_after(int64_t steps, const RunSetting& s = {}) const {
    auto trainer = trainer_of(s);
    train(*trainer, 0, steps);
    Checkpoints checkpoints(*trainer, {dir()});
    EXPECT_EQ(saved(checkpoints, steps, {{"seed", 1}}), "");
    return trainer;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& e : fs::directory_iterator(folder_)) all.push_back(e.path().filename());
    std::sort(all.begin(), all.end());
    return all;
  }
  std::string refusal(const RunSetting& s) const {
    auto trainer = trainer_of(s);
    State before = state_of(*trainer);
    std::string text = error_of(ErrorKind::usage, [&] { load_checkpoint(latest(), *trainer); });
    State after = state_of(*trainer);
    for (const auto& [name, bytes] : before) EXPECT_TRUE(after[name] == bytes) << name;
    return text;
  }
};

std::string text_of(const fs::path& path) {
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}
void write_text(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

TEST_F(Checkpointing, ARunGoesOnBitForBit) {
  std::vector<RunSetting> settings;
  for (bool compiled : {false, true})
    for (const char* dtype : {"fp32", "bf16", "fp16", "fp64"}) settings.push_back({compiled, dtype});
  for (bool compiled : {false, true}) settings.push_back({compiled, "bf16", make_sgd({{.learning_rate = 0.1}, 0.9})});
  for (RunSetting s : settings) {
    fs::remove_all(folder_);
    std::string what = fmt::format("{} {}", s.dtype, s.compiled ? "compiled" : "eager");
    auto uninterrupted = trainer_of(s), saver = trainer_of(s);
    train(*uninterrupted, 0, 3);
    train(*saver, 0, 3);
    Checkpoints checkpoints(*saver, {dir()});
    checkpoints.save(3, {{"name", what}});
    Values losses = train(*uninterrupted, 3, 6);
    EXPECT_EQ(train(*saver, 3, 6), losses) << what;  // while it is written
    ASSERT_EQ(checkpoints.wait()[0].error, "");
    EXPECT_TRUE(state_of(*saver) == state_of(*uninterrupted)) << what;

    s.seed = 2;
    for (int64_t already : {0, 2}) {  // into a new run, and into one that has its own numbers, copies and graphs
      auto resumed = trainer_of(s);
      train(*resumed, 10, 10 + already);
      EXPECT_EQ(latest().step, 3);
      EXPECT_EQ(latest().config["name"], what);
      load_checkpoint(latest(), *resumed);
      EXPECT_EQ(train(*resumed, 3, 6), losses) << what;
      EXPECT_TRUE(state_of(*resumed) == state_of(*uninterrupted)) << what;
    }
  }
}

// fp16 skips steps whose gradients are not finite: the state holds an infinite norm then.
TEST_F(Checkpointing, KeepsWhatIsNotFinite) {
  auto trainer = trainer_of({.dtype = "fp16"});
  std::vector<double> state = trainer->optimizer().state();
  state[state_grad_norm] = INFINITY, state[state_skipped] = 1, state[state_lr] = 0.1 + 0.2;
  trainer->optimizer().load_state(state);
  Checkpoints checkpoints(*trainer, {dir()});
  ASSERT_EQ(saved(checkpoints, 1), "");
  auto other = trainer_of({.dtype = "fp16"});
  load_checkpoint(latest(), *other);
  EXPECT_EQ(other->optimizer().state(), state);
}

TEST_F(Checkpointing, FilesAreWhatTheDocumentSays) {
  auto trainer = save_after(2);
  EXPECT_EQ(names(), (std::vector<std::string>{".lock", "latest", "step_00000002"}));
  SafetensorsFile file(dir() + "/step_00000002/rank_0000.safetensors");
  CheckpointReader reader(latest().folder);
  size_t tensors = 0;
  for (const char* role : {"master", "adamw.m", "adamw.v"})
    for (const auto& e : trainer->parameters().entries()) {
      const StoredTensor& t = file.at(std::string(role) + "/" + e.name);
      EXPECT_EQ(t.shape, std::vector<int64_t>(e.dims.begin(), e.dims.end()));
      Tensor expected = trainer->parameters().role(role).view(e);
      EXPECT_TRUE(same_bits(reader.tensor(role, e.name), expected)) << role << " " << e.name;
      EXPECT_EQ(file.bytes(t), std::string_view(expected.data_as<char>(), size_t(expected.bytes())));
      ++tensors;
    }
  EXPECT_EQ(file.tensors().size(), tensors);
  EXPECT_EQ(int64_t(file.bytes(file.tensors()[0]).size()), file.tensors()[0].bytes());
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { reader.tensor("master", "none"); }), {"no master of none"}));
  std::string manifest = text_of(latest().folder + "/manifest.json");
  EXPECT_EQ(text_of(dir() + "/latest"),
            "step_00000002 " + checksum_text(read_manifest_text(latest().folder + "/manifest.json").checksum) + "\n");
}

TEST_F(Checkpointing, MemoryForTheCopyIsKnownBeforehand) {
  auto trainer = trainer_of({});
  TrainerOptions o;
  o.device = DeviceType::meta;
  Trainer meta(RunSetting{}.model, o, make_transformer);
  Checkpoints checkpoints(*trainer, {dir()});
  int64_t bytes = 3 * 4 * trainer->parameters().count();
  EXPECT_EQ(checkpoint_bytes(meta), bytes);
  EXPECT_EQ(checkpoints.staged_bytes(), bytes);
  checkpoints.save(1, {});
  SaveResult r = checkpoints.wait().at(0);
  EXPECT_EQ(r.step, 1);
  EXPECT_EQ(r.bytes, bytes);
  EXPECT_GE(r.stall_ms, 0);
  EXPECT_GT(r.write_ms, 0);
}

TEST_F(Checkpointing, OnlyTheNewestStay) {
  auto trainer = trainer_of({});
  {
    Checkpoints checkpoints(*trainer, {dir(), 2});
    for (int64_t step = 1; step <= 4; ++step) {
      EXPECT_EQ(saved(checkpoints, step), "");
      checkpoints.save(step, {});  // which is there
      EXPECT_TRUE(checkpoints.wait().empty());
    }
  }
  EXPECT_EQ(names(), (std::vector<std::string>{".lock", "latest", "step_00000003", "step_00000004"}));
  Checkpoints checkpoints(*trainer, {dir(), 0, latest().folder});
  EXPECT_EQ(saved(checkpoints, 5), "");
  EXPECT_EQ(saved(checkpoints, 123456789), "");
  EXPECT_EQ(names().size(), 6u);
  EXPECT_EQ(latest().step, 123456789);
}

TEST_F(Checkpointing, OfAnotherRunAreRefused) {
  save_after(2);
  RunSetting wider, deeper, sgd, half;
  wider.model.d_ff = 40;
  deeper.model.layers = 2;
  sgd.optimizer = make_sgd({{.learning_rate = 0.1}, 0.9});
  half.dtype = "fp64";
  EXPECT_TRUE(mentions(refusal(wider), {"step_00000002", "layers.0", "(24, 16)", "(40, 16)"}));
  EXPECT_TRUE(mentions(refusal(deeper), {"step_00000002", "holds no master of layers.1"}));
  EXPECT_TRUE(mentions(refusal(sgd), {"step_00000002", "holds no sgd.momentum"}));
  EXPECT_TRUE(mentions(refusal(half), {"fp32", "fp64", "precision"}));
  fs::remove_all(folder_);
  save_after(2, deeper);
  EXPECT_TRUE(mentions(refusal({}), {"holds master of layers.1", "this run has not"}));
}

TEST_F(Checkpointing, FoldersThatWillNotDoAreRefused) {
  EXPECT_FALSE(latest_checkpoint(dir()));
  auto trainer = trainer_of({});
  auto refused = [&](const CheckpointOptions& o) {
    return error_of(ErrorKind::usage, [&] { Checkpoints checkpoints(*trainer, o); });
  };
  EXPECT_TRUE(mentions(refused({dir() + "/a/b"}), {"/a/b", "parent"}));
  EXPECT_TRUE(mentions(refused({"/proc"}), {"/proc", "choose a folder"}));
  EXPECT_TRUE(mentions(refused({dir(), -1}), {"-1"}));
  {
    Checkpoints first(*trainer, {dir()});
    EXPECT_FALSE(latest_checkpoint(dir()));
    EXPECT_TRUE(mentions(refused({dir()}), {dir(), "another run", fmt::format("process {}", getpid())}));
    EXPECT_EQ(saved(first, 7), "");
  }
  EXPECT_TRUE(mentions(refused({dir()}), {dir(), "step 7", "resume"}));
  EXPECT_TRUE(mentions(refused({dir(), 0, "/elsewhere/step_00000007"}), {dir(), "step 7"}));
  { Checkpoints again(*trainer, {dir(), 0, latest().folder}); }

  // Root may write anywhere, so a child becomes somebody else.
  CheckpointOptions again{dir(), 0, latest().folder};
  fs::permissions(folder_, fs::perms(0555));
  for (int lock : {0444, 0666}) {  // what cannot be made is found out also where the lock can be had
    fs::permissions(folder_ / ".lock", fs::perms(lock));
    pid_t child = fork();
    if (child == 0) {
      if (getuid() == 0 && setuid(65534) != 0) _exit(2);
      _exit(mentions(refused(again), {dir(), "Permission denied", "may write to"}) ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << lock;
  }
}

// A bit of any byte of any file: whoever opens the folder says which file it was, and has changed nothing.
TEST_F(Checkpointing, DamageIsNamed) {
  RunSetting s;
  s.model.d_model = 8, s.model.d_ff = 8;
  auto trainer = save_after(1, s);
  train(*trainer, 1, 2);
  State before = state_of(*trainer);
  fs::path step = folder_ / "step_00000001";
  auto expect_refused = [&](const fs::path& path, const std::string& what) {
    try {
      load_checkpoint(latest(), *trainer);
      ADD_FAILURE() << path << ", " << what << ": nobody noticed";
    } catch (const Error& e) {
      ASSERT_EQ(e.kind(), ErrorKind::usage) << e.what();
      ASSERT_TRUE(mentions(e.what(), {path.filename()})) << what;
    }
  };
  for (const fs::path& path : {folder_ / "latest", step / "manifest.json", step / "rank_0000.safetensors"}) {
    std::string whole = text_of(path);
    size_t apart = 1 + whole.size() / 80;
    for (size_t byte = 0; byte < whole.size(); ++byte) {
      if (byte >= 40 && byte + 40 < whole.size() && byte % apart > 0) continue;
      std::fstream f(path, std::ios::binary | std::ios::in | std::ios::out);
      f.seekp(std::streamoff(byte));
      f.put(char(whole[byte] ^ (1 << byte % 8)));
      f.close();
      expect_refused(path, fmt::format("byte {}", byte));
      f.open(path, std::ios::binary | std::ios::in | std::ios::out);
      f.seekp(std::streamoff(byte));
      f.put(whole[byte]);
    }
    for (size_t length = 0; length < whole.size(); length += 1 + whole.size() / 15) {
      write_text(path, whole.substr(0, length));
      expect_refused(path, fmt::format("{} bytes", length));
    }
    write_text(path, whole + "\n");
    expect_refused(path, "longer");
    fs::rename(path, folder_ / "away");
    if (path.filename() != "latest") expect_refused(path, "gone");
    fs::rename(folder_ / "away", path);
    write_text(path, whole);
  }
  // Another header that says the same.
  std::string whole = text_of(step / "rank_0000.safetensors"), field = "\"dtype\":\"F32\",", changed = whole;
  size_t at = whole.find(field), next = whole.find("\"data_offsets\"", at);
  changed.replace(at, next - at, whole.substr(at + field.size(), next - at - field.size()) + field);
  write_text(step / "rank_0000.safetensors", changed);
  EXPECT_EQ(SafetensorsFile(step / "rank_0000.safetensors").tensors().size(), before.size() - 1);
  expect_refused(step / "rank_0000.safetensors", "header");
  write_text(step / "rank_0000.safetensors", whole);

  EXPECT_TRUE(state_of(*trainer) == before);
  load_checkpoint(latest(), *trainer);  // which is whole again
  EXPECT_TRUE(state_of(*trainer) != before);
}

// Between the first checkpoint and the file that names it a run may end.
TEST_F(Checkpointing, WithoutAPointerTheNewestIsRead) {
  save_after(2);
  fs::remove(folder_ / "latest");
  EXPECT_EQ(latest().step, 2);
  auto trainer = trainer_of({});
  load_checkpoint(latest(), *trainer);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { Checkpoints c(*trainer, {dir()}); }), {"step 2"}));
}

// A manifest may have the right checksum and still be nonsense.
TEST_F(Checkpointing, ManifestsAreNotBelieved) {
  save_after(1);
  std::string path = latest().folder + "/manifest.json", text = text_of(path);
  parse_manifest({text, 0}, path);
  auto refused = [&](const std::string& what, const std::string& by) {
    size_t at = text.find(what);
    if (at == text.npos) return "there is no " + what;
    std::string changed = text;
    changed.replace(at, what.size(), by);
    std::string message = error_of(ErrorKind::usage, [&] { parse_manifest({changed, 0}, path); });
    EXPECT_TRUE(mentions(message, {path})) << message;
    return message;
  };
  EXPECT_TRUE(mentions(refused("sinter checkpoint", "another"), {"not the manifest"}));
  EXPECT_TRUE(mentions(refused("\"version\": 1", "\"version\": 2"), {"version 2"}));
  EXPECT_TRUE(mentions(refused("\"step\": 1", "\"step\": -1"), {"step", "-1"}));
  EXPECT_TRUE(mentions(refused("\"step\": 1", "\"step\": 1e3"), {"step"}));
  EXPECT_TRUE(mentions(refused("\"step\"", "\"stop\""), {"no \"step\""}));
  EXPECT_TRUE(mentions(refused("rank_0000.safetensors", "../../etc/passwd"), {"files[0], name"}));
  EXPECT_TRUE(mentions(refused("\"file\": 0", "\"file\": 1"), {"tensors[0], pieces[0], file", "1"}));
  EXPECT_TRUE(mentions(refused("\"begin\": 0", "\"begin\": 1"), {"pieces[0]", "[1, "}));
  EXPECT_TRUE(mentions(refused("\"end\": 304", "\"end\": 303"), {"303 of its 304"}));
  EXPECT_TRUE(mentions(refused("\"end\": 304", "\"end\": 305"), {"305"}));
  EXPECT_TRUE(mentions(refused("\"dtype\": \"F32\"", "\"dtype\": \"I64\""), {"I64"}));
  EXPECT_TRUE(mentions(refused("\"dtype\": \"F32\"", "\"dtype\": 5"), {"not a text"}));
  EXPECT_TRUE(mentions(refused("\"xxh3\": \"", "\"xxh3\": \"x"), {"no checksum"}));
  EXPECT_TRUE(mentions(refused("\"role\": \"adamw.m\"", "\"role\": \"master\""), {"there twice"}));
  EXPECT_TRUE(mentions(refused("\"files\": [", "\"files\": 7, \"x\": ["), {"files is not a list"}));
  EXPECT_TRUE(mentions(refused("19,\n", "9223372036854775807,\n"), {"too large"}));
}

}  // namespace
}  // namespace sinter
