#include "cli/app.h"
#include "lab/record.h"

namespace sinter::cli {

lab::Command show_command(const std::shared_ptr<std::string>& record) {
  auto declare = [record](lab::Flags& flags, const lab::Program&) -> lab::Command::Run {
    auto output = std::make_shared<lab::OutputOptions>();
    lab::add_output_flags(flags, *output, lab::Plot::yes);
    return [record, output] {
      output->reads = {{"show", *record}};
      lab::check_output(*output);
      lab::write_output(*output, lab::read_record(*record));
      return 0;
    };
  };
  return {"show", "render a record again, without running anything",
          "Examples:\n  sinter show out.json\n  sinter show out.json --table out.md --plot out.html", declare, nullptr};
}

}  // namespace sinter::cli
