// What a generated kernel is called with. Part of its source, and of ours: no #include.
#ifndef SINTER_BACKEND_CUDA_FUSED_ARGS_H
#define SINTER_BACKEND_CUDA_FUSED_ARGS_H

namespace sinter::cuda {

struct FusedArgs {
  const void* in[8];
  void* out[4];
  long long in_stride[8], out_stride[4];  // from row to row, in elements
  long long n;                            // elements, or rows
  float* partial;                         // of sums over all rows: [sum][block][column]
  int vectors;                            // every operand of a program of elements is aligned for vector accesses
};

}  // namespace sinter::cuda

#endif
