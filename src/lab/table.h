// One table type for every command, rendered as text, Markdown, CSV or LaTeX.
#pragma once
#include <string>
#include <vector>

namespace sinter::lab {

struct Column {
  std::string header;
  bool left = false;  // numbers stand right
};

struct Table {
  std::string title;
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> notes;  // below the table
  size_t keys = 0;  // leading columns that say which run a row belongs to: left blank where they repeat, but not in CSV

  void drop_empty_columns();  // those no row fills
};

enum class TableFormat { text, markdown, csv, latex };
std::string render(const Table& table, TableFormat format);
std::string render(const std::vector<Table>& tables, TableFormat format);

}  // namespace sinter::lab
