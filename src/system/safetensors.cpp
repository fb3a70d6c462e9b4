#include "system/safetensors.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/ranges.h>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "core/check.h"
#include "core/json_string.h"
#include "system/json.h"

namespace sinter {
namespace {

static_assert(std::endian::native == std::endian::little, "the format's numbers are little-endian");

constexpr uint64_t longest_header = 100'000'000;
constexpr size_t length_bytes = 8;

struct Type {
  const char* name;
  int width;
  std::optional<DType> dtype = {};
};
const Type types[] = {{"F64", 8, DType::f64},
                      {"F32", 4, DType::f32},
                      {"BF16", 2, DType::bf16},
                      {"F16", 2, DType::f16},
                      {"I64", 8, DType::i64},
                      {"U64", 8},
                      {"I32", 4, DType::i32},
                      {"U32", 4},
                      {"I16", 2},
                      {"U16", 2},
                      {"I8", 1},
                      {"U8", 1, DType::u8},
                      {"BOOL", 1, DType::boolean}};

const Type* type_named(std::string_view name) {
  for (const Type& t : types)
    if (t.name == name) return &t;
  return nullptr;
}

// How many bytes a tensor of this shape takes; nothing where that is more than any file has.
std::optional<int64_t> bytes_of(const StoredTensor& t) {
  int64_t n = safetensors_width(t.type);
  for (int64_t d : t.shape)
    if (d < 0 || __builtin_mul_overflow(n, d, &n)) return {};
  return n;
}

// The header as it is read, key by key: nothing is built of it but tensors, so a hostile one costs no more memory than
// its own size.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(const std::string& path) : path_(path) {}
  std::vector<StoredTensor> tensors;
  std::map<std::string, std::string> metadata;

  bool start_object(size_t) override {
    check(depth_ <= 1, "{}: the header: {} holds an object; a tensor has {}", path_, where(), fields);
    ++depth_;
    return true;
  }
  bool end_object() override {
    if (--depth_ != 1 || in_metadata()) return true;
    for (const char* field : {"dtype", "shape", "data_offsets"})
      check(seen_.contains(field), "{}: the header: tensor {} has no {}", path_, name_, field);
    check(offsets_.size() == 2, "{}: the header: tensor {} has {} data_offsets, not 2", path_, name_, offsets_.size());
    now_.name = name_;
    now_.begin = offsets_[0], now_.end = offsets_[1];
    tensors.push_back(std::move(now_));
    return true;
  }
  bool key(string_t& key) override {
    if (depth_ == 1) {
      check(names_.insert(key).second, "{}: the header has {} twice", path_, key);
      name_ = key;
      seen_.clear();
      now_ = {};
      offsets_.clear();
    } else {
      check(seen_.insert(key).second, "{}: the header: {} has {} twice", path_, name_, key);
      check(in_metadata() || key == "dtype" || key == "shape" || key == "data_offsets",
            "{}: the header: tensor {} has a field {}; a tensor has {}", path_, name_, key, fields);
    }
    key_ = key;
    return true;
  }
  bool start_array(size_t) override {
    check(depth_ == 2 && !in_list_ && (key_ == "shape" || key_ == "data_offsets") && !in_metadata(),
          "{}: the header: {} holds a list; a tensor has {}", path_, where(), fields);
    return in_list_ = true;
  }
  bool end_array() override { return in_list_ = false, true; }
  bool string(string_t& value) override {
    if (depth_ == 2 && in_metadata()) return metadata[key_] = value, true;
    if (depth_ != 2 || key_ != "dtype") return refuse("a text");
    check(safetensors_width(value) > 0, "{}: the header: tensor {} is of type {}, which sinter does not read", path_,
          name_, value);
    now_.type = value;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (!in_list_) return refuse("a number");
    check(value <= INT64_MAX, "{}: the header: tensor {} has {} in its {}, more than any file holds", path_, name_,
          value, key_);
    (key_ == "shape" ? now_.shape : offsets_).push_back(int64_t(value));
    return true;
  }
  bool number_integer(number_integer_t) override { return refuse("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return refuse("a number that is not whole"); }
  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("true or false"); }
  bool binary(binary_t&) override { return refuse("bytes"); }
  bool parse_error(size_t at, const std::string&, const Json::exception& e) override {
    fail_with(ErrorKind::usage, "{}: the header is not valid JSON, at byte {} of the file: {}", path_,
              length_bytes + at, message_of(e));
  }

 private:
  static constexpr const char* fields = "dtype, shape and data_offsets";
  bool in_metadata() const { return name_ == "__metadata__"; }
  std::string where() const { return name_.empty() ? "the first level" : name_ + (depth_ == 2 ? ", " + key_ : ""); }
  bool refuse(const char* what) const {
    fail_with(ErrorKind::usage, "{}: the header: {} is {}; a tensor has {}, and __metadata__ texts", path_, where(),
              what, fields);
  }

  const std::string& path_;
  int depth_ = 0;
  bool in_list_ = false;
  std::string name_, key_;
  StoredTensor now_;
  std::vector<int64_t> offsets_;
  std::set<std::string> names_, seen_;  // of the header, of the object inside it
};

[[noreturn]] void fail_writing(const std::string& path) {
  fail_with(ErrorKind::other, "{}: writing failed ({})", path, std::strerror(errno));
}

}  // namespace

int safetensors_width(std::string_view type) {
  const Type* t = type_named(type);
  return t ? t->width : 0;
}

const char* safetensors_type(DType dtype) {
  for (const Type& t : types)
    if (t.dtype == dtype) return t.name;
  return "?";
}

std::optional<DType> dtype_of_safetensors(std::string_view type) {
  const Type* t = type_named(type);
  return t ? t->dtype : std::nullopt;
}

// ---- reading -----------------------------------------------------------------------------------------------------

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  check(file.get() >= 0, "{}: cannot be opened ({}); check the path", path, std::strerror(errno));
  struct stat s;
  check(fstat(file.get(), &s) == 0, "{}: cannot be read ({})", path, std::strerror(errno));
  check(S_ISREG(s.st_mode), "{}: is not a file of its own ({}); name a .safetensors file", path,
        S_ISDIR(s.st_mode) ? "but a folder" : "but a pipe or a device");
  check(size_t(s.st_size) > length_bytes, "{}: has {} bytes; a safetensors file begins with the length of its header",
        path, s.st_size);
  void* all = mmap(nullptr, size_t(s.st_size), PROT_READ, MAP_PRIVATE, file.get(), 0);
  check(all != MAP_FAILED, "{}: cannot be mapped into memory ({})", path, std::strerror(errno));
  all_ = {static_cast<const char*>(all), size_t(s.st_size)};
  try {
    read_head();
  } catch (...) {
    munmap(all, all_.size());
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() { munmap(const_cast<char*>(all_.data()), all_.size()); }

void SafetensorsFile::read_head() {
  uint64_t length = 0;
  std::memcpy(&length, all_.data(), length_bytes);
  check(length <= longest_header,
        "{}: says that its header has {} bytes, and safetensors allows {}; is it another kind "
        "of file?",
        path_, length, longest_header);
  check(length <= all_.size() - length_bytes, "{}: is cut off in its header, which has {} bytes; the file has {}",
        path_, length, all_.size());
  head_bytes_ = length_bytes + size_t(length);
  std::string_view text = all_.substr(length_bytes, size_t(length));
  check(text.starts_with('{'), "{}: the header does not begin with {{ at byte {}", path_, length_bytes);
  if (size_t nul = text.find('\0'); nul != text.npos)  // where the parser would take the text to end
    fail_with(ErrorKind::usage, "{}: the header is not text: byte {} of the file is 0", path_, length_bytes + nul);
  HeaderReader reader(path_);
  Json::sax_parse(text.begin(), text.end(), &reader);
  tensors_ = std::move(reader.tensors);
  metadata_ = std::move(reader.metadata);

  std::sort(tensors_.begin(), tensors_.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  int64_t at = 0;
  for (const StoredTensor& t : tensors_) {
    check(t.begin == at && t.end >= t.begin,
          "{}: tensor {} has the bytes [{}, {}), but the one before it ends at {}; they should follow each other",
          path_, t.name, t.begin, t.end, at);
    std::optional<int64_t> bytes = bytes_of(t);
    check(bytes == t.bytes(), "{}: tensor {} has {} bytes; its shape ({}) and type {} ask for {}", path_, t.name,
          t.bytes(), fmt::join(t.shape, ", "), t.type, bytes ? std::to_string(*bytes) : "more than any file holds");
    by_name_[t.name] = size_t(&t - tensors_.data());
    at = t.end;
  }
  check(uint64_t(at) == data().size(),
        "{}: its tensors have {} bytes after a header of {}, and the file has {}, not {}", path_, at, length,
        all_.size(), head_bytes_ + size_t(at));
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  auto known = by_name_.find(name);
  return known == by_name_.end() ? nullptr : &tensors_[known->second];
}

const StoredTensor& SafetensorsFile::at(std::string_view name) const {
  const StoredTensor* t = find(name);
  check(t, "{}: has no tensor {}", path_, name);
  return *t;
}

// ---- writing -----------------------------------------------------------------------------------------------------

std::vector<StoredTensor> SafetensorsWriter::laid_out(std::vector<StoredTensor> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    int wa = safetensors_width(a.type), wb = safetensors_width(b.type);
    return wa != wb ? wa > wb : a.name < b.name;
  });
  int64_t at = 0;
  std::set<std::string_view> names;
  for (StoredTensor& t : tensors) {
    std::optional<int64_t> bytes = bytes_of(t);
    check(names.insert(t.name).second && t.name != "__metadata__", "safetensors has no place for {} tensor called {}",
          t.name == "__metadata__" ? "a" : "a second", t.name);
    t.begin = at;
    check(safetensors_width(t.type) > 0 && bytes && !__builtin_add_overflow(at, *bytes, &at),
          "safetensors has no tensor {} of type {} and shape ({})", t.name, t.type, fmt::join(t.shape, ", "));
    t.end = at;
  }
  return tensors;
}

std::string SafetensorsWriter::head_of(const std::vector<StoredTensor>& tensors,
                                       const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  auto key = [&](std::string_view name) {
    if (text.back() != '{') text += ',';
    append_json_string(text, name);
    text += ':';
  };
  if (!metadata.empty()) {
    key("__metadata__");
    text += '{';
    for (const auto& [name, value] : metadata) {
      key(name);
      append_json_string(text, value);
    }
    text += '}';
  }
  for (const StoredTensor& t : tensors) {
    key(t.name);
    text += fmt::format(R"({{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", t.type, fmt::join(t.shape, ","),
                        t.begin, t.end);
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  uint64_t length = text.size();
  check(length <= longest_header, "a safetensors header of {} bytes; the format allows {}", length, longest_header);
  return std::string(reinterpret_cast<const char*>(&length), length_bytes) + text;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<StoredTensor> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path),
      tensors_(laid_out(std::move(tensors))),
      head_(head_of(tensors_, metadata)),
      left_(tensors_.empty() ? 0 : tensors_.back().end),
      file_(open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666)) {
  check(file_.get() >= 0, "{}: cannot be made ({})", path, std::strerror(errno));
  if (written(file_.get(), head_)) return;
  int error = errno;
  unlink(path.c_str());
  errno = error;
  fail_writing(path);
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!finished_) unlink(path_.c_str());
}

void SafetensorsWriter::write(std::string_view bytes) {
  check(int64_t(bytes.size()) <= left_, "{}: {} bytes are more than the {} that its tensors lack", path_, bytes.size(),
        left_);
  if (!written(file_.get(), bytes)) fail_writing(path_);
  left_ -= int64_t(bytes.size());
}

void SafetensorsWriter::finish(Durable durable) {
  check(left_ == 0, "{}: its tensors lack {} bytes", path_, left_);
  if (durable == Durable::yes && !synced(file_.get())) fail_writing(path_);
  if (!file_.close()) fail_writing(path_);
  finished_ = true;
}

}  // namespace sinter
