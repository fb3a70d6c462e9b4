// A result of memory model.
#pragma once
#include "lab/fields.h"
#include "lab/tuning.h"

namespace sinter::lab {

struct PhaseMemory {
  std::string phase;
  int64_t peak_bytes = 0;
  Json peak_by;  // bytes by category
  int64_t end_bytes = 0;
  Json end_by;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("phase", self.phase);
    f("peak_bytes", self.peak_bytes);
    f("peak_by", self.peak_by);
    f("end_bytes", self.end_bytes);
    f("end_by", self.end_by);
  }
};

struct LargestRow {
  int64_t bytes = 0, count = 0;
  std::string category, tensor, range, source;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("bytes", self.bytes);
    f("count", self.count);
    f("category", self.category);
    f("tensor", self.tensor);
    f("range", self.range);
    f("source", self.source);
  }
};

struct LeakRow {
  std::string range;
  int64_t bytes_per_pass = 0;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("range", self.range);
    f("bytes_per_pass", self.bytes_per_pass);
  }
};

struct CardsResult {
  int64_t device_bytes = 0;
  std::vector<std::string> fits, does_not_fit;
  std::optional<std::string> card;  // that was named, is here, or is the largest it does not fit on
  std::optional<int64_t> card_bytes;
  std::optional<bool> card_fits;
  std::optional<std::string> change;  // that makes it fit there
  std::optional<Json> ranks_needed;   // by card, of a run that ranks share

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("device_bytes", self.device_bytes);
    f("fits", self.fits);
    f("does_not_fit", self.does_not_fit);
    f("card", self.card);
    f("card_bytes", self.card_bytes);
    f("card_fits", self.card_fits);
    f("change", self.change);
    f("ranks_needed", self.ranks_needed);
  }
};

struct MemoryResult {
  Json config;  // its fields stand beside the others
  std::string status = "ok";
  std::optional<std::string> reason;
  bool predicted = false;
  std::string predicted_for, attention_why, maths;
  int64_t parameters = 0;
  std::vector<PhaseMemory> phases;
  int64_t peak_bytes = 0;
  Json peak_by;
  int64_t reserved_bytes = 0, residual_bytes = 0;
  std::vector<LargestRow> largest;
  std::vector<LeakRow> leaks;
  std::optional<CardsResult> cards;
  TuningResult tuning;
  std::optional<bool> predicted_phases_equal;
  std::optional<int64_t> predicted_peak_bytes, predicted_reserved_bytes;
  std::optional<std::vector<PhaseMemory>> predicted_phases;  // where they differ
  std::optional<int64_t> outside_bytes, device_bytes, predicted_device_bytes;
  std::optional<double> predicted_to_device;
  std::optional<Json> timeline;  // Note [Timeline] in memory_plot.h

  template <class Self, class F> static void fields(Self& self, F&& f) {
    for (const auto& [name, value] : self.config.items()) f(name.c_str(), value);
    f("status", self.status);
    f("reason", self.reason);
    f("predicted", self.predicted);
    f("predicted_for", self.predicted_for);
    f("attention_why", self.attention_why);
    f("maths", self.maths);
    f("parameters", self.parameters);
    f("phases", self.phases);
    f("peak_bytes", self.peak_bytes);
    f("peak_by", self.peak_by);
    f("reserved_bytes", self.reserved_bytes);
    f("residual_bytes", self.residual_bytes);
    f("largest", self.largest);
    f("leaks", self.leaks);
    f("cards", self.cards);
    TuningResult::fields(self.tuning, f);
    f("predicted_phases_equal", self.predicted_phases_equal);
    f("predicted_peak_bytes", self.predicted_peak_bytes);
    f("predicted_reserved_bytes", self.predicted_reserved_bytes);
    f("predicted_phases", self.predicted_phases);
    f("outside_bytes", self.outside_bytes);
    f("device_bytes", self.device_bytes);
    f("predicted_device_bytes", self.predicted_device_bytes);
    f("predicted_to_device", self.predicted_to_device);
    f("timeline", self.timeline);
  }
};

}  // namespace sinter::lab
