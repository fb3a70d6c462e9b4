// Ranks on several hosts, as many on each: what the ranks of a host have is first joined in the memory they share, and
// only then sent over the network, each rank its share of it, at the same time. So a host sends as much as a single
// rank would, and not as much as all of its ranks.
#include <cstring>
#include <vector>

#include "backend/device.h"
#include "core/check.h"
#include "dist/group.h"
#include "ops/ops.h"

namespace sinter::dist {
namespace {

class HostsGroup final : public ProcessGroup {
 public:
  // inside: the ranks of this host; between: those at the same place on every host. Ranks are numbered host by host.
  HostsGroup(std::unique_ptr<ProcessGroup> inside, std::unique_ptr<ProcessGroup> between, DeviceType device)
      : inside_(std::move(inside)), between_(std::move(between)), device_(device) {}
  ~HostsGroup() override {
    drain_communication(device_);
    for (const Memory& m : kept_) backend_of(m.device).free(m.p);
  }
  int rank() const override { return between_->rank() * inside_->size() + inside_->rank(); }
  int size() const override { return between_->size() * inside_->size(); }
  const char* name() const override { return "hosts"; }
  void* pool() override { return inside_->pool(); }
  bool captures() const override { return inside_->captures() && between_->captures(); }
  bool takes_turns(DeviceType device) const override {
    return inside_->takes_turns(device) || between_->takes_turns(device);
  }
  void throw_if_failed() override { inside_->throw_if_failed(), between_->throw_if_failed(); }

  void run(const Collective& what, const void* in, void* out, void* stream) override {
    const auto* from = static_cast<const char*>(in);
    auto* to = static_cast<char*>(out);
    bool shares = what.kind == CollectiveKind::reduce_scatter || what.kind == CollectiveKind::all_gather;
    check(!shares || what.elements % size() == 0, "{}: {} elements cannot be shared evenly by {} ranks",
          name_of(what.kind), what.elements, size());
    auto part = [&](CollectiveKind kind, int64_t elements) {
      Collective c = what;
      c.kind = kind, c.elements = elements;
      return c;
    };
    int64_t width = size_of(what.dtype), share = what.elements / size();
    char* apart = nullptr;
    int64_t of_host = share * inside_->size(), of_place = share * between_->size();
    switch (what.kind) {
      case CollectiveKind::all_reduce: {
        if (in != out) copy(out, in, what.bytes(), stream);
        int64_t mine = what.elements / inside_->size(), even = mine * inside_->size();
        char *my_share = to + inside_->rank() * mine * width, *rest = to + even * width;
        inside_->run(part(CollectiveKind::reduce_scatter, even), to, my_share, stream);
        between_->run(part(CollectiveKind::all_reduce, mine), my_share, my_share, stream);
        inside_->run(part(CollectiveKind::all_gather, even), my_share, to, stream);
        if (even == what.elements) break;
        for (ProcessGroup* group : {inside_.get(), between_.get()})
          group->run(part(CollectiveKind::all_reduce, what.elements - even), rest, rest, stream);
        break;
      }
      case CollectiveKind::reduce_scatter:
        apart = apart_for(of_place * width, stream);
        for (int host = 0; host < between_->size(); ++host)
          inside_->run(part(what.kind, of_host), from + host * of_host * width, apart + host * share * width, stream);
        between_->run(part(what.kind, of_place), apart, to, stream);
        break;
      case CollectiveKind::all_gather:
        apart = apart_for(of_place * width, stream);
        between_->run(part(what.kind, of_place), from, apart, stream);
        for (int host = 0; host < between_->size(); ++host)
          inside_->run(part(what.kind, of_host), apart + host * share * width, to + host * of_host * width, stream);
        break;
      case CollectiveKind::broadcast: {
        Collective c = what;
        c.root = what.root / inside_->size();
        bool here = inside_->rank() == what.root % inside_->size();
        if (here) between_->run(c, in, out, stream);
        c.root = what.root % inside_->size();
        inside_->run(c, here ? out : in, out, stream);
        break;
      }
      case CollectiveKind::barrier:
        inside_->run(what, in, out, stream);
        between_->run(what, in, out, stream);
        break;
    }
  }

 private:
  bool is_gpu(void* stream) const { return device_ == DeviceType::cuda && stream; }
  void copy(void* to, const void* from, int64_t bytes, void* stream) const {
    if (is_gpu(stream)) backend_of(device_).copy(to, from, size_t(bytes), stream);
    else std::memcpy(to, from, size_t(bytes));
  }
  // For the shares of the ranks at this place. A captured graph may use what was enough until now: it is kept.
  char* apart_for(int64_t bytes, void* stream) {
    Memory& m = apart_[is_gpu(stream)];
    if (m.bytes < bytes) {
      DeviceType device = is_gpu(stream) ? DeviceType::cuda : DeviceType::cpu;
      void* p = backend_of(device).allocate(size_t(bytes));
      if (!p) fail_with(ErrorKind::memory, "no memory is left for {} bytes on their way between hosts", bytes);
      kept_.push_back(m = {device, p, bytes});
    }
    return static_cast<char*>(m.p);
  }

  std::unique_ptr<ProcessGroup> inside_, between_;
  DeviceType device_;
  struct Memory {
    DeviceType device = DeviceType::cpu;
    void* p = nullptr;
    int64_t bytes = 0;
  } apart_[2];  // of the host, and of the GPU
  std::vector<Memory> kept_;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_hosts_group(std::unique_ptr<ProcessGroup> inside,
                                               std::unique_ptr<ProcessGroup> between, DeviceType device) {
  return std::make_unique<HostsGroup>(std::move(inside), std::move(between), device);
}

}  // namespace sinter::dist
