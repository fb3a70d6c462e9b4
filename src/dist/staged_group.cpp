// GPU ranks over a group of the host: numbers are copied to pinned memory, communicated there, and copied back. The
// process waits for all of it, so that nothing overlaps and nothing can be captured; it works with any group.
#include "backend/cuda/cuda.h"
#include "backend/device.h"
#include "core/check.h"
#include "dist/group.h"
#include "ops/context.h"
#include "ops/ops.h"

namespace sinter::dist {
namespace {

class StagedGroup final : public ProcessGroup {
 public:
  explicit StagedGroup(std::unique_ptr<ProcessGroup> host) : host_(std::move(host)) {}
  ~StagedGroup() override {
    drain_communication(DeviceType::cuda);
    free_pinned(staging_);
  }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  const char* name() const override { return host_->name(); }
  bool captures() const override { return false; }

  void run(const Collective& what, const void* in, void* out, void* stream) override {
    if (!stream || what.elements == 0) return host_->run(what, in, out, nullptr);
    DeviceBackend& gpu = backend_of(DeviceType::cuda);
    int64_t whole = what.bytes(), share = whole / size();
    int64_t before = what.kind == CollectiveKind::all_gather ? share : whole;
    int64_t after = what.kind == CollectiveKind::reduce_scatter ? share : whole;
    if (whole > staged_) {
      free_pinned(staging_);
      staging_ = static_cast<char*>(allocate_pinned(size_t(whole)));
      staged_ = staging_ ? whole : 0;
      if (!staging_)
        fail_with(ErrorKind::memory, "{}: no pinned host memory is left for {} bytes on their way to other ranks",
                  text_of(what), whole);
    }
    char* at = what.kind == CollectiveKind::all_gather ? staging_ + rank() * share : staging_;
    bool sends = what.kind != CollectiveKind::broadcast || rank() == what.root;
    if (sends) gpu.copy_to_host(at, in, size_t(before), stream);
    char* result = what.kind == CollectiveKind::reduce_scatter ? staging_ + rank() * share : staging_;
    host_->run(what, at, result, nullptr);
    gpu.copy_from_host(out, result, size_t(after), stream);
  }

 private:
  std::unique_ptr<ProcessGroup> host_;
  char* staging_ = nullptr;
  int64_t staged_ = 0;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_staged_group(std::unique_ptr<ProcessGroup> host) {
  return std::make_unique<StagedGroup>(std::move(host));
}

}  // namespace sinter::dist
