// An op on whole rows as a program of steps (core/fused.h), which the compiler joins with what stands before and after
// it. Written as gradient rules are: against an interface, once for each op (OpDef::row_program).
#pragma once
#include "core/fused.h"
#include "core/kernel_call.h"

namespace sinter {

enum class Columns : uint8_t { all, left_half, right_half };

// An operand of the call as the program sees it. What varies by row is a statistic, in fp32.
struct RowOperand {
  int index;  // among the call's inputs, or its outputs
  Varies varies = Varies::element;
  Columns columns = Columns::all;
};

// What a row program works with. Values have numbers, which reading and steps return.
class RowProgram {
 public:
  virtual ~RowProgram() = default;
  virtual const KernelCall& call() const = 0;
  virtual void need_rows(int64_t length) = 0;  // before all others: its rows have so many elements
  virtual int read(const RowOperand& input) = 0;
  virtual int read_sum(const RowOperand& output) = 0;  // what it holds so far, to add to
  virtual int step(const FusedStep& s) = 0;
  virtual void write(const RowOperand& output, int value, bool accumulate = false) = 0;

  int map(PointwiseFn fn, int a, int b = 0) { return step({fn, {a, b, a}, {}}); }
  int affine(int a, double alpha, double beta) { return step({PointwiseFn::affine, {a, a, a}, {alpha, beta}}); }
  int constant(double x) { return step({PointwiseFn::copy, {}, {0, x}, StepKind::constant}); }
  int fma(int a, int b, int c) { return of_kind(StepKind::fma, a, b, c); }
  int exp2(int a) { return of_kind(StepKind::exp2, a, a, a); }
  int row_max(int a) { return of_kind(StepKind::row_max, a, a, a); }
  int row_sum(int a) { return of_kind(StepKind::row_sum, a, a, a); }
  int row_dot(int a, int b) { return of_kind(StepKind::row_dot, a, b, a); }
  int column_dot(int a, int b) { return of_kind(StepKind::column_dot, a, b, a); }

 private:
  int of_kind(StepKind kind, int a, int b, int c) { return step({PointwiseFn::copy, {a, b, c}, {}, kind}); }
};

}  // namespace sinter
