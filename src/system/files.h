// Files that people keep: each appears whole, under its name, or not at all.
#pragma once
#include <string>

namespace sinter {

// Refuses a place that cannot be written to, before any work; `flag` is what named it.
void check_writable(const char* flag, const std::string& path);
void write_file(const std::string& path, const std::string& text);  // whole or not at all
void write_stdout(const std::string& text);

bool is_special(const std::string& path);       // a device or a pipe, which is written to as it is
std::string resolved(const std::string& path);  // where a link points is replaced, not the link

}  // namespace sinter
