#include "cli/app.h"
#include "core/check.h"
#include "lab/record.h"
#include "lab/train/log.h"
#include "lab/train/train.h"

namespace sinter::cli {

namespace {

// A record, or logs of training, which are shown together.
Json shown(const std::vector<std::string>& files) {
  if (files.size() == 1 && !lab::is_training_log(files[0])) return lab::read_record(files[0]);
  for (const std::string& file : files) {
    if (lab::is_training_log(file)) continue;
    lab::read_record(file);  // refuses what is neither
    fail_with(ErrorKind::usage, "{}: is a record, and only logs of training are shown together; show it alone", file);
  }
  return lab::record_of_logs(files);
}

}  // namespace

lab::Command show_command(const std::shared_ptr<std::vector<std::string>>& files) {
  auto declare = [files](lab::Flags& flags, const lab::Program&) -> lab::Command::Run {
    auto output = std::make_shared<lab::OutputOptions>();
    lab::add_output_flags(flags, *output, lab::Plot::yes);
    return [files, output] {
      for (const std::string& file : *files) output->reads.emplace_back("show", file);
      lab::check_output(*output);
      lab::write_output(*output, shown(*files));
      return 0;
    };
  };
  return {"show", "render a record again, or logs of training, without running anything",
          "Examples:\n  sinter show out.json\n  sinter show out.json --table out.md --plot out.html\n"
          "  sinter show a.jsonl b.jsonl --plot losses.html",
          declare, nullptr};
}

}  // namespace sinter::cli
