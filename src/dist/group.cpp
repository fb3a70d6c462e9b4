#include "dist/group.h"

#include <algorithm>
#include <cstring>

#include "backend/device.h"
#include "core/check.h"

namespace sinter::dist {

std::string text_of(const Collective& c) {
  if (c.kind == CollectiveKind::barrier) return "barrier";
  std::string how = c.kind == CollectiveKind::broadcast    ? fmt::format(" from rank {}", c.root)
                    : c.kind == CollectiveKind::all_gather ? ""
                    : c.reduce == ReduceKind::average      ? " (average)"
                                                           : " (sum)";
  return fmt::format("{} of {} {}{}", name_of(c.kind), c.elements, name_of(c.dtype), how);
}

void Group::come_to(const Collective& what, int64_t sequence, bool inside) {
  std::lock_guard lock(mutex_);
  current_ = what;
  sequence_ = sequence;
  if (RankStatus* me = status(setting_.ranks[size_t(setting_.rank)])) {
    me->what = what;
    me->sequence.store(sequence);
    me->state.store(inside ? RankStatus::inside : RankStatus::finished);
  }
}

void Group::run(const Collective& what, const void* in, void* out, void* stream) {
  bool shares = what.kind == CollectiveKind::reduce_scatter || what.kind == CollectiveKind::all_gather;
  check(!shares || what.elements % size() == 0, "{}: {} elements cannot be shared evenly by {} ranks",
        name_of(what.kind), what.elements, size());
  if (is_queued()) return do_run(what, in, out, stream);
  come_to(what, sequence_ + 1, true);
  if (setting_.check_collectives && size() > 1) compare(what);
  // One rank has everything already; an average of one is the number itself.
  if (size() > 1) do_run(what, in, out, stream);
  else if (in != out) std::memcpy(out, in, size_t(what.bytes()));
  come_to(what, sequence_, false);
}

std::string Group::now() const {
  std::lock_guard lock(mutex_);
  int mine = setting_.ranks[size_t(setting_.rank)];
  RankStatus* me = status(mine);
  std::string step = me && me->step.load() > 0 ? fmt::format(" in step {}", me->step.load()) : "";
  return fmt::format("rank {}{} waits in {}, collective {}", mine, step, text_of(current_), sequence_);
}

std::string Group::table() const {
  std::string text;
  for (int rank : setting_.ranks) {
    RankStatus* s = status(rank);
    text += text.empty() ? "" : "; ";
    if (!s) {
      text += fmt::format("rank {}: on another host", rank);
      continue;
    }
    bool ended = setting_.host->has_ended(rank);
    if (s->sequence.load() == 0) {
      text += fmt::format("rank {}: {}before its first collective", rank, ended ? "ended, " : "");
      continue;
    }
    text += fmt::format("rank {}: {}step {}, {} collective {}, {}", rank, ended ? "ended, " : "", s->step.load(),
                        s->state.load() == RankStatus::inside ? "in" : "past", s->sequence.load(), text_of(s->what));
  }
  return text;
}

void Group::time_out() {
  fail_with(ErrorKind::peer, "{}, and others have not come within {:.3g} s (--timeout). Last collectives: {}", now(),
            setting_.timeout_s, table());
}

// Where that rank itself failed because another had gone, that one is the reason.
void Group::died(int world_rank) {
  for (size_t hops = 0; hops < setting_.ranks.size(); ++hops) {
    RankStatus* s = status(world_rank);
    if (!s || s->blames.load() == 0) break;
    world_rank = s->blames.load() - 1;
  }
  if (RankStatus* me = status(setting_.ranks[size_t(setting_.rank)])) me->blames.store(world_rank + 1);
  RankStatus* s = status(world_rank);
  std::string where;
  if (s)
    where = s->sequence.load() == 0 ? " before its first collective"
                                    : fmt::format(" in step {}, {} collective {} ({})", s->step.load(),
                                                  s->state.load() == RankStatus::inside ? "in" : "after",
                                                  s->sequence.load(), text_of(s->what));
  fail_with(ErrorKind::peer, "rank {} has ended{}; {}", world_rank, where, now());
}

void Group::mismatch(const std::vector<Collective>& by_rank) {
  std::string text;
  for (size_t i = 0; i < by_rank.size(); ++i)
    text += fmt::format("{}rank {}: {}", i ? "; " : "", setting_.ranks[i], text_of(by_rank[i]));
  fail_with(ErrorKind::peer,
            "ranks disagree about collective {}: {}. All ranks must make the same collectives in the same order",
            sequence_, text);
}

std::vector<int> Group::ended() const {
  std::vector<int> all;
  if (setting_.host)
    for (int rank : setting_.ranks)
      if (setting_.host->has_ended(rank)) all.push_back(rank);
  return all;
}

namespace {

class SingleGroup : public Group {
 public:
  explicit SingleGroup(DeviceType device) : Group(alone()), device_(device) {}
  const char* name() const override { return "none"; }

 private:
  static GroupSetting alone() {
    GroupSetting s;
    s.ranks = {0};
    return s;
  }
  bool is_queued() const override { return device_ == DeviceType::cuda; }
  void do_run(const Collective& what, const void* in, void* out, void* stream) override {
    if (in == out) return;
    if (stream) backend_of(device_).copy(out, in, size_t(what.bytes()), stream);
    else std::memcpy(out, in, size_t(what.bytes()));
  }
  DeviceType device_;
};

class ImaginedGroup : public ProcessGroup {
 public:
  explicit ImaginedGroup(int ranks) : ranks_(ranks) {}
  int rank() const override { return 0; }
  int size() const override { return ranks_; }
  const char* name() const override { return "imagined"; }
  void* pool() override { return this; }  // as the groups of one host have one
  void run(const Collective& what, const void*, void*, void*) override {
    fail_with(ErrorKind::other, "{} of ranks that are not there", text_of(what));
  }

 private:
  int ranks_;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_imagined_group(int ranks) { return std::make_unique<ImaginedGroup>(ranks); }
std::unique_ptr<ProcessGroup> make_single_group(DeviceType device) { return std::make_unique<SingleGroup>(device); }

}  // namespace sinter::dist
