// Between exchange.cpp, which queues, and exchange.cu, which has the kernels.
#pragma once
#include <cuda_runtime_api.h>

#include "backend/cuda/exchange.h"

namespace sinter::cuda {

struct ProgressWords {  // in the host's memory
  uint32_t current;     // an id; `past` is added when it no longer counts as unfinished
  uint64_t finished;
  uint64_t* on_device;  // what `finished` is copied from
};
constexpr uint32_t past = 1u << 31;

struct ExchangeArgs {
  CollectiveKind kind;
  int rank, ranks, root;
  int64_t elements;
  double factor;
  char* at[max_exchange_ranks];  // every rank's numbers that others see
  char* out;                     // of what is not written where they are
  uint32_t id;
  volatile ProgressWords* progress;
  uint64_t* count;  // on the device: collectives that are past
};
void exchange(const ExchangeArgs& args, DType dtype, cudaStream_t stream);
void about_to_free(const Memory& memory);  // tells those who listen
void count(uint64_t* device_count, volatile ProgressWords* progress, cudaStream_t stream);

}  // namespace sinter::cuda
