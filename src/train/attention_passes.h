// What a choice of attention means to the compiler.
#pragma once
#include "compile/compiled.h"
#include "nn/attention.h"

namespace sinter {

// A run that asks for naive attention gets it, compiled too: the pass that would make flash of it is switched off.
// Where none is asked for (auto), attention that a model spells out itself may become flash.
inline compile::CompileOptions with_attention(compile::CompileOptions options, const AttentionOptions& attention) {
  if (attention.kind == AttentionKind::naive) options.without.emplace_back("flash");
  options.deterministic = options.deterministic || attention.deterministic;
  return options;
}

}  // namespace sinter
