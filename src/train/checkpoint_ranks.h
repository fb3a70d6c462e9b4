// What ranks that save or load a checkpoint together know and agree on.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "train/trainer.h"

namespace sinter {

inline ProcessGroup* group_of(const Trainer& trainer) {
  return trainer.parallel() ? &trainer.parallel()->group() : nullptr;  // null: alone
}

// Roles that a checkpoint holds: the rest is made anew.
std::vector<const Parameters::Role*> lasting_roles(const Parameters& parameters);
inline bool has(const Parameters& p, const Parameters::Role& role, const Parameters::Entry& entry) {
  return role.extent == Parameters::Role::all || entry.offset < p.trainable_size();
}

// Elements [begin, end) of a parameter in a role, which one rank writes. Every rank finds the same list: what ranks
// divide, its owner writes; of what all of them have, each writes about as many bytes.
struct PieceOfRank {
  const Parameters::Role* role;
  const Parameters::Entry* entry;
  int64_t begin, end;
  int rank;
};
std::vector<PieceOfRank> pieces_of(const Parameters& parameters, int ranks);

// Collectives, by all ranks of the group in the same order, on the thread that trains; alone (null) they are trivial.
std::vector<double> gathered(ProcessGroup* group, const std::vector<double>& mine);  // of all ranks, as many from each
std::vector<std::string> gathered_texts(ProcessGroup* group, const std::string& mine);  // the first 400 bytes of each
// Runs it on every rank. If it throws on one, all of them do: what it threw there, and elsewhere which rank it was.
void agree(ProcessGroup* group, const std::function<void()>& work);

}  // namespace sinter
