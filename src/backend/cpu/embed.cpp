// Lookup of rows, and its gradient: rows added up by index.
#include <cmath>

#include "backend/cpu/strips.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

template <class A> void forward(const KernelCall& call) {
  Rows table = rows_of(call.in[0]), y = rows_of(call.out[0]);
  parallel_for(numel(call.in[1]), rows_per_range(table.d), [&](int64_t begin, int64_t end) {
    A* spare = buffer<A>(0, table.d);
    for (int64_t i = begin; i < end; ++i) {
      int64_t id = index_at(call.in[1], i);
      bool known = id >= 0 && id < table.n;
      if (!known)
        for (int64_t j = 0; j < table.d; ++j) spare[j] = A(NAN);
      const A* row = known ? read_row(table, id, spare) : spare;
      store_strip(y.at(i), y.dtype, y.d, 1, row, false);
    }
  });
}

// The positions of each index below `rows`, in order: those of row r are order[first[r] .. first[r + 1]). A counting
// sort, so that a table row is the business of one thread alone and its sum is always taken in the same order.
struct Positions {
  int64_t *first, *order;

  Positions(const TensorRef& ids, int64_t rows) {
    int64_t n = numel(ids);
    first = buffer<int64_t>(cpu::call_slot, rows + 2);
    order = buffer<int64_t>(cpu::call_slot + 1, n);
    __builtin_memset(first, 0, size_t(rows + 2) * sizeof(int64_t));
    auto known = [&](int64_t i) { return index_at(ids, i) >= 0 && index_at(ids, i) < rows; };
    for (int64_t i = 0; i < n; ++i)
      if (known(i)) ++first[index_at(ids, i) + 2];
    for (int64_t r = 2; r < rows + 2; ++r) first[r] += first[r - 1];
    for (int64_t i = 0; i < n; ++i)
      if (known(i)) order[first[index_at(ids, i) + 1]++] = i;
  }
};

template <class A> void backward(const KernelCall& call) {
  const TensorRef& ids = call.in[0];
  Rows dy = rows_of(call.in[1]), dtable = rows_of(call.out[0]);
  bool accumulate = call.accumulates(0);
  Positions positions(ids, dtable.n);
  parallel_for(dtable.n, max_of<int64_t>(1, rows_per_range(dtable.d)), [&](int64_t begin, int64_t end) {
    A* spare = buffer<A>(0, dtable.d);
    for (int64_t r = begin; r < end; ++r) {
      A* sum = reinterpret_cast<A*>(dtable.at(r));
      int64_t i = positions.first[r], last = positions.first[r + 1];
      if (!accumulate) {
        if (i == last) __builtin_memset(sum, 0, size_t(dtable.d) * sizeof(A));
        else load_strip(sum, dy.at(positions.order[i++]), dy.dtype, dtable.d, 1);
      }
      for (; i < last; ++i) {
        const A* more = read_row(dy, positions.order[i], spare);
#pragma omp simd
        for (int64_t j = 0; j < dtable.d; ++j) sum[j] += more[j];
      }
    }
  });
}

}  // namespace

void embedding(const KernelCall& call) {
  bool is_double = call.in[0].dtype == DType::f64;
  with_compute_type(is_double, [&]<class A>() { forward<A>(call); });
}
void embedding_backward(const KernelCall& call) {
  with_compute_type(call.out[0].dtype == DType::f64, [&]<class A>() { backward<A>(call); });
}

}  // namespace sinter::SINTER_CPU_ISA
