// Tensors in a file, as the safetensors format has them: the length of a header in eight bytes, the header in JSON, and
// the tensors' bytes, one after the other. A file that is read may be anything, so it is believed only once all that
// the format promises has been found to hold.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "system/files.h"

namespace sinter {

struct StoredTensor {
  std::string name;
  std::string type;                 // "F32"
  std::vector<int64_t> shape = {};  // empty: a scalar
  int64_t begin = 0, end = 0;       // bytes, counted from the end of the header

  int64_t bytes() const { return end - begin; }
};

// F64 F32 BF16 F16 I64 U64 I32 U32 I16 U16 I8 U8 BOOL
int safetensors_width(std::string_view type);                      // bytes of an element; 0: not one of these
const char* safetensors_type(DType dtype);                         // what a type of ours is called there …
std::optional<DType> dtype_of_safetensors(std::string_view type);  // … and back, where we have it

// A file to read, mapped into memory: what nobody asks for is not read. Tensors' bytes need not be aligned.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in the order of their bytes
  const StoredTensor* find(std::string_view name) const;                 // null: there is none
  const StoredTensor& at(std::string_view name) const;                   // refuses it
  std::string_view bytes(const StoredTensor& t) const { return data().substr(size_t(t.begin), size_t(t.bytes())); }
  std::string_view head() const { return all_.substr(0, head_bytes_); }  // all that comes before the tensors' bytes
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::string_view data() const { return all_.substr(head_bytes_); }
  void read_head();

  std::string path_;
  std::string_view all_;
  size_t head_bytes_ = 0;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;  // places in tensors_
  std::map<std::string, std::string> metadata_;
};

// Writes a new file from tensors that are declared first, so that their bytes need never be in memory together. One
// that is not finished is removed.
class SafetensorsWriter {
 public:
  // Names, types and shapes; where the bytes lie is settled here. A file that exists is left alone, and refused.
  SafetensorsWriter(const std::string& path, std::vector<StoredTensor> tensors,
                    const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in the order in which they are written
  void write(std::string_view bytes);                                    // the next ones, of any number of tensors
  void finish(Durable durable = Durable::yes);

  // The order of the format's own writer, and where the bytes lie then: wide elements first, so that all are aligned.
  static std::vector<StoredTensor> laid_out(std::vector<StoredTensor> tensors);
  static std::string head_of(const std::vector<StoredTensor>& laid_out,
                             const std::map<std::string, std::string>& metadata = {});

 private:
  std::string path_;
  std::vector<StoredTensor> tensors_;
  std::string head_;
  int64_t left_ = 0;  // bytes to be written yet
  Descriptor file_;
  bool finished_ = false;
};

}  // namespace sinter
