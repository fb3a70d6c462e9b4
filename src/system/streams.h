// stdout, which carries results, and stderr, which only tells people how it goes.
#pragma once
#include <string_view>

namespace sinter {

// To be called first in a program. A closed standard stream gets a place holder, or the next opened file would take its
// number and be mixed with messages. A reader that goes away, or a file that grows too large, no longer ends the
// process in mid-run.
void set_up_streams();

// Results. A failure is an Error; but a reader that has gone (`| head -1`) ends the process quietly, by SIGPIPE, as it
// ends other tools.
void write_stdout(std::string_view text);

// A message to people, on stderr. Whether it can be written there decides nothing: it is never a reason to fail.
void say(std::string_view text) noexcept;

}  // namespace sinter
