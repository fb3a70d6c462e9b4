#pragma once
#include <cstdint>

namespace sinter {

// meta runs shapes, allocator and tape without memory or kernels: the tracer's input and the memory predictor.
enum class DeviceType : uint8_t { cpu, cuda, meta };
constexpr int device_type_count = 3;

constexpr const char* name_of(DeviceType t) {
  return t == DeviceType::cpu ? "cpu" : t == DeviceType::cuda ? "cuda" : "meta";
}

}  // namespace sinter
