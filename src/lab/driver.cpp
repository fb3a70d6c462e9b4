#include "lab/driver.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "lab/machine.h"
#include "lab/record.h"
#include "system/signals.h"

namespace sinter::lab {
namespace {

class SimpleCase : public Case {
 public:
  SimpleCase(const std::string& text, const std::function<Json(Progress&)>& make) : text_(text), make_(make) {}
  std::string text() const override { return text_; }
  bool run(const Turn&, Progress& progress) override {
    rows_ = make_(progress);
    return true;
  }
  Json rows() override { return rows_; }

 private:
  std::string text_;
  std::function<Json(Progress&)> make_;
  Json rows_ = Json::array();
};

class Loop {
 public:
  Loop(Experiment& experiment, const OutputOptions& output)
      : e_(experiment),
        output_(output),
        record_(new_record(e_.command, machine_block(e_.device), e_.config)),
        progress_(e_.silent || !e_.writes) {
    for (const Group& g : e_.groups) all_ += g.cases.size();
  }

  // A record of what was finished is written in any case: also when something fails, and then that is what is said.
  int run() {
    try {
      if (e_.before) e_.before(progress_);
      for (Group& g : e_.groups)
        if (!run_group(g)) break;
    } catch (...) {
      in_spite_of_it([&] {
        if (!record_["results"].empty()) write();
      });
      throw;
    }
    bool stop = stopped();
    if (!record_["results"].empty() || !stop) write();
    if (stop) {
      progress_.done(fmt::format("interrupted: {} of {} cases were finished", finished_, all_));
      return interrupted_exit_code;
    }
    return e_.exit_code ? e_.exit_code(record_["results"]) : exit_code_of(record_["results"]);
  }

 private:
  bool stopped() const { return e_.stopped ? e_.stopped() : interrupted(); }

  // After a failure: what can be saved is, and another failure on the way does not take the place of the first.
  template <class F> static void in_spite_of_it(const F& f) {
    try {
      f();
    } catch (...) {
    }
  }

  struct Running {
    Case& work;
    Json instead = nullptr;  // its row where it does not fit
    int turns = 0;           // that it has behind it
  };

  // False if interrupted.
  bool run_group(Group& g) {
    std::vector<Running> running;
    for (auto& c : g.cases) {
      progress_.begin(begun_ + running.size() + 1, all_);
      running.push_back({*c});
      plan::Fit fit = c->fit();
      if (!fit.fits) running.back().instead = c->does_not_fit(fit.reason, fit.free_bytes);
      else if (!fit.warning.empty()) progress_.done(fmt::format("warning: {}: {}", c->text(), fit.warning));
    }
    bool going = true;
    int turns = g.in_turns && running.size() > 1 ? g.turns : 1;
    try {
      going = run_turns(running, turns);
    } catch (...) {
      in_spite_of_it([&] { collect(running, turns); });
      throw;
    }
    collect(running, turns);
    begun_ += running.size();
    if (going && begun_ < all_) keep();
    return going;
  }

  bool run_turns(std::vector<Running>& running, int count) {
    for (int i = 0; i < count; ++i)
      for (size_t n = 0; n < running.size(); ++n) {
        progress_.begin(begun_ + n + 1, all_);
        if (stopped() || !run_one(running[n], {i, count})) return false;
      }
    for (Running& r : running) {
      std::string doubt = r.instead.is_null() ? r.work.doubt() : "";
      if (doubt.empty()) continue;
      progress_.done(fmt::format("{}: measured again, because of {}", r.work.text(), doubt));
      r.work.forget();
      if (!run_one(r, {})) return false;
    }
    return true;
  }

  bool run_one(Running& r, const Turn& turn) {
    if (!r.instead.is_null()) return true;
    progress_.now(r.work.text());
    try {
      bool going = r.work.run(turn, progress_);
      r.turns += going;
      return going;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::memory) throw;
      allocator_of(e_.device).release_cached();
      r.instead = r.work.does_not_fit(e.what(), allocator_of(e_.device).free_bytes());
      return true;
    }
  }

  // A case that has only some of its turns behind it has a result too, which says so.
  void collect(std::vector<Running>& running, int turns) {
    for (Running& r : running) {
      Json rows = r.instead.is_null() ? r.work.rows() : Json::array({r.instead});
      for (const std::string& note : r.work.notes()) add_note(note);
      bool finished = !r.instead.is_null() || r.turns >= turns;
      finished_ += finished;
      for (Json& row : rows) {
        if (!finished && row.value("status", "") == "ok") {
          row["status"] = "interrupted";
          row["reason"] = fmt::format("stopped after {} of {} turns", r.turns, turns);
        }
        std::string outcome = r.work.outcome(row);
        if (!outcome.empty()) progress_.done(fmt::format("{}: {}", r.work.text(), outcome));
        record_["results"].push_back(std::move(row));
      }
    }
  }

  void add_note(const std::string& note) {
    Json& notes = record_["notes"];
    if (!notes.is_array()) notes = Json::array();
    if (std::find(notes.begin(), notes.end(), note) != notes.end()) return;
    notes.push_back(note);
    progress_.done(note);
  }

  // So that what was finished outlives even a machine that kills this process.
  void keep() {
    if (record_["results"].empty() || !e_.writes) return;
    if (e_.finish) e_.finish(record_);
    write_record(output_, record_);
  }

  void write() {
    if (!e_.writes) return;
    if (e_.finish) e_.finish(record_);
    bool any = false;
    for (const Json& r : record_["results"]) any = any || r.value("status", "ok") != "oom";
    if (!any && !output_.plot.empty()) {  // nothing was measured, but memory that does not fit can still be seen
      View view = view_of(record_);
      if (!view.chart && !view.timeline && !view.picture) output_.plot.clear();
    }
    write_output(output_, record_, e_.files);
  }

  Experiment& e_;
  OutputOptions output_;
  Json record_;
  Progress progress_;
  size_t all_ = 0, begun_ = 0, finished_ = 0;  // cases
};

}  // namespace

std::unique_ptr<Case> simple_case(const std::string& text, const std::function<Json(Progress&)>& make_rows) {
  return std::make_unique<SimpleCase>(text, make_rows);
}

Json Case::does_not_fit(const std::string& reason, int64_t) { fail_with(ErrorKind::memory, "{}", reason); }

std::string Case::outcome(const Json& row) const {
  return row.value("status", "") == "oom" ? "OOM: " + row.value("reason", "") : "";
}

int exit_code_of(const Json& results) {
  bool all_oom = !results.empty(), fault = false;
  for (const Json& r : results) {
    all_oom = all_oom && r.value("status", "") == "oom";
    fault = fault || (r.contains("loss") && (!r["loss"].is_number() || !std::isfinite(r["loss"].get<double>())));
  }
  return all_oom ? int(ErrorKind::memory) : fault ? int(ErrorKind::numeric) : 0;
}

int run(Experiment& experiment, OutputOptions output) {
  std::vector<std::pair<const char*, std::string>> files;
  for (const Artefact& a : experiment.files) files.emplace_back(a.flag, a.path);
  if (experiment.writes) check_output(output, files);
  catch_interrupts();
  return Loop(experiment, output).run();
}

}  // namespace sinter::lab
