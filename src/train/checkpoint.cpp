#include "train/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <unistd.h>

#include "backend/device.h"
#include "core/clock.h"
#include "memory/caching_allocator.h"
#include "ops/ops.h"
#include "system/checksum.h"

namespace sinter {
namespace {

Manifest::Stored stored_as(const PieceOfRank& p) {
  return {p.role->name, p.entry->name, p.entry->dims, p.role->dtype, {}};
}
std::string name_in_file(const PieceOfRank& p) { return name_in_file(stored_as(p), {0, p.begin, p.end, 0}); }

// What a rank writes, as its file has it.
std::vector<StoredTensor> file_of(const std::vector<PieceOfRank>& pieces, int rank) {
  std::vector<StoredTensor> tensors;
  for (const PieceOfRank& p : pieces) {
    if (p.rank != rank) continue;
    bool all = p.end - p.begin == p.entry->dims.numel();
    std::vector<int64_t> shape = {p.end - p.begin};
    if (all) shape.assign(p.entry->dims.begin(), p.entry->dims.end());
    tensors.push_back({.name = name_in_file(p), .type = safetensors_type(p.role->dtype), .shape = std::move(shape)});
  }
  return SafetensorsWriter::laid_out(std::move(tensors));
}

int64_t bytes_of(const std::vector<StoredTensor>& file) { return file.empty() ? 0 : file.back().end; }

double ms_since(int64_t ns) { return double(steady_ns() - ns) * 1e-6; }

// As numbers that fp64 holds exactly.
void append_halves(std::vector<double>& to, uint64_t x) { to.push_back(double(x >> 32)), to.push_back(uint32_t(x)); }
uint64_t from_halves(const double* x) { return uint64_t(x[0]) << 32 | uint64_t(x[1]); }

int size_of(const ProcessGroup* group) { return group ? group->size() : 1; }

}  // namespace

int64_t checkpoint_bytes(Trainer& trainer) {
  trainer.optimizer().allocate();
  ProcessGroup* group = group_of(trainer);
  return bytes_of(file_of(pieces_of(trainer.parameters(), size_of(group)), group ? group->rank() : 0));
}

Checkpoints::Checkpoints(Trainer& trainer, const CheckpointOptions& options)
    : trainer_(trainer),
      options_(options),
      group_(group_of(trainer)),
      rank_(group_ ? group_->rank() : 0),
      ranks_(size_of(group_)) {
  const std::string& dir = options.dir;
  uint64_t token = 0;
  agree(group_, [&] {
    check(options.keep >= 0, "{} checkpoints are to be kept; give a number from 1 on, or 0 for all", options.keep);
    if (rank_ > 0) return;
    lock_ = std::make_unique<FolderLock>(dir);
    std::error_code unknown;
    if (auto latest = latest_checkpoint(dir)) {
      check(!options.resumed.empty() && std::filesystem::equivalent(latest->folder, options.resumed, unknown),
            "{}: holds the checkpoints of a run, the last of step {}; resume it, or choose another folder", dir,
            latest->step);
      saved_ = latest->step;
    }
    token = checksum(fmt::format("{} {} {}", getpid(), steady_ns(), unix_ns(steady_ns())));
  });
  std::vector<double> known;
  append_halves(known, token);
  known.push_back(double(saved_));
  known = gathered(group_, known);
  saved_ = int64_t(known[2]);
  folder_ = std::make_unique<CheckpointFolder>(dir, checksum_text(from_halves(known.data())));
  agree(group_, [&] {
    if (rank_ > 0) return;
    folder_->remove_stale();
    try {
      folder_->begin(0, 0);
    } catch (const Error& e) {
      fail_with(ErrorKind::usage, "{}; choose a folder that you may write to", e.what());
    }
  });
  // Every rank looks for what rank 0 has just made.
  agree(group_, [&] {
    std::error_code unknown;
    check(std::filesystem::is_directory(folder_->saving(0), unknown),
          "{}: is not the same folder on ranks 0 and {}; checkpoints need one that all hosts share", dir, rank_);
    trainer.optimizer().allocate();
    pieces_ = pieces_of(trainer.parameters(), ranks_);
    file_ = file_of(pieces_, rank_);
    CategoryScope scope(MemoryCategory::temporary);
    staged_ = empty({bytes_of(file_)}, DType::u8, DeviceType::cpu);
    cpu_backend().fill(staged_.data(), 0, size_t(staged_.bytes()), nullptr);  // or the first save waits for its pages
  });
  if (rank_ == 0) folder_->give_up(0);
}

Checkpoints::~Checkpoints() {
  if (thread_.joinable()) thread_.join();
}

// ---- on the thread that trains -----------------------------------------------------------------------------------

void Checkpoints::save(int64_t step, const Json& config) {
  int64_t began = steady_ns();
  ended_ = advance(true);  // for the next call to return
  if (step == saved_) return;
  DeviceType device = trainer_.parameters().options().device;
  synchronize(device);
  optimizer_state_ = trainer_.optimizer().state();
  config_ = config;
  std::map<std::string, const StoredTensor*> places;
  for (const StoredTensor& t : file_) places[t.name] = &t;
  for (const PieceOfRank& p : pieces_) {
    if (p.rank != rank_) continue;
    Tensor from = p.role->range(p.entry->offset + p.begin, p.entry->offset + p.end);
    backend_of(device).copy_to_host(staged_.data_as<char>() + places.at(name_in_file(p))->begin, from.data(),
                                    size_t(from.bytes()), current_stream(device));
  }
  began_ns_ = steady_ns();
  now_ = {step, {}, staged_.bytes(), double(began_ns_ - began) * 1e-6, 0};
  phase_ = Phase::writing;
  start([this] { write_file_of_rank(); });
}

void Checkpoints::start(std::function<void()> work) {
  if (thread_.joinable()) thread_.join();
  state_ = State::busy;
  error_.clear();
  auto run = [this, work = std::move(work)] {
    try {
      work();
      state_ = State::done;
    } catch (const std::exception& e) {
      error_ = e.what();
      state_ = State::failed;
    }
  };
  try {
    thread_ = std::thread(run);
  } catch (const std::system_error&) {  // no more threads: then training waits
    run();
  }
}

std::vector<SaveResult> Checkpoints::advance(bool wait) {
  while (phase_ != Phase::none) {
    if (wait && thread_.joinable()) thread_.join();
    Phase before = phase_;
    move_on();
    if (phase_ == before) break;  // some rank is busy; if waited for, none is
  }
  return std::exchange(ended_, {});
}

void Checkpoints::move_on() {
  State mine = state_;
  std::vector<double> states = gathered(group_, {double(int(mine))});
  auto any = [&](State s) { return std::find(states.begin(), states.end(), double(int(s))) != states.end(); };
  if (any(State::busy)) return;
  if (any(State::failed)) {
    std::string why;
    std::vector<std::string> texts = gathered_texts(group_, mine == State::failed ? error_ : "");
    for (size_t r = 0; r < texts.size() && why.empty(); ++r)
      if (!texts[r].empty()) why = ranks_ > 1 ? fmt::format("rank {}: {}", r, texts[r]) : error_;
    if (rank_ == 0) folder_->give_up(now_.step);
    return finish(why);
  }
  if (phase_ == Phase::committing) {
    saved_ = now_.step;
    return finish("");
  }
  size_t longest = 0;
  for (int r = 0; r < ranks_; ++r)
    longest = std::max(longest, size_t(std::count_if(pieces_.begin(), pieces_.end(),
                                                     [r](const PieceOfRank& p) { return p.rank == r; })));
  std::vector<double> sums;
  for (uint64_t s : sums_) append_halves(sums, s);
  sums.resize(2 * longest);
  sums = gathered(group_, sums);
  phase_ = Phase::committing;
  if (rank_ > 0) return;
  start([this, manifest = manifest_of(sums)] {
    folder_->commit(manifest);
    if (options_.keep > 0) folder_->keep(options_.keep, manifest.step);
  });
}

void Checkpoints::finish(const std::string& error) {
  now_.error = error;
  now_.write_ms = ms_since(began_ns_);
  ended_.push_back(std::move(now_));
  phase_ = Phase::none;
}

// `sums`: every rank's, as halves, and as many from each.
Manifest Checkpoints::manifest_of(const std::vector<double>& sums) const {
  Manifest m;
  m.step = now_.step, m.config = config_, m.optimizer_state = optimizer_state_;
  size_t each = sums.size() / size_t(ranks_);
  std::vector<const double*> next;
  for (int r = 0; r < ranks_; ++r) {
    next.push_back(sums.data() + size_t(r) * each);
    std::vector<StoredTensor> file = file_of(pieces_, r);
    std::string head = SafetensorsWriter::head_of(file);
    m.files.push_back({file_of_rank(r), int64_t(head.size()) + bytes_of(file), checksum(head)});
  }
  for (const PieceOfRank& p : pieces_) {
    if (m.tensors.empty() || m.tensors.back().role != p.role->name || m.tensors.back().name != p.entry->name)
      m.tensors.push_back(stored_as(p));
    m.tensors.back().pieces.push_back({p.rank, p.begin, p.end, from_halves(next[size_t(p.rank)])});
    next[size_t(p.rank)] += 2;
  }
  return m;
}

// ---- on a thread of its own --------------------------------------------------------------------------------------

void Checkpoints::write_file_of_rank() {
  const char* bytes = staged_.data_as<char>();
  SafetensorsWriter writer(folder_->begin(now_.step, rank_), file_);
  std::map<std::string, uint64_t> sums;
  for (const StoredTensor& t : file_) {
    std::string_view part(bytes + t.begin, size_t(t.bytes()));
    sums[t.name] = checksum(part);
    writer.write(part);
  }
  writer.finish();
  sums_.clear();
  for (const PieceOfRank& p : pieces_)
    if (p.rank == rank_) sums_.push_back(sums.at(name_in_file(p)));
}

}  // namespace sinter
