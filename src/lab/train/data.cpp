#include "lab/train/data.h"

#include <algorithm>

namespace sinter::lab {
namespace {

std::vector<TokenFile> opened(const std::vector<std::string>& text, const std::vector<std::string>& tokens,
                              const char* use, Json& files) {
  std::vector<TokenFile> all;
  for (const std::string& path : text) all.emplace_back(path, TokenFile::Holds::text);
  for (const std::string& path : tokens) all.emplace_back(path, TokenFile::Holds::ids);
  for (const TokenFile& f : all)
    files.push_back({{"file", f.path()}, {"use", use}, {"format", name_of(f.format())}, {"tokens", f.tokens()}});
  return all;
}

}  // namespace

TrainData::TrainData(const TrainFields& f) {
  check(given(f.text) || given(f.tokens),
        "there is nothing to train on; name text with --text, or token ids with --tokens");
  bool any_text = given(f.text) || given(f.validation_text), any_ids = given(f.tokens) || given(f.validation_tokens);
  check(
      !any_text || !any_ids,
      "--text and --tokens are not of one vocabulary; give all files, also those for validation, as one or the other");
  bool own_files = given(f.validation_text) || given(f.validation_tokens);
  check(!own_files || !f.validation,
        "--validation {}: a fraction is taken from the files to train on, but --validation-{} names others; give one "
        "or the other",
        f.validation.value_or(0), given(f.validation_text) ? "text" : "tokens");
  fraction_ = own_files ? 0 : f.validation.value_or(0.05);
  check(fraction_ >= 0 && fraction_ < 1, "--validation must be at least 0 and less than 1, not {}", fraction_);
  train_ = opened(f.text, f.tokens, "training", files_);
  validation_ = opened(f.validation_text, f.validation_tokens, "validation", files_);
}

int64_t TrainData::vocabulary() const {
  int64_t vocab = 0;
  for (const auto* files : {&train_, &validation_})
    for (const TokenFile& f : *files) {
      if (vocabulary_of(f.format()) == 0)
        fail_with(ErrorKind::usage,
                  "--vocab: {} does not say how many ids there are (its largest is {}); give the number, 50257 for "
                  "GPT-2's tokenizer",
                  f.path(), f.largest_id());
      vocab = std::max(vocab, vocabulary_of(f.format()));
    }
  return vocab;
}

void TrainData::cut(const ModelConfig& model, bool check_ids) {
  for (auto* files : {&train_, &validation_})
    for (const TokenFile& f : *files)
      if (check_ids) f.check_ids(model.vocab);
  windows = split(std::make_shared<Corpus>(std::move(train_), model.ctx), fraction_);
  if (validation_.empty()) return;
  auto own = std::make_shared<Corpus>(std::move(validation_), model.ctx);
  windows.validation = {own, 0, own->windows()};
}

Json TrainData::json() const {
  return {{"files", files_},
          {"training_sequences", windows.train.count()},
          {"validation_sequences", windows.validation.count()}};
}

}  // namespace sinter::lab
