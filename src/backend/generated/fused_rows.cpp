// Kernels over rows: a warp or a block takes a row, holds it in registers, and reduces it as often as the program asks.
// Between two reductions lies a phase: one pass over the thread's part of the row. The order of sums is that of
// norm.cu, so that both give the same bits.
#include <cmath>

#include "backend/generated/fused_text.h"
#include "backend/workspace.h"
#include "core/check.h"

namespace sinter::generated {
namespace {

bool is_reduction(StepKind k) { return k == StepKind::row_sum || k == StepKind::row_dot || k == StepKind::row_max; }

// From row to row; a contiguous tensor may have any shape.
int64_t row_stride(const TensorRef& t, int64_t length) {
  if (is_contiguous(t)) return length;
  for (int d = t.rank - 2; d >= 0; --d)
    if (t.dims[d] != 1) return t.strides[d];
  return length;
}

// When each value can be had, and what it depends on.
struct Schedule {
  const FusedProgram& p;
  std::vector<bool> needed = needed_values(p);
  std::vector<Varies> varies;
  std::vector<int> phase;  // of a value: from here on it is known; of a reduction: one after the pass that computes it
  std::vector<int> first_use;  // of an input: the first pass that reads it
  int phases = 1, reductions = 0;
  std::vector<int> slot;  // of a reduction

  explicit Schedule(const FusedProgram& program) : p(program) {
    size_t values = size_t(p.n_in) + size_t(p.n_steps);
    varies.assign(values, Varies::nothing), phase.assign(values, 0), first_use.assign(values, INT32_MAX),
        slot.assign(values, 0);
    for (int i = 0; i < p.n_in; ++i) varies[size_t(i)] = p.in_varies[i];
    for (int k = 0; k < p.n_steps; ++k) {
      size_t v = size_t(p.n_in) + size_t(k);
      const FusedStep& s = p.steps[k];
      int begin = 0;
      Varies widest = s.kind == StepKind::causal ? Varies::element : Varies::nothing;
      for (int i = 0; i < steps_inputs(s); ++i) {
        Varies from = varies[size_t(s.from[i])];
        if (from == Varies::element || from == Varies::column) widest = Varies::element;
        else if (from == Varies::row && widest == Varies::nothing) widest = Varies::row;
        begin = std::max(begin, phase[size_t(s.from[i])]);
      }
      bool reduces = is_reduction(s.kind);
      varies[v] = reduces ? Varies::row : s.kind == StepKind::column_dot ? Varies::column : widest;
      phase[v] = begin + reduces;
      if (!needed[v]) continue;
      phases = std::max(phases, phase[v] + 1);
      if (reduces) slot[v] = reductions++;
      for (int i = 0; i < steps_inputs(s); ++i) use(s.from[i], begin);
    }
    for (int j = 0; j < p.n_out; ++j) use(p.out[j], phase[size_t(p.out[j])]);
  }
  void use(int value, int at) { first_use[size_t(value)] = std::min(first_use[size_t(value)], at); }
  bool is_elements(int value) const { return varies[size_t(value)] == Varies::element; }
  bool uses_column(int input, int at) const {  // the pass `at` reads this column
    for (int k = 0; k < p.n_steps; ++k) {
      size_t v = size_t(p.n_in) + size_t(k);
      if (!needed[v] || phase[v] - is_reduction(p.steps[k].kind) != at) continue;
      for (int i = 0; i < steps_inputs(p.steps[k]); ++i)
        if (p.steps[k].from[i] == input) return true;
    }
    return false;
  }
};

// How a program of rows is cut up. Each thread holds `vectors` vectors of its row.
struct FusedRows {
  int64_t rows = 0;
  int length = 0, vector = 4, vectors = 1, threads_per_row = 32, block = 128;
  int column_sums = 0;  // outputs that are sums over all rows, left in parts, one part per block
  int row_lanes() const { return block / threads_per_row; }
};

FusedRows fused_rows(const KernelCall& call) {
  const FusedProgram& p = *call.attrs.as<FusedAttrs>().program;
  Schedule schedule(p);
  FusedRows r;
  r.length = int(p.row_length);
  bool wide = r.length % 8 != 0;
  auto elements = [&](const TensorRef& t) {
    r.rows = numel(t) / p.row_length;
    wide = wide || size_of(t.dtype) > 2 || row_stride(t, p.row_length) % 8 != 0;
  };
  for (int i = 0; i < p.n_in; ++i)
    if (schedule.is_elements(i)) elements(call.in[i]);
  for (int j = 0; j < p.n_out; ++j) {
    if (schedule.is_elements(p.out[j])) elements(call.out[j]);
    r.column_sums += is_column_sum(p, j);
  }
  r.vector = wide ? 4 : 8;
  r.threads_per_row = r.length <= 1024 ? 32 : r.length <= 8192 ? 256 : 512;
  int held = r.vector * r.threads_per_row;
  r.vectors = (r.length + held - 1) / held;
  int each = r.vectors * r.vector;
  // Column sums: as many blocks as norm_groups, and all of them must fit at once. Otherwise
  // small blocks, which spread better.
  r.block = r.threads_per_row > 32 ? r.threads_per_row : r.column_sums == 0 || each > 16 ? 128 : each > 8 ? 256 : 512;
  return r;
}

class RowText {
 public:
  explicit RowText(const KernelCall& call)
      : call_(call), p_(*call.attrs.as<FusedAttrs>().program), s_(p_), r_(fused_rows(call)) {}

  FusedText make() {
    // Sums over all rows leave about two blocks to a multiprocessor, and both must fit.
    const char* two = r_.column_sums > 0 && r_.block <= 256 ? ", 2" : "";
    w_.open("extern \"C\" __global__ void __launch_bounds__({}{}) @(const __grid_constant__ FusedArgs a)", r_.block,
            two);
    bool slots = r_.threads_per_row > 32 && s_.reductions > 0;
    if (slots) w_.line("__shared__ float slots[2][{}][{}];", s_.reductions, r_.threads_per_row / 32);
    if (slots) w_.line("int turn = 0;");
    w_.line("const int lane = threadIdx.x % {}, row_lane = threadIdx.x / {};", r_.threads_per_row, r_.threads_per_row);
    for_needed([&](int v, const FusedStep& s) {
      if (s.kind == StepKind::column_dot) w_.line("float v{}[{}][{}] = {{}};", v, r_.vectors, r_.vector);
    });
    for (int i = 0; i < p_.n_in; ++i)
      if (s_.needed[size_t(i)] && s_.varies[size_t(i)] == Varies::nothing)
        w_.line("const float v{} = load_one<{}>(a.in[{}], 0);", i, in_type(i), i);
    // Sums over all rows keep few blocks busy for long: each asks for its next row before it works on this one.
    bool ahead = r_.column_sums > 0;
    std::string step = fmt::format("(long long)gridDim.x * {}", r_.row_lanes());
    if (ahead) {  // rows are dealt out as norm_backward.cu does
      w_.line("long long row = blockIdx.x + (long long)gridDim.x * row_lane;");
      declare_row("r", "w");
      w_.open("if (row < a.n)");
      load_row("row", "r", "w");
      w_.close();
      w_.open("for (; row < a.n; row += {})", step);
      declare_row("q", "x");
      w_.open("if (row + {} < a.n)", step);
      load_row("row + " + step, "q", "x");
      w_.close();
    } else {
      w_.open("for (long long row = (long long)blockIdx.x * {} + row_lane; row < a.n; row += {})", r_.row_lanes(),
              step);
      declare_row("r", "w");
      load_row("row", "r", "w");
    }
    declare_values();
    for (int phase = 0; phase < s_.phases; ++phase) {
      row_values(phase);
      pass(phase);
    }
    if (slots) w_.line("turn ^= 1;");
    if (ahead) advance();
    w_.close();
    store_column_sums();
    w_.close();
    return named(p_, w_.take());
  }

 private:
  template <class F> void for_needed(F&& f) {
    for (int k = 0; k < p_.n_steps; ++k)
      if (s_.needed[size_t(p_.n_in) + size_t(k)]) f(p_.n_in + k, p_.steps[k]);
  }
  const char* in_type(int i) const { return type_name(call_.in[i].dtype); }
  const char* out_type(int j) const { return type_name(call_.out[j].dtype); }
  std::string name(int v) const {
    if (s_.is_elements(v)) return fmt::format("v{}[k][i]", v);
    return fmt::format("v{}{}", v, s_.varies[size_t(v)] == Varies::column ? "[i]" : "");
  }
  void open_vectors() {
    w_.loop("for (int k = 0; k < {}; ++k)", r_.vectors);
    w_.line("int g = lane + k * {};", r_.threads_per_row);
    if (r_.vectors * r_.threads_per_row * r_.vector != r_.length)
      w_.line("if (g >= {}) continue;", r_.length / r_.vector);
  }

  template <class F> void for_inputs(Varies varies, F&& f) {
    for (int i = 0; i < p_.n_in; ++i)
      if (s_.needed[size_t(i)] && s_.varies[size_t(i)] == varies) f(i);
  }
  void declare_row(const char* raw, const char* one) {
    for_inputs(Varies::element,
               [&](int i) { w_.line("Raw<{}, {}> {}{}[{}];", in_type(i), r_.vector, raw, i, r_.vectors); });
    for_inputs(Varies::row, [&](int i) { w_.line("float {}{};", one, i); });
  }
  // Everything that a row needs is asked for at once.
  void load_row(const std::string& row, const char* raw, const char* one) {
    for_inputs(Varies::row, [&](int i) { w_.line("{}{} = load_one<{}>(a.in[{}], {});", one, i, in_type(i), i, row); });
    for_inputs(Varies::element, [&](int i) {
      w_.line("const void* in{} = row_of<{}>(a.in[{}], {}, a.in_stride[{}]);", i, in_type(i), i, row, i);
    });
    open_vectors();
    for_inputs(Varies::element,
               [&](int i) { w_.line("{}{}[k] = load<{}, {}>(in{}, g);", raw, i, in_type(i), r_.vector, i); });
    w_.close();
  }
  void advance() {
    for_inputs(Varies::row, [&](int i) { w_.line("w{} = x{};", i, i); });
    open_vectors();
    for_inputs(Varies::element, [&](int i) { w_.line("r{}[k] = q{}[k];", i, i); });
    w_.close();
  }
  void declare_values() {
    for_inputs(Varies::row, [&](int i) { w_.line("const float v{} = w{};", i, i); });
    for_inputs(Varies::element, [&](int i) { w_.line("float v{}[{}][{}];", i, r_.vectors, r_.vector); });
    for_needed([&](int v, const FusedStep& s) {
      if (s_.is_elements(v)) w_.line("float v{}[{}][{}];", v, r_.vectors, r_.vector);
      if (s.kind == StepKind::causal)
        w_.line("const int seen{} = visible(row, {}, {}, {});", v, s.causal_rows, s.causal_offset, r_.length);
    });
    for (int j = 0; j < p_.n_out; ++j)
      if (s_.is_elements(p_.out[j]))
        w_.line("void* out{} = row_of<{}>(a.out[{}], row, a.out_stride[{}]);", j, out_type(j), j, j);
  }

  // Numbers of the whole row, before the pass that may use them.
  void row_values(int phase) {
    for_needed([&](int v, const FusedStep& s) {
      bool one = s_.varies[size_t(v)] == Varies::row || s_.varies[size_t(v)] == Varies::nothing;
      if (!one || s_.phase[size_t(v)] != phase) return;
      if (is_reduction(s.kind)) {
        std::string slots = r_.threads_per_row > 32 ? fmt::format("slots[turn][{}]", s_.slot[size_t(v)]) : "nullptr";
        w_.line("const float v{} = over_row<{}, {}>(s{}, {});", v, r_.threads_per_row,
                s.kind == StepKind::row_max ? "Max" : "Sum", v, slots);
      } else {
        w_.line("const float v{} = {};", v, expression(s, [&](int x) { return name(x); }));
      }
    });
    for (int j = 0; j < p_.n_out; ++j)
      if (s_.varies[size_t(p_.out[j])] == Varies::row && s_.phase[size_t(p_.out[j])] == phase)
        w_.line("if (lane == 0) store_one<{}>(a.out[{}], row, v{});", out_type(j), j, p_.out[j]);
  }

  void pass(int phase) {
    std::vector<std::string> before, each, after;
    for (int i = 0; i < p_.n_in; ++i) {
      if (!s_.needed[size_t(i)]) continue;
      if (s_.is_elements(i) && s_.first_use[size_t(i)] == phase)
        before.push_back(fmt::format("unpack(r{}[k], v{}[k]);", i, i));
      if (s_.varies[size_t(i)] == Varies::column && s_.uses_column(i, phase)) {
        before.push_back(fmt::format("float v{}[{}];", i, r_.vector));
        before.push_back(fmt::format("unpack(load<{}, {}>(a.in[{}], g), v{});", in_type(i), r_.vector, i, i));
      }
    }
    for_needed([&](int v, const FusedStep& s) {
      std::string a = name(s.from[0]), b = name(s.from[1]);
      if (is_reduction(s.kind) && s_.phase[size_t(v)] == phase + 1) {
        w_.line("float s{} = {};", v, s.kind == StepKind::row_max ? literal(-HUGE_VAL) : "0.0f");
        each.push_back(s.kind == StepKind::row_dot   ? fmt::format("s{} = fmaf({}, {}, s{});", v, a, b, v)
                       : s.kind == StepKind::row_sum ? fmt::format("s{} += {};", v, a)
                                                     : fmt::format("s{} = fmaxf(s{}, {});", v, v, a));
      } else if (s_.phase[size_t(v)] == phase && s.kind == StepKind::column_dot) {
        each.push_back(fmt::format("v{}[k][i] = fmaf({}, {}, v{}[k][i]);", v, a, b, v));
      } else if (s_.phase[size_t(v)] == phase && s.kind == StepKind::causal) {
        each.push_back(
            fmt::format("{} = g * {} + i < seen{} ? {} : {};", name(v), r_.vector, v, a, literal(s.affine.beta)));
      } else if (s_.phase[size_t(v)] == phase && s_.is_elements(v)) {
        each.push_back(fmt::format("{} = {};", name(v), expression(s, [&](int x) { return name(x); })));
      }
    });
    for (int j = 0; j < p_.n_out; ++j)
      if (s_.is_elements(p_.out[j]) && s_.phase[size_t(p_.out[j])] == phase)
        after.push_back(fmt::format("store<{}, {}>(out{}, g, v{}[k]);", out_type(j), r_.vector, j, p_.out[j]));
    if (before.empty() && each.empty() && after.empty()) return;
    open_vectors();
    for (const std::string& l : before) w_.line("{}", l);
    if (!each.empty()) {
      w_.loop("for (int i = 0; i < {}; ++i)", r_.vector);
      for (const std::string& l : each) w_.line("{}", l);
      w_.close();
    }
    for (const std::string& l : after) w_.line("{}", l);
    w_.close();
  }

  // The block's share of sums over all rows: one warp after another adds to shared memory.
  void store_column_sums() {
    int index = 0, held = r_.vectors * r_.threads_per_row;
    if (r_.column_sums > 0 && r_.row_lanes() > 1) w_.line("__shared__ float sums[{}][{}];", r_.vector, held);
    for (int j = 0; j < p_.n_out; ++j) {
      if (!is_column_sum(p_, j)) continue;
      int v = p_.out[j];
      w_.line("float* part{} = a.partial + ({}ll * gridDim.x + blockIdx.x) * {};", v, index++, r_.length);
      if (r_.row_lanes() == 1) {
        open_vectors();
        w_.line("store<fp32, {}>(part{}, g, v{}[k]);", r_.vector, v, v);
        w_.close();
        continue;
      }
      w_.open("for (int turn = 0; turn < {}; ++turn)", r_.row_lanes());
      w_.open("if (row_lane == turn)");
      open_vectors();
      w_.loop("for (int i = 0; i < {}; ++i)", r_.vector);
      w_.line("sums[i][g] = turn == 0 ? v{}[k][i] : sums[i][g] + v{}[k][i];", v, v);
      w_.close();
      w_.close();
      w_.close();
      w_.line("__syncthreads();");
      w_.close();
      w_.line("for (int i = threadIdx.x; i < {}; i += {}) part{}[i] = sums[i % {}][i / {}];", r_.length, r_.block, v,
              r_.vector, r_.vector);
      w_.line("__syncthreads();");
    }
  }

  const KernelCall& call_;
  const FusedProgram& p_;
  Schedule s_;
  FusedRows r_;
  Writer w_;
};

}  // namespace

FusedText text_of_rows(const KernelCall& call) { return RowText(call).make(); }

FusedLaunch launch_of_rows(const KernelCall& call) {
  const FusedProgram& p = *call.attrs.as<FusedAttrs>().program;
  FusedRows r = fused_rows(call);
  FusedLaunch l;
  l.args.n = r.rows;
  auto put = [&](const TensorRef& t, bool vectors, auto& data, long long& stride) {
    data = t.data;
    stride = row_stride(t, p.row_length);
    check(!vectors || (reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && stride % r.vector == 0),
          "fused: an operand of a program of rows is not aligned to 16 bytes");
  };
  for (int i = 0; i < call.n_in; ++i)
    put(call.in[i], p.in_varies[i] == Varies::element || p.in_varies[i] == Varies::column, l.args.in[i],
        l.args.in_stride[i]);
  for (int j = 0; j < call.n_out; ++j) put(call.out[j], false, l.args.out[j], l.args.out_stride[j]);
  int64_t blocks =
      r.column_sums ? std::min(r.rows, workspace::norm_groups) : (r.rows + r.row_lanes() - 1) / r.row_lanes();
  check(blocks <= INT32_MAX, "fused: too many rows for one launch");
  l.grid = unsigned(blocks), l.block = unsigned(r.block);
  l.args.partial = static_cast<float*>(call.workspace);
  check(blocks * r.column_sums * r.length * 4 <= call.workspace_bytes || r.column_sums == 0,
        "fused: workspace too small");
  return l;
}

}  // namespace sinter::generated
