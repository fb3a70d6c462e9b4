// Between tensors and the host's memory.
#include "core/half.h"
#include "ops/ops.h"

namespace sinter {

Tensor from_host(const void* data, const Dims& dims, DType dtype, DeviceType device) {
  refuse_while_tracing("values from the host are wanted");
  Tensor t = empty(dims, dtype, device);
  backend_of(device).copy_from_host(t.data(), data, size_t(t.bytes()), current_stream(device));
  return t;
}

template <class T> Tensor from_vector(const std::vector<T>& values, const Dims& dims, DeviceType device) {
  constexpr DType type = std::is_same_v<T, double>    ? DType::f64
                         : std::is_same_v<T, float>   ? DType::f32
                         : std::is_same_v<T, int64_t> ? DType::i64
                                                      : DType::i32;
  check(int64_t(values.size()) == dims.numel(), "from_vector: {} values for shape {}", values.size(), dims);
  return from_host(values.data(), dims, type, device);
}
template Tensor from_vector(const std::vector<double>&, const Dims&, DeviceType);
template Tensor from_vector(const std::vector<float>&, const Dims&, DeviceType);
template Tensor from_vector(const std::vector<int64_t>&, const Dims&, DeviceType);
template Tensor from_vector(const std::vector<int32_t>&, const Dims&, DeviceType);

void write_host(const Tensor& to, const std::vector<double>& values) {
  check(int64_t(values.size()) == to.numel() && to.is_contiguous() &&
            (to.dtype() == DType::f64 || to.dtype() == DType::f32),
        "write_host: {} values do not fit a {} tensor of shape {}", values.size(), name_of(to.dtype()), to.dims());
  refuse_while_tracing("values from the host are wanted");
  auto write = [&](const void* data) {
    backend_of(to.device()).copy_from_host(to.data(), data, size_t(to.bytes()), current_stream(to.device()));
  };
  if (to.dtype() == DType::f64) write(values.data());
  else write(std::vector<float>(values.begin(), values.end()).data());
  to.bump_version();
}

Tensor to(const Tensor& x, DeviceType device) {
  if (x.device() == device) return x;
  refuse_while_tracing("a tensor is moved to another device");
  NoGrad off;
  Tensor c = contiguous(x);
  if (device == DeviceType::meta || x.device() == DeviceType::meta) return empty(x.dims(), x.dtype(), device);
  std::vector<char> bytes(size_t(c.bytes()));
  backend_of(x.device()).copy_to_host(bytes.data(), c.data(), bytes.size(), current_stream(x.device()));
  return from_host(bytes.data(), x.dims(), x.dtype(), device);
}

std::vector<double> to_vector(const Tensor& x) {
  refuse_while_tracing("a tensor's value is wanted on the host");
  NoGrad off;
  check(x.device() != DeviceType::meta, "a value is needed on the host, but the meta device computes none");
  Tensor c = to(contiguous(x), DeviceType::cpu);
  std::vector<double> v(size_t(c.numel()));
  for (size_t i = 0; i < v.size(); ++i) switch (c.dtype()) {
      case DType::f64: v[i] = c.data_as<double>()[i]; break;
      case DType::f32: v[i] = c.data_as<float>()[i]; break;
      case DType::bf16: v[i] = to_float(c.data_as<bf16>()[i]); break;
      case DType::f16: v[i] = to_float(c.data_as<f16>()[i]); break;
      case DType::i64: v[i] = double(c.data_as<int64_t>()[i]); break;
      case DType::i32: v[i] = c.data_as<int32_t>()[i]; break;
      case DType::u8:
      case DType::boolean: v[i] = c.data_as<uint8_t>()[i]; break;
    }
  return v;
}

double item(const Tensor& x) {
  check(x.numel() == 1, "item: the tensor has {} elements, not one", x.numel());
  return to_vector(x)[0];
}

}  // namespace sinter
