#include "train/checkpoint_ranks.h"

#include <algorithm>
#include <optional>

#include "ops/ops.h"

namespace sinter {

std::vector<const Parameters::Role*> lasting_roles(const Parameters& parameters) {
  std::vector<const Parameters::Role*> roles;
  for (const Parameters::Role& r : parameters.roles())
    if (r.name != "copy" && r.name != "gradient") roles.push_back(&r);
  return roles;
}

std::vector<PieceOfRank> pieces_of(const Parameters& parameters, int ranks) {
  std::vector<PieceOfRank> pieces;
  std::vector<int64_t> bytes(static_cast<size_t>(ranks));
  for (const Parameters::Role* role : lasting_roles(parameters))
    for (const Parameters::Entry& e : parameters.entries()) {
      if (!has(parameters, *role, e)) continue;
      auto add = [&](int64_t begin, int64_t end, int rank) {
        bytes[size_t(rank)] += (end - begin) * size_of(role->dtype);
        pieces.push_back({role, &e, begin, end, rank});
      };
      const Parameters::Stretch& s = parameters.stretch_at(e.offset);
      if (!role->lacks(s)) {
        add(0, e.dims.numel(), int(std::min_element(bytes.begin(), bytes.end()) - bytes.begin()));
        continue;
      }
      for (int rank = 0; rank < ranks; ++rank) {
        auto [begin, end] = parameters.owned(s, rank);
        begin = std::max<int64_t>(begin - e.offset, 0), end = std::min(end - e.offset, e.dims.numel());
        if (begin < end) add(begin, end, rank);
      }
    }
  return pieces;
}

std::vector<double> gathered(ProcessGroup* group, const std::vector<double>& mine) {
  if (!group || group->size() == 1) return mine;
  NoGrad off;
  Tensor share = from_vector(mine, {int64_t(mine.size())}, DeviceType::cpu);
  Tensor all = empty({int64_t(mine.size()) * group->size()}, DType::f64, DeviceType::cpu);
  all_gather(share, all, *group);
  join_communication(DeviceType::cpu);
  return to_vector(all);
}

std::vector<std::string> gathered_texts(ProcessGroup* group, const std::string& mine) {
  constexpr size_t longest = 400;
  std::vector<double> letters(longest);
  for (size_t i = 0; i < std::min(mine.size(), longest); ++i) letters[i] = static_cast<unsigned char>(mine[i]);
  std::vector<double> all = gathered(group, letters);
  std::vector<std::string> texts;
  for (size_t first = 0; first < all.size(); first += longest) {
    std::string& text = texts.emplace_back();
    for (size_t i = first; i < first + longest && all[i] != 0; ++i) text += char(all[i]);
  }
  return texts;
}

void agree(ProcessGroup* group, const std::function<void()>& work) {
  std::optional<Error> error;
  try {
    work();
  } catch (const Error& e) {
    error = e;
  }
  std::vector<double> failed = gathered(group, {error ? double(int(error->kind())) : 0.0});
  if (error) throw Error(*error);
  for (size_t r = 0; r < failed.size(); ++r)
    if (failed[r] != 0) fail_with(ErrorKind(int(failed[r])), "rank {} refused it, and says why", r);
}

}  // namespace sinter
