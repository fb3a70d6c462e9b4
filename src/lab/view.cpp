#include "lab/view.h"

#include "core/check.h"
#include "lab/command.h"
#include "lab/record.h"

namespace sinter::lab {

View view_of(const Json& record) {
  std::string command = record.value("command", ""), known;
  try {
    for (const Command& c : commands()) {
      if (c.name == command) return c.view(record);
      known += (known.empty() ? "" : ", ") + c.name;
    }
  } catch (const Json::exception& e) {
    fail_with(ErrorKind::usage, "the record of \"{}\" lacks something it needs: {}", command, message_of(e));
  }
  fail_with(ErrorKind::usage, "the record is of an unknown command \"{}\"; this version shows {}", command, known);
}

}  // namespace sinter::lab
