// One table type for every command, rendered as text, Markdown, CSV or LaTeX.
#pragma once
#include <string>
#include <vector>

namespace sinter::lab {

struct Column {
  std::string header;
  bool left = false;                          // numbers stand right
  int drop = 0;                               // of text that must fit a terminal: the highest goes first; 0: it stays
  enum Fit { whole, cut, wrap } fit = whole;  // there, a cell that is too long is cut, or continued on the next line
};

struct Table {
  std::string title;
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> notes;  // below the table
  size_t keys = 0;  // leading columns that say which run a row belongs to: left blank where they repeat, but not in CSV

  void drop_empty_columns();  // those no row fills
  // For the eye: a key that repeats the row above is blank as long as the keys before it repeat too.
  std::vector<std::vector<std::string>> rows_without_repeats() const;
};

enum class TableFormat { text, markdown, csv, latex };
std::string render(const std::vector<Table>& tables, TableFormat format);
// Text that keeps to a width, 0: none. What a key says of every row alike is said once above the rows; headers are
// broken; then columns are left out, and cells cut. Notes name what is left out.
std::string render_text(const std::vector<Table>& tables, size_t width);
std::string wrapped(const std::string& line, size_t width, const std::string& indent = "");  // at spaces; ends with \n

std::string cut_to(const std::string& text, size_t width);  // "a long te…"

}  // namespace sinter::lab
