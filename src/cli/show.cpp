// sinter show RECORD
#include "cli/app.h"
#include "lab/record.h"

namespace sinter::cli {

void add_show(CLI::App& app, Action& action) {
  CLI::App* c = app.add_subcommand("show", "render a record again, without running anything");
  c->footer("Examples:\n  sinter show out.json\n  sinter show out.json --table out.md --plot out.html");
  struct Flags {
    std::string record;
    lab::OutputOptions output;
  };
  auto flags = std::make_shared<Flags>();
  c->add_option("record", flags->record, "a file that --json wrote")->type_name("RECORD")->required();
  add_output_flags(*c, flags->output, Plot::yes);
  c->callback([&action, flags] {
    action = [flags] {
      lab::check_output(flags->output);
      lab::write_output(flags->output, lab::read_record(flags->record));
      return 0;
    };
  });
}

}  // namespace sinter::cli
