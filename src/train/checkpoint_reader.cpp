#include "train/checkpoint_reader.h"

#include <algorithm>

#include "backend/device.h"
#include "ops/ops.h"
#include "system/checksum.h"
#include "train/checkpoint_ranks.h"

namespace sinter {

CheckpointReader::CheckpointReader(const std::string& folder) : folder_(folder) {
  std::string path = folder + "/manifest.json";
  manifest_ = parse_manifest(read_manifest_text(path), path);
  for (const Manifest::File& f : manifest_.files) {
    auto& file = files_.emplace_back(std::make_unique<SafetensorsFile>(folder + "/" + f.name));
    check(checksum(file->head()) == f.head_checksum, "{}: is damaged: its header has the checksum {}, and {} says {}",
          file->path(), checksum_text(checksum(file->head())), path, checksum_text(f.head_checksum));
  }
}

std::string_view CheckpointReader::bytes_of(const Manifest::Stored& stored, const Manifest::Piece& piece) const {
  const SafetensorsFile& file = *files_[size_t(piece.file)];
  const StoredTensor& t = file.at(name_in_file(stored, piece));
  check(t.type == safetensors_type(stored.dtype) && t.bytes() == (piece.end - piece.begin) * size_of(stored.dtype),
        "{}: tensor {} is {} with {} bytes, and the manifest says {} with {} elements", file.path(), t.name, t.type,
        t.bytes(), safetensors_type(stored.dtype), piece.end - piece.begin);
  return file.bytes(t);
}

void CheckpointReader::verify(const Manifest::Stored& stored, int64_t begin, int64_t end) {
  for (const Manifest::Piece& p : stored.pieces) {
    if (p.end <= begin || end <= p.begin || verified_.contains(&p)) continue;
    std::string_view bytes = bytes_of(stored, p);
    check(checksum(bytes) == p.checksum,
          "{}: is damaged: tensor {} has the checksum {}, and the manifest says {}; to go on from an older "
          "checkpoint, remove {} and the file `latest` beside it",
          files_[size_t(p.file)]->path(), name_in_file(stored, p), checksum_text(checksum(bytes)),
          checksum_text(p.checksum), folder_);
    verified_.insert(&p);
  }
}

void CheckpointReader::read(const Manifest::Stored& stored, int64_t begin, int64_t end, const Part& part) {
  verify(stored, begin, end);
  for (const Manifest::Piece& p : stored.pieces) {
    int64_t from = std::max(begin, p.begin), to = std::min(end, p.end), width = size_of(stored.dtype);
    if (from >= to) continue;
    part(from, bytes_of(stored, p).substr(size_t((from - p.begin) * width), size_t((to - from) * width)));
  }
}

Tensor CheckpointReader::tensor(const std::string& role, const std::string& name) {
  const Manifest::Stored* t = manifest_.find(role, name);
  check(t, "{}: holds no {} of {}", folder_, role, name);
  Tensor all = empty(t->dims, t->dtype, DeviceType::cpu);
  read(*t, 0, t->dims.numel(), [&](int64_t begin, std::string_view bytes) {
    std::copy(bytes.begin(), bytes.end(), all.data_as<char>() + begin * size_of(t->dtype));
  });
  return all;
}

namespace {

// What this rank has of a parameter in a role.
struct Wanted {
  const Parameters::Role* role;
  const Parameters::Entry* entry;
  const Manifest::Stored* stored;
  int64_t begin, end;  // elements of the parameter; none where it is all another rank's
};

std::vector<Wanted> wanted_of(const Parameters& parameters, const Manifest& m, const std::string& folder) {
  std::vector<Wanted> wanted;
  std::set<const Manifest::Stored*> used;
  for (const Parameters::Role* role : lasting_roles(parameters))
    for (const Parameters::Entry& e : parameters.entries()) {
      if (!has(parameters, *role, e)) continue;
      const Manifest::Stored* t = m.find(role->name, e.name);
      check(t, "{}: holds no {} of {}, which this run has; it is of another model or optimizer", folder, role->name,
            e.name);
      check(t->dims == e.dims, "{}: {} has shape {} there, and {} in this run; it is of another model", folder,
            t->text(), t->dims, e.dims);
      check(t->dtype == role->dtype, "{}: {} is {} there, and {} in this run; it was trained in another precision",
            folder, t->text(), name_of(t->dtype), name_of(role->dtype));
      const Parameters::Stretch& s = parameters.stretch_at(e.offset);
      int64_t begin = 0, end = e.dims.numel();
      if (role->lacks(s)) begin = s.own_begin - e.offset, end = s.own_end - e.offset;
      wanted.push_back({role, &e, t, std::max<int64_t>(begin, 0), std::min(end, e.dims.numel())});
      used.insert(t);
    }
  for (const Manifest::Stored& t : m.tensors)
    check(used.contains(&t), "{}: holds {}, which this run has not; it is of another model or optimizer", folder,
          t.text());
  return wanted;
}

}  // namespace

void load_checkpoint(const CheckpointInfo& checkpoint, Trainer& trainer) {
  Parameters& parameters = trainer.parameters();
  trainer.optimizer().allocate();
  std::optional<CheckpointReader> reader;
  std::vector<Wanted> wanted;
  agree(group_of(trainer), [&] {
    reader.emplace(checkpoint.folder);
    wanted = wanted_of(parameters, reader->manifest(), checkpoint.folder);
    for (const Wanted& p : wanted) reader->verify(*p.stored, p.begin, p.end);
  });
  trainer.optimizer().load_state(reader->manifest().optimizer_state);  // it may refuse them, on every rank
  DeviceType device = parameters.options().device;
  for (const Wanted& p : wanted) {
    int64_t at = p.entry->offset;
    parameters.write_within(at, at + p.entry->dims.numel(), [&] {
      reader->read(*p.stored, p.begin, p.end, [&](int64_t begin, std::string_view bytes) {
        int64_t end = begin + int64_t(bytes.size()) / size_of(p.role->dtype);
        Tensor to = p.role->range(at + begin, at + end);
        backend_of(device).copy_from_host(to.data(), bytes.data(), bytes.size(), current_stream(device));
      });
      p.role->flat().bump_version();  // also where all of it is another rank's: it has changed there
    });
  }
}

}  // namespace sinter
