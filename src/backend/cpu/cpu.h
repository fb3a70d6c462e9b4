// Facts about the CPU backend, for `sinter doctor`, records and the cache of measured peaks. Of these only
// openblas_lags() changes what is computed: which kernel multiplies (gemm.cpp).
#pragma once
#include <string>

namespace sinter {

std::string cpu_isa_name();              // "x86-64-v4 (AVX-512)": the kernels in use
std::string openblas_description();      // version, build options and the core it runs as
bool openblas_lags();                    // it runs as a core without AVX2, which our kernels have at least
std::string cpu_products_description();  // which GEMMs our own kernel computes, which OpenBLAS does, and why

}  // namespace sinter
