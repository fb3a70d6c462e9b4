// Ranks on several hosts, as many on each: what the ranks of a host have is first joined in the memory they share, and
// only then sent over the network, each rank its share of it, at the same time. So a host sends as much as a single
// rank would, and not as much as all of its ranks.
#include <cstring>
#include <vector>

#include "core/check.h"
#include "dist/group.h"

namespace sinter::dist {
namespace {

class HostsGroup final : public ProcessGroup {
 public:
  // inside: the ranks of this host; between: those at the same place on every host. Ranks are numbered host by host.
  HostsGroup(std::unique_ptr<ProcessGroup> inside, std::unique_ptr<ProcessGroup> between)
      : inside_(std::move(inside)), between_(std::move(between)) {}
  int rank() const override { return between_->rank() * inside_->size() + inside_->rank(); }
  int size() const override { return between_->size() * inside_->size(); }
  const char* name() const override { return "hosts"; }
  void* pool() override { return inside_->pool(); }

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
    int64_t of_host = share * inside_->size(), of_place = share * between_->size();
    switch (what.kind) {
      case CollectiveKind::all_reduce: {
        if (in != out) std::memcpy(out, in, size_t(what.bytes()));
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
        apart_.resize(size_t(of_place * width));
        for (int host = 0; host < between_->size(); ++host)
          inside_->run(part(what.kind, of_host), from + host * of_host * width, apart_.data() + host * share * width,
                       stream);
        between_->run(part(what.kind, of_place), apart_.data(), to, stream);
        break;
      case CollectiveKind::all_gather:
        apart_.resize(size_t(of_place * width));
        between_->run(part(what.kind, of_place), from, apart_.data(), stream);
        for (int host = 0; host < between_->size(); ++host)
          inside_->run(part(what.kind, of_host), apart_.data() + host * share * width, to + host * of_host * width,
                       stream);
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
  std::unique_ptr<ProcessGroup> inside_, between_;
  std::vector<char> apart_;  // shares of the ranks at this place
};

}  // namespace

std::unique_ptr<ProcessGroup> make_hosts_group(std::unique_ptr<ProcessGroup> inside,
                                               std::unique_ptr<ProcessGroup> between) {
  return std::make_unique<HostsGroup>(std::move(inside), std::move(between));
}

}  // namespace sinter::dist
