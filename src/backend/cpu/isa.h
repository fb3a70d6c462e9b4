// Note [Two instruction sets]
// The kernel files of this folder are compiled twice: for x86-64-v3 (AVX2, FMA) with SINTER_CPU_ISA=cpu_v3 and for
// x86-64-v4 (AVX-512) with SINTER_CPU_ISA=cpu_v4. device.cpp picks one table when the program starts, so one binary is
// fast on both kinds of machine without a line of intrinsics in most kernels.
//
// The danger is the linker. An inline function or a template that two object files emit out of line is kept once, and
// that may be the AVX-512 copy: an old machine would then die in, say, std::string. So a kernel file
//   - keeps everything it defines in namespace sinter::SINTER_CPU_ISA or in an anonymous one,
//   - uses no std:: templates, and from shared headers only plain data and functions that are always inlined,
//   - calls the generic half (support.h, thread_pool.h, gemm.h; compiled once, for any x86-64) for all the rest.
// tools/check_isa_symbols.sh looks at the objects and refuses any other weak symbol.
#pragma once
#include "backend/kernels.h"

#ifndef SINTER_CPU_ISA
#error "kernel files are compiled with -DSINTER_CPU_ISA=cpu_v3 or cpu_v4"
#endif

namespace sinter::SINTER_CPU_ISA {

#define KERNEL(name) void name(const KernelCall& call);
#include "backend/kernels.def"
#undef KERNEL

const KernelTable& table();

}  // namespace sinter::SINTER_CPU_ISA
