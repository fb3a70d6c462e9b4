#include "lab/train/options.h"

#include "lab/record.h"

namespace sinter::lab {

Json to_json(TrainFields fields) { return options_json(fields); }

TrainFields train_fields_from_json(const Json& config, const std::string& where) {
  return options_from_json<TrainFields>(config, where);
}

TrainFields train_fields_from_file(const std::string& path) {
  Json j = parse_json_file(path);
  if (is_record(j))
    return j.value("command", "") == "train" ? train_fields_from_json(j["config"], path) : TrainFields();
  return j.is_object() ? train_fields_from_json(j, path) : TrainFields();
}

TrainFields overlaid(TrainFields base, TrainFields over) {
  // Other data, or other data to evaluate on, replaces all of it.
  if (given(over.text) || given(over.tokens)) base.text = base.tokens = {};
  if (given(over.validation) || given(over.validation_text) || given(over.validation_tokens))
    base.validation = {}, base.validation_text = base.validation_tokens = {};
  Json merged = to_json(base);
  merged.update(to_json(over));
  return train_fields_from_json(merged, "options");
}

}  // namespace sinter::lab
