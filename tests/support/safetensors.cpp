#include "support/safetensors.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace sinter {

std::map<std::string, Tensor> read_safetensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  check(bool(file), "cannot read {}; tools/make_torch_fixture.py writes it", path);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  auto header = nlohmann::json::parse(bytes.substr(8, length));
  std::map<std::string, Tensor> tensors;
  for (auto& [name, entry] : header.items()) {
    std::string kind = entry["dtype"];
    DType type = kind == "F64" ? DType::f64 : kind == "F32" ? DType::f32 : DType::i64;
    Dims dims;
    for (int64_t n : entry["shape"]) dims.push_back(n);
    uint64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    check(int64_t(end - begin) == dims.numel() * size_of(type), "{}: {} has the wrong size", path, name);
    tensors[name] = from_host(bytes.data() + 8 + length + begin, dims, type, DeviceType::cpu);
  }
  return tensors;
}

std::string fixture_path(const std::string& file) { return std::string(SINTER_SOURCE_DIR) + "/tests/fixtures/" + file; }

}  // namespace sinter
