// OpDef: everything the engine knows about an operation, as data. Dispatch, tape, tracer, precision policy, FLOP counts
// and generated tests all read this one table (docs/adding-an-op.md).
#pragma once
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "backend/kernels.h"
#include "core/attrs.h"
#include "core/place.h"
#include "core/tensor.h"

namespace sinter {

struct OpDef;
class RowProgram;
using TensorPtrs = std::span<const Tensor* const>;

struct Outputs {
  std::array<Tensor, max_outputs> t;
  int n = 0;
  const Tensor& operator[](int i) const { return t[i]; }
};

// A call before it runs: what shape rules and cost rules see. Inputs have been cast as the precision policy says.
struct OpCall {
  const OpDef& op;
  TensorPtrs inputs;
  const Attrs& attrs;
  std::optional<DType> autocast;

  const Tensor& in(int i) const { return *inputs[i]; }
  int n_in() const { return int(inputs.size()); }
  template <class T> const T& attrs_as() const { return attrs.as<T>(); }
};

struct OutSpec {
  Dims dims;
  DType dtype = DType::f32;
  Dims strides;      // empty: contiguous
  int view_of = -1;  // an input this output is a view of, at `offset` elements
  int64_t offset = 0;
};
struct OutSpecs {
  std::array<OutSpec, max_outputs> out;
  int n = 0;
  void add(const Dims& dims, DType dtype) { out[n++] = {dims, dtype, {}, -1, 0}; }
  void add_strided(const Dims& dims, DType dtype, const Dims& strides) { out[n++] = {dims, dtype, strides, -1, 0}; }
  void add_view(int input, const Dims& dims, DType dtype, const Dims& strides, int64_t offset) {
    out[n++] = {dims, dtype, strides, input, offset};
  }
};

// What a gradient rule works with. Rules are written with ops, so a backward pass can itself be recorded.
class GradCall {
 public:
  virtual ~GradCall() = default;
  virtual const Tensor& input(int i) const = 0;   // as saved (cast by the policy); saves_inputs must name it
  virtual const Tensor& output(int i) const = 0;  // saves_outputs must name it
  virtual const Tensor& grad(int output) const = 0;
  virtual Dims input_dims(int i) const = 0;
  virtual DType input_dtype(int i) const = 0;
  virtual bool needs(int input) const = 0;
  virtual const Attrs& attrs() const = 0;

  // Output j of the call is the gradient of input targets[j] (-1: a by-product). Where that gradient already has a
  // place (a parameter's buffer, a sum begun by another consumer) and the op allows it, it is written or added there.
  virtual void emit(std::span<const int> targets, const OpDef& op, TensorPtrs inputs, const Attrs& attrs) = 0;
  virtual void give(int input, const Tensor& grad) = 0;  // an existing tensor, which may be shared, is the gradient

  template <class... T> void emit_to(int target, const OpDef& op, const Attrs& attrs, const T&... in) {
    const Tensor* ptrs[] = {&in...};
    emit(std::span<const int>(&target, 1), op, ptrs, attrs);
  }
  template <class... T>
  void emit_all(std::initializer_list<int> targets, const OpDef& op, const Attrs& attrs, const T&... in) {
    const Tensor* ptrs[] = {&in...};
    emit(std::span<const int>(targets.begin(), targets.size()), op, ptrs, attrs);
  }
};

// FLOPs of GEMMs count apart from the rest: MFU and peak checks speak of them alone.
struct Cost {
  double matmul_flops = 0, other_flops = 0;
  double executed_flops = -1;  // of the GEMMs, where a mask leaves fewer to do; negative: all of them
  double wire_bytes = 0;       // that this rank sends to others
  double executed() const { return executed_flops < 0 ? matmul_flops : executed_flops; }
};

// What an op is to the compiler: passes ask for this rather than which op it is.
enum class OpKind : uint8_t {
  opaque,           // nothing that concerns it
  view,             // has no kernel
  pointwise,        // elements in their order; the variant is a PointwiseFn
  fill,             // with the number of its FillAttrs
  fused,            // several calls in one: FusedAttrs hold the program
  product,          // of matrices, as MatmulAttrs say; a third input is added while the result is stored
  weight_gradient,  // a GEMM too, dyᵀ·x summed over all tokens; it takes no third input
  step_numbers,     // works out what updates read of the optimizer's state
  update,           // the optimizer's, element by element: of in[0] by its gradient in[1], and more flat buffers
  product_update,   // the same with the gradient's GEMM in it (core/folded_update.h)
  communication,    // a collective of all ranks of a group (CollectiveAttrs): they make the same ones in the same order
  host,             // something the host does (HostAction): no call moves across it
};

// What mixed precision does with an op's floating-point inputs.
//   lower     cast to the 16-bit type; the result is 16-bit (GEMMs)
//   fp32      cast to fp32; the result is fp32 (layer_norm)
//   promote   taken as they are; the result has the widest type among them (add, where)
//   internal  taken as they are, computed in fp32; 16-bit results if the shape rule says so (rms_norm, softmax, loss)
//   none      taken as they are
enum class AutocastPolicy : uint8_t { lower, fp32, promote, internal, none };

// A test input: one tensor per shape, and how to fill it.
struct SampleInput {
  enum Fill : uint8_t { normal, positive, token_ids, boolean, angles };
  Dims dims;
  Fill fill = normal;
  int64_t below = 0;  // token_ids: less than this
  bool wide = false;  // stays fp32 (or fp64) where the others are 16-bit: statistics; angles always do
};
struct Sample {
  std::vector<SampleInput> inputs;
  Attrs attrs;
};

struct OpDef {
  const char* name;
  void (*infer)(const OpCall&, OutSpecs&);
  void (*grad)(GradCall&) = nullptr;  // null: not differentiable
  Cost (*cost)(const OpCall&, const Outputs&) = nullptr;
  int64_t (*workspace)(const KernelCall&, DeviceType) = nullptr;
  Kernel KernelTable::*kernel = nullptr;  // null for views and host actions
  int variant = 0;
  OpKind kind = OpKind::opaque;
  AutocastPolicy autocast = AutocastPolicy::none;
  uint32_t saves_inputs = 0, saves_outputs = 0;  // bit masks: what the gradient rule reads
  uint32_t mutates = 0;                          // inputs written in place
  uint32_t gathers = 0;                          // inputs of which only what becomes the first output is read
  uint32_t accumulates = 0;                      // outputs the kernel can add to instead of overwriting
  uint32_t writes_any_float = 0;                 // outputs whose float type a given destination may choose
  uint32_t writes_fp32 = 0;                      // 16-bit outputs that a given destination may have in fp32
  bool cheap = false;                            // results are recomputed in backward rather than kept for it
  uint32_t differentiable = 1;                   // outputs that gradients flow through
  // Whether the kernel takes an input as it lies; others are made contiguous first. Null: contiguous ones only.
  bool (*accepts)(const TensorRef&, int input, const Attrs&) = nullptr;
  // Adds its steps, which the compiler may join with others; false if the call is one that it cannot write
  // so. Null: there is no program.
  bool (*row_program)(RowProgram&) = nullptr;
  const OpDef* with_product =
      nullptr;  // of an update with AdamW's operands: the op that also computes the product that is its gradient
  std::vector<Sample> samples = {};
  Place where = Place::here();  // of its definition

  bool is_product() const { return kind == OpKind::product || kind == OpKind::weight_gradient; }
};

// The fewest bytes a call can move: inputs read once, outputs (and what it changes in place) written once.
double bytes_moved(const OpCall& call, const Outputs& outputs);

std::span<const OpDef* const> all_ops();

}  // namespace sinter
