// Who computes fp32 GEMMs of the CPU, for as long as it lives.
#pragma once
#include "backend/cpu/gemm.h"

namespace sinter {

struct ProductsBy {
  cpu::Products before = cpu::products();
  explicit ProductsBy(cpu::Products who) { cpu::set_products(who); }
  ~ProductsBy() { cpu::set_products(before); }
};

}  // namespace sinter
