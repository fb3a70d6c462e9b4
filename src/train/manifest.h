// What a checkpoint holds: its manifest.json. Docs: docs/checkpoints.md.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/dims.h"
#include "core/dtype.h"
#include "system/json.h"

namespace sinter {

// Note [Free of topology]: a checkpoint knows parameters by their names, whole, in each role that lasts (the master and
// the optimizer's moments). Ranks that shared them wrote pieces, which are runs of a parameter's elements; together
// they are all of it. Who reads looks for the elements that it needs, whoever wrote them, so any number of ranks at any
// level loads what any other wrote. Gradients and 16-bit copies are made anew.
struct Manifest {
  struct Piece {
    int file = 0;                // its place in files
    int64_t begin = 0, end = 0;  // elements
    uint64_t checksum = 0;
  };
  struct Stored {  // a parameter in one role
    std::string role, name;
    Dims dims;
    DType dtype = DType::f32;
    std::vector<Piece> pieces;  // in order, and without gaps

    std::string text() const { return role + " of " + name; }
  };
  struct File {
    std::string name;
    int64_t bytes = 0;
    uint64_t head_checksum = 0;  // of what comes before the tensors' bytes
  };
  int64_t step = 0;
  Json config;                          // of the run, as its owner gave it
  std::vector<double> optimizer_state;  // StepState
  std::vector<File> files;
  std::vector<Stored> tensors;

  const Stored* find(const std::string& role, const std::string& name) const;
};

// What a piece is called in its file: "master/norm.weight", or "master/embedding.weight[0:4096]" where it is not all.
std::string name_in_file(const Manifest::Stored& stored, const Manifest::Piece& piece);

// Its last line is the checksum of all before it, so that no bit of it can change unnoticed.
struct ManifestText {
  std::string text;
  uint64_t checksum = 0;
};
ManifestText text_of(const Manifest& manifest);
// Refuses what is not a manifest as sinter writes it; `path` is for messages.
Manifest parse_manifest(const ManifestText& text, const std::string& path);
ManifestText read_manifest_text(const std::string& path);  // refuses it if the checksum is another

}  // namespace sinter
