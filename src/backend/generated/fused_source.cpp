#include "backend/generated/fused_source.h"

#include <cmath>
#include <string_view>

#include "backend/generated/fused_text.h"
#include "core/check.h"
#include "system/cache_files.h"

namespace sinter {

namespace embedded {
extern const std::string_view cuda_functions, cuda_fused_args, cuda_fused_prelude;
}

namespace generated {
namespace {

constexpr const char* function_names[] = {
    "add",           "sub",           "mul",           "div",          "copy",    "neg",
    "exp",           "log",           "sqrt",          "rsqrt",        "sigmoid", "silu",
    "gelu",          "tanh",          "relu",          "square",       "affine",  "sigmoid_backward",
    "silu_backward", "gelu_backward", "tanh_backward", "relu_backward"};
static_assert(std::size(function_names) == size_t(PointwiseFn::where), "one name for each function but where");

const char* name_of(PointwiseFn fn) { return function_names[size_t(fn)]; }

int inputs_of(PointwiseFn fn) {
  bool two = fn <= PointwiseFn::div || fn >= PointwiseFn::sigmoid_backward;
  return two ? 2 : 1;
}

const char* short_name(const FusedStep& s) {
  switch (s.kind) {
    case StepKind::map: return name_of(s.fn);
    case StepKind::row_sum: return "rowsum";
    case StepKind::row_dot: return "rowdot";
    case StepKind::row_max: return "rowmax";
    case StepKind::column_dot: return "columndot";
    case StepKind::causal: return "causal";
    default: return "";
  }
}

constexpr int threads = 256,
              unroll = 2;  // of a kernel over elements: vectors per thread, all loaded before the first is used

bool aligned(const void* p, int64_t bytes) { return reinterpret_cast<uintptr_t>(p) % uintptr_t(bytes) == 0; }

FusedLaunch launch_of_elements(const KernelCall& call) {
  const FusedProgram& p = *call.attrs.as<FusedAttrs>().program;
  FusedLaunch l;
  int vector = elements_vector(call);
  l.args.n = numel(call.out[0]);
  l.args.vectors = 1;
  auto check_alignment = [&](const TensorRef& t) {
    if (!aligned(t.data, std::min<int64_t>(16, vector * size_of(t.dtype)))) l.args.vectors = 0;
  };
  for (int i = 0; i < call.n_in; ++i) {
    l.args.in[i] = call.in[i].data;
    if (p.in_varies[i] == Varies::element) check_alignment(call.in[i]);
  }
  for (int j = 0; j < call.n_out; ++j) l.args.out[j] = call.out[j].data, check_alignment(call.out[j]);
  int64_t per_block = int64_t(threads) * unroll * vector, blocks = (l.args.n + per_block - 1) / per_block;
  check(blocks <= INT32_MAX, "fused: too many elements for one launch");
  l.grid = unsigned(blocks), l.block = threads;
  return l;
}

}  // namespace

const char* type_name(DType t) {
  switch (t) {
    case DType::f32: return "fp32";
    case DType::bf16: return "bf16";
    case DType::f16: return "fp16";
    default:
      fail_with(ErrorKind::usage, "fused on CUDA: element type {} is not supported; use fp32, bf16 or fp16",
                sinter::name_of(t));
  }
}

int steps_inputs(const FusedStep& s) {
  switch (s.kind) {
    case StepKind::map: return inputs_of(s.fn);
    case StepKind::constant: return 0;
    case StepKind::fma: return 3;
    case StepKind::row_dot:
    case StepKind::column_dot: return 2;
    default: return 1;
  }
}

std::string literal(double x) {
  float f = float(x);
  if (!std::isfinite(f)) return fmt::format("__uint_as_float(0x{:08x}u)", __builtin_bit_cast(uint32_t, f));
  std::string s = fmt::format("{:.9g}", f);
  return s + (s.find_first_of(".e") == std::string::npos ? ".0f" : "f");
}

std::string expression(const FusedStep& s, const std::function<std::string(int)>& name) {
  auto from = [&](int k) { return name(s.from[k]); };
  switch (s.kind) {
    case StepKind::constant: return literal(s.affine.beta);
    case StepKind::fma: return fmt::format("fmaf({}, {}, {})", from(0), from(1), from(2));
    case StepKind::exp2: return fmt::format("fast_exp2({})", from(0));
    default: break;
  }
  if (s.fn == PointwiseFn::affine)
    return fmt::format("fn::affine({}, {}, {})", from(0), literal(s.affine.alpha), literal(s.affine.beta));
  if (inputs_of(s.fn) == 2) return fmt::format("fn::{}({}, {})", name_of(s.fn), from(0), from(1));
  return fmt::format("fn::{}({})", name_of(s.fn), from(0));
}

std::vector<bool> needed_values(const FusedProgram& p) {
  std::vector<bool> needed(size_t(p.n_in) + size_t(p.n_steps));
  for (int j = 0; j < p.n_out; ++j) needed[size_t(p.out[j])] = true;
  for (int k = p.n_steps - 1; k >= 0; --k)
    for (int i = 0; needed[size_t(p.n_in) + size_t(k)] && i < steps_inputs(p.steps[k]); ++i)
      needed[size_t(p.steps[k].from[i])] = true;
  return needed;
}

FusedText named(const FusedProgram& p, std::string text) {
  std::string name = p.row_length ? "fused_rows" : "fused";
  for (int k = 0; k < p.n_steps && name.size() < 60; ++k)
    if (std::string s = short_name(p.steps[k]); !s.empty()) name += "_" + s;
  name += fmt::format("_{:08x}", uint32_t(hash64(text) ^ hash64(text) >> 32));
  size_t at = text.find('@');
  return {name, text.replace(at, 1, name)};
}

// Elements per access: 16 bytes of the widest type.
int elements_vector(const KernelCall& call) {
  const FusedProgram& p = *call.attrs.as<FusedAttrs>().program;
  int64_t widest = 2;
  for (int i = 0; i < call.n_in; ++i)
    if (p.in_varies[i] == Varies::element) widest = std::max(widest, size_of(call.in[i].dtype));
  for (int j = 0; j < call.n_out; ++j) widest = std::max(widest, size_of(call.out[j].dtype));
  return int(16 / widest);
}

FusedText text_of_elements(const KernelCall& call) {
  const FusedProgram& p = *call.attrs.as<FusedAttrs>().program;
  int V = elements_vector(call);
  std::vector<bool> needed = needed_values(p);
  std::vector<int> elements;  // inputs to load
  Writer w;
  w.open("extern \"C\" __global__ void __launch_bounds__({}) @(const __grid_constant__ FusedArgs a)", threads);
  for (int i = 0; i < p.n_in; ++i) {
    if (!needed[size_t(i)]) continue;
    if (p.in_varies[i] == Varies::element) elements.push_back(i);
    else w.line("const float v{} = load_one<{}>(a.in[{}], 0);", i, type_name(call.in[i].dtype), i);
  }
  std::string parameters, scalars, packed;
  for (int i : elements) {
    parameters += fmt::format("float v{}, ", i);
    scalars += fmt::format("load_one<{}>(a.in[{}], i), ", type_name(call.in[i].dtype), i);
    packed += fmt::format("x{}[i], ", i);
  }
  for (int j = 0; j < p.n_out; ++j) {
    const char* comma = j + 1 < p.n_out ? ", " : "";
    parameters += fmt::format("float& o{}{}", j, comma);
    scalars += fmt::format("o{}{}", j, comma);
    packed += fmt::format("y{}[i]{}", j, comma);
  }
  w.open("auto compute = [&]({})", parameters);
  for (int k = 0; k < p.n_steps; ++k)
    if (needed[size_t(p.n_in) + size_t(k)])
      w.line("float v{} = {};", p.n_in + k, expression(p.steps[k], [](int v) { return fmt::format("v{}", v); }));
  for (int j = 0; j < p.n_out; ++j) w.line("o{} = v{};", j, p.out[j]);
  w.close(";");
  w.open("auto element = [&](long long i)");
  for (int j = 0; j < p.n_out; ++j) w.line("float o{};", j);
  w.line("compute({});", scalars);
  for (int j = 0; j < p.n_out; ++j) w.line("store_one<{}>(a.out[{}], i, o{});", type_name(call.out[j].dtype), j, j);
  w.close(";");

  w.open("if (!a.vectors)");
  w.open("for (int u = 0; u < {}; ++u)", unroll * V);
  w.line("long long i = (long long)blockIdx.x * {} + u * {} + threadIdx.x;", threads * unroll * V, threads);
  w.line("if (i < a.n) element(i);");
  w.close();
  w.line("return;");
  w.close();
  w.line("long long first = (long long)blockIdx.x * {} + threadIdx.x;", threads * unroll);
  for (int i : elements) w.line("Raw<{}, {}> r{}[{}];", type_name(call.in[i].dtype), V, i, unroll);
  w.loop("for (int u = 0; u < {}; ++u)", unroll);
  w.line("long long g = first + u * {};", threads);
  w.line("if ({} * g + {} > a.n) continue;", V, V);
  for (int i : elements) w.line("r{}[u] = load<{}, {}>(a.in[{}], g);", i, type_name(call.in[i].dtype), V, i);
  w.close();
  w.loop("for (int u = 0; u < {}; ++u)", unroll);
  w.line("long long g = first + u * {};", threads);
  w.open("if ({} * g + {} > a.n)", V, V);
  w.line("for (long long i = {} * g; i < a.n; ++i) element(i);", V);
  w.line("continue;");
  w.close();
  for (int i : elements) w.line("float x{}[{}];", i, V);
  for (int j = 0; j < p.n_out; ++j) w.line("float y{}[{}];", j, V);
  for (int i : elements) w.line("unpack(r{}[u], x{});", i, i);
  w.loop("for (int i = 0; i < {}; ++i)", V);
  w.line("compute({});", packed);
  w.close();
  for (int j = 0; j < p.n_out; ++j) w.line("store<{}, {}>(a.out[{}], g, y{});", type_name(call.out[j].dtype), V, j, j);
  w.close();
  w.close();
  return named(p, w.take());
}

}  // namespace generated

std::string fused_prelude() {
  return std::string(embedded::cuda_functions) + std::string(embedded::cuda_fused_args) +
         std::string(embedded::cuda_fused_prelude);
}

bool is_column_sum(const FusedProgram& p, int output) {
  int step = p.out[output] - p.n_in;
  return step >= 0 && p.steps[step].kind == StepKind::column_dot;
}

FusedText fused_text(const KernelCall& call) {
  bool rows = call.attrs.as<FusedAttrs>().program->row_length > 0;
  FusedText t = rows ? generated::text_of_rows(call) : generated::text_of_elements(call);
  t.text = "namespace sinter::cuda {\n" + t.text + "}  // namespace sinter::cuda\n";
  return t;
}

FusedLaunch fused_launch(const KernelCall& call) {
  bool rows = call.attrs.as<FusedAttrs>().program->row_length > 0;
  return rows ? generated::launch_of_rows(call) : generated::launch_of_elements(call);
}

}  // namespace sinter
