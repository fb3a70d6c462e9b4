// A short list of sizes (or strides) without heap memory.
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/check.h"
#include "core/kernel_call.h"

namespace sinter {

class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> list) { assign(list.begin(), int(list.size())); }
  Dims(const int64_t* values, int rank) { assign(values, rank); }

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return v_[i]; }
  int64_t& operator[](int i) { return v_[i]; }
  const int64_t* begin() const { return v_; }
  const int64_t* end() const { return v_ + rank_; }
  void push_back(int64_t n) {
    check(rank_ < max_rank, "a tensor has at most {} dimensions", max_rank);
    v_[rank_++] = n;
  }
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t d : *this) n *= d;
    return n;
  }
  Dims without_last() const { return {v_, rank_ - 1}; }
  Dims with_last(int64_t n) const {
    Dims d = *this;
    d.v_[rank_ - 1] = n;
    return d;
  }
  bool operator==(const Dims& o) const { return rank_ == o.rank_ && std::equal(begin(), end(), o.begin()); }
  std::string str() const {
    std::string s = "(";
    for (int i = 0; i < rank_; ++i) s += (i ? ", " : "") + std::to_string(v_[i]);
    return s + ")";
  }

 private:
  void assign(const int64_t* values, int rank) {
    check(rank <= max_rank, "a tensor has at most {} dimensions, not {}", max_rank, rank);
    rank_ = rank;
    std::copy_n(values, rank, v_);
  }
  int rank_ = 0;
  int64_t v_[max_rank] = {};
};

}  // namespace sinter

template <> struct fmt::formatter<sinter::Dims> : fmt::formatter<std::string> {
  auto format(const sinter::Dims& d, fmt::format_context& ctx) const {
    return fmt::formatter<std::string>::format(d.str(), ctx);
  }
};
