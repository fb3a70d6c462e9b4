#include "train/token_windows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "core/check.h"
#include "core/philox.h"

namespace sinter {

Corpus::Corpus(std::vector<TokenFile> files, int64_t ctx) : files_(std::move(files)), ctx_(ctx) {
  check(ctx > 0, "--ctx must be at least 1, not {}", ctx);
  check(!files_.empty(), "a corpus needs at least one file");
  int64_t all = 0;
  for (const TokenFile& f : files_) {
    check(f.tokens() > ctx,
          "{}: has {} tokens, too short for one sequence of --ctx {} and the token after it; use --ctx {} or less, or "
          "join it to another file",
          f.path(), f.tokens(), ctx, std::max<int64_t>(1, f.tokens() - 1));
    ends_.push_back(all += (f.tokens() - 1) / ctx);
  }
}

void Corpus::read(int64_t window, std::span<int64_t> to) const {
  auto file = size_t(std::upper_bound(ends_.begin(), ends_.end(), window) - ends_.begin());
  check(window >= 0 && file < files_.size() && int64_t(to.size()) == ctx_ + 1, "window {} of {}, {} tokens of {}",
        window, windows(), to.size(), ctx_ + 1);
  int64_t before = file == 0 ? 0 : ends_[file - 1];
  files_[file].read((window - before) * ctx_, to);
}

Split split(std::shared_ptr<const Corpus> corpus, double fraction) {
  check(fraction >= 0 && fraction < 1, "--validation must be at least 0 and less than 1, not {}", fraction);
  int64_t all = corpus->windows();
  auto held_out = fraction > 0 ? std::max<int64_t>(1, std::llround(fraction * double(all))) : 0;
  check(held_out < all,
        "--validation {}: of the {} window{} of --ctx {} in these files none is left to train on; give more text, a "
        "smaller --ctx, or --validation 0",
        fraction, all, all == 1 ? "" : "s", corpus->ctx());
  return {{corpus, 0, all - held_out}, {corpus, all - held_out, all}};
}

WindowOrder::WindowOrder(int64_t n, uint64_t seed) : n_(n), seed_(seed) {
  check(n > 0, "there are no windows to put in order");
  half_bits_ = std::max(1, (int(std::bit_width(uint64_t(n - 1))) + 1) / 2);
}

uint64_t WindowOrder::mixed(uint64_t stream, uint64_t x) const {
  constexpr int rounds = 6;
  uint64_t mask = (uint64_t(1) << half_bits_) - 1, left = x >> half_bits_, right = x & mask;
  for (uint64_t round = 0; round < rounds; ++round) {
    PhiloxBlock noise = philox(seed_, stream, round << 56 | right);
    left = std::exchange(right, left ^ ((uint64_t(noise.v[1]) << 32 | noise.v[0]) & mask));
  }
  return left << half_bits_ | right;
}

int64_t WindowOrder::at(int64_t epoch, int64_t position) const {
  constexpr uint64_t of_windows = uint64_t(1) << 63;  // streams that parameters do not draw from
  auto x = uint64_t(position);
  do x = mixed(of_windows | uint64_t(epoch), x);
  while (x >= uint64_t(n_));
  return int64_t(x);
}

std::vector<int64_t> windows_of(const WindowOrder& order, int64_t windows, const BatchShape& shape, int64_t step,
                                int64_t micro) {
  std::vector<int64_t> all(size_t(shape.batch));
  int64_t first = step * shape.global() + shape.first(micro);
  for (int64_t i = 0; i < shape.batch; ++i) all[size_t(i)] = order.at((first + i) / windows, (first + i) % windows);
  return all;
}

}  // namespace sinter
