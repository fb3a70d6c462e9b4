#include "support/readers.h"

#include <functional>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>

#include "core/check.h"
#include "lab/config_file.h"
#include "lab/measured_steps.h"
#include "lab/network_record.h"
#include "lab/record.h"
#include "lab/view.h"
#include "plan/machine.h"
#include "plan/published.h"
#include "system/safetensors.h"
#include "train/manifest.h"
#include "train/token_file.h"

namespace sinter {
namespace {

// A file that has a path and no place on a disk.
class FileOf {
 public:
  explicit FileOf(std::string_view bytes) : fd_(memfd_create("bytes", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::write(fd_, bytes.data(), bytes.size()) != ssize_t(bytes.size()))
      throw std::runtime_error("no file in memory");
  }
  ~FileOf() { ::close(fd_); }
  FileOf(const FileOf&) = delete;
  FileOf& operator=(const FileOf&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

void promise(bool held, const char* what) {
  if (!held) throw std::logic_error(what);
}

void read_tokens(const std::string& path, TokenFile::Holds holds) {
  TokenFile file(path, holds);
  std::vector<int64_t> ids(size_t(std::min<int64_t>(file.tokens(), 64)));
  file.read(0, ids);
  file.read(file.tokens() - int64_t(ids.size()), ids);
  int64_t largest = file.largest_id();
  for (int64_t id : ids) promise(id >= 0 && id <= largest, "an id is larger than the largest");
  file.check_ids(50257);
}

void read_safetensors(const std::string& path) {
  SafetensorsFile file(path);
  auto laid_out = SafetensorsWriter::laid_out(file.tensors());
  std::string again = SafetensorsWriter::head_of(laid_out, file.metadata());
  for (const StoredTensor& t : laid_out) again += file.bytes(file.at(t.name));
  FileOf copy(again);
  SafetensorsFile read(copy.path());
  promise(read.tensors().size() == laid_out.size() && read.metadata() == file.metadata(),
          "a file changes as it is written and read");
  for (const StoredTensor& t : laid_out)
    promise(read.bytes(read.at(t.name)) == file.bytes(file.at(t.name)), "a tensor changes as it is written and read");
}

// As if its checksum, which the bytes of a fuzzer never have, were right.
void read_manifest(const std::string& path) {
  Manifest m = parse_manifest({json_text_of(path), 0}, path);
  ManifestText text = text_of(m);
  promise(text_of(parse_manifest(text, path)).text == text.text, "a manifest changes as it is written and read");
}

void read_network(const std::string& path) {
  plan::Network n = lab::network_or_record(path);
  for (CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::all_gather})
    for (double bytes : {1.0, 1e9}) promise(n.seconds(kind, bytes, {4, 2}) >= 0, "a collective takes no time");
}

struct Reader {
  const char* name;
  std::function<void(const std::string& path)> read;
};
const Reader readers[] = {
    {"tokens", [](auto& path) { read_tokens(path, TokenFile::Holds::ids); }},
    {"text", [](auto& path) { read_tokens(path, TokenFile::Holds::text); }},
    {"safetensors", read_safetensors},
    {"manifest", read_manifest},
    {"machine", [](auto& path) { plan::machine_json(plan::machine_named(path)); }},
    {"network", read_network},
    {"published", [](auto& path) { plan::read_published(path); }},
    {"config", [](auto& path) { lab::read_config_file(path); }},
    {"record", [](auto& path) { lab::view_of(lab::read_record(path)); }},
    {"steps", [](auto& path) { lab::measured_steps(path, target_of(DeviceType::cpu)); }},
};

}  // namespace

std::vector<std::string> reader_names() {
  std::vector<std::string> names;
  for (const Reader& r : readers) names.emplace_back(r.name);
  return names;
}

std::string read_as(const std::string& name, std::string_view bytes) {
  for (const Reader& r : readers) {
    if (name != r.name) continue;
    FileOf file(bytes);
    try {
      r.read(file.path());
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  throw std::logic_error("no reader is called " + name);
}

}  // namespace sinter
