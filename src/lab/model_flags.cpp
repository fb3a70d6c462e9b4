#include "lab/model_flags.h"

#include <algorithm>

#include "lab/config_file.h"

namespace sinter::lab {

void ModelFlags::declare(Flags& flags, const std::vector<std::string>& without) {
  auto wanted = [&](const std::string& name) {
    return std::find(without.begin(), without.end(), name) == without.end();
  };
  given_.for_each_field([&](const std::string& name, auto& field, const std::string& type, const std::string& help,
                            const std::string& group) {
    if (!wanted(name)) return;
    if (name == "device") add_device_flag(flags, given_.device, "Run");
    else if (!group.empty()) flags.add(flag_named(name), field, type, help, group);
  });
  flags.add("--config", config_, "FILE", "a sinter record, or a Hugging Face config.json; flags override it", "Model");
}

SweepOptions ModelFlags::sweep() const {
  SweepOptions all = config_.empty() ? given_ : overlaid(read_config_file(config_), given_);
  if (all.device) all.device = chosen_device(all.device);
  return all;
}

}  // namespace sinter::lab
