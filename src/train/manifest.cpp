#include "train/manifest.h"

#include <cstdlib>
#include <limits>
#include <set>

#include "core/check.h"
#include "system/checksum.h"
#include "system/safetensors.h"

namespace sinter {
namespace {

constexpr const char* format = "sinter checkpoint";
constexpr int64_t version = 1;

// Where the sum stands in the text: it is the last field.
std::string ending(uint64_t sum) { return fmt::format(",\n  \"xxh3\": \"{}\"\n}}\n", checksum_text(sum)); }

// Reading, with the place in the manifest for messages.
class Field {
 public:
  Field(const Json& value, std::string place) : value_(value), place_(std::move(place)) {}

  Field operator[](const char* name) const {
    check(value_.is_object() && value_.contains(name), "{} has no \"{}\"", place_, name);
    return {value_[name], place_ + ", " + name};
  }
  std::vector<Field> list() const {
    check(value_.is_array(), "{} is not a list", place_);
    std::vector<Field> all;
    for (const Json& v : value_) all.emplace_back(v, fmt::format("{}[{}]", place_, all.size()));
    return all;
  }
  std::string text() const {
    check(value_.is_string(), "{} is not a text", place_);
    return value_.get<std::string>();
  }
  int64_t whole(int64_t limit = std::numeric_limits<int64_t>::max()) const {  // 0 … limit
    check(value_.is_number_unsigned() && limit >= 0 && value_.get<uint64_t>() <= uint64_t(limit),
          "{} is {}, not a number up to {}", place_, value_.dump(), limit);
    return value_.get<int64_t>();
  }
  uint64_t sum() const {
    std::string digits = text();
    check(digits.size() == 16 && digits.find_first_not_of("0123456789abcdef") == digits.npos, "{} is no checksum",
          place_);
    return std::strtoull(digits.c_str(), nullptr, 16);
  }
  double real() const {  // as a text, which infinity has too
    std::string digits = text();
    char* end = nullptr;
    double x = std::strtod(digits.c_str(), &end);
    check(!digits.empty() && *end == '\0', "{} is {}, not a number", place_, digits);
    return x;
  }
  const std::string& place() const { return place_; }

 private:
  const Json& value_;
  std::string place_;
};

Manifest::Stored read_stored(const Field& f, size_t files) {
  Manifest::Stored t;
  t.role = f["role"].text(), t.name = f["name"].text();
  std::string type = f["dtype"].text();
  std::optional<DType> dtype = dtype_of_safetensors(type);
  check(dtype && is_float(*dtype), "{} is of type {}, and no parameter is", f.place(), type);
  t.dtype = *dtype;
  std::vector<Field> shape = f["shape"].list();
  check(shape.size() <= size_t(max_rank), "{} has {} dimensions", f.place(), shape.size());
  int64_t elements = 1;
  for (const Field& d : shape) {
    t.dims.push_back(d.whole());
    check(!__builtin_mul_overflow(elements, t.dims[t.dims.rank() - 1], &elements), "{} is too large", f.place());
  }
  int64_t at = 0;
  for (const Field& p : f["pieces"].list()) {
    Manifest::Piece piece{int(p["file"].whole(int64_t(files) - 1)), p["begin"].whole(), p["end"].whole(elements),
                          p["xxh3"].sum()};
    check(piece.begin == at && piece.begin < piece.end, "{} has the elements [{}, {}), and {} came before it",
          p.place(), piece.begin, piece.end, at);
    at = piece.end;
    t.pieces.push_back(piece);
  }
  check(at == elements, "{} has pieces for {} of its {} elements", f.place(), at, elements);
  return t;
}

}  // namespace

const Manifest::Stored* Manifest::find(const std::string& role, const std::string& name) const {
  for (const Stored& t : tensors)
    if (t.role == role && t.name == name) return &t;
  return nullptr;
}

std::string name_in_file(const Manifest::Stored& t, const Manifest::Piece& p) {
  bool all = p.begin == 0 && p.end == t.dims.numel();
  return t.role + "/" + t.name + (all ? "" : fmt::format("[{}:{}]", p.begin, p.end));
}

ManifestText text_of(const Manifest& m) {
  Json j = {{"format", format}, {"version", version}, {"step", m.step}, {"config", m.config}};
  Json state = Json::array(), files = Json::array(), tensors = Json::array();
  for (double x : m.optimizer_state) state.push_back(fmt::format("{}", x));  // exact, and infinity is one
  for (const Manifest::File& f : m.files)
    files.push_back({{"name", f.name}, {"bytes", f.bytes}, {"head_xxh3", checksum_text(f.head_checksum)}});
  for (const Manifest::Stored& t : m.tensors) {
    Json shape = Json::array(), pieces = Json::array();
    for (int64_t n : t.dims) shape.push_back(n);
    for (const Manifest::Piece& p : t.pieces)
      pieces.push_back({{"file", p.file}, {"begin", p.begin}, {"end", p.end}, {"xxh3", checksum_text(p.checksum)}});
    tensors.push_back({{"role", t.role},
                       {"name", t.name},
                       {"dtype", safetensors_type(t.dtype)},
                       {"shape", shape},
                       {"pieces", pieces}});
  }
  j["optimizer_state"] = state, j["files"] = files, j["tensors"] = tensors;
  std::string text = j.dump(2);
  text.resize(text.size() - 2);  // "\n}"
  uint64_t sum = checksum(text);
  return {text + ending(sum), sum};
}

ManifestText read_manifest_text(const std::string& path) {
  std::string text = json_text_of(path);
  size_t length = ending(0).size();
  check(text.size() > length, "{}: has {} bytes; it is cut off, or no manifest", path, text.size());
  uint64_t sum = checksum(std::string_view(text).substr(0, text.size() - length));
  check(text.ends_with(ending(sum)), "{}: is damaged: its last line should be the checksum of the rest, {}", path,
        checksum_text(sum));
  return {std::move(text), sum};
}

Manifest parse_manifest(const ManifestText& text, const std::string& path) {
  Json j = parse_json(text.text, path);
  Field all(j, path + ": the manifest");
  check(all["format"].text() == format, "{}: is not the manifest of a checkpoint", path);
  check(all["version"].whole() == version,
        "{}: is of version {}, and this sinter reads version {}; use the one that {}", path, all["version"].whole(),
        version, "wrote it");
  Manifest m;
  m.step = all["step"].whole();
  all["config"];
  m.config = j["config"];
  for (const Field& x : all["optimizer_state"].list()) m.optimizer_state.push_back(x.real());
  for (const Field& f : all["files"].list()) {
    Manifest::File file{f["name"].text(), f["bytes"].whole(), f["head_xxh3"].sum()};
    check(!file.name.empty() && file.name.find('/') == file.name.npos && file.name[0] != '.',
          "{} is not the name of a file in the checkpoint", f["name"].place());
    m.files.push_back(std::move(file));
  }
  std::set<std::pair<std::string, std::string>> names;
  for (const Field& t : all["tensors"].list()) {
    m.tensors.push_back(read_stored(t, m.files.size()));
    check(names.emplace(m.tensors.back().role, m.tensors.back().name).second, "{} is there twice", t.place());
  }
  return m;
}

}  // namespace sinter
