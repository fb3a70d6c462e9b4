#include "lab/table.h"

#include <algorithm>

namespace sinter::lab {
namespace {

using Row = std::vector<std::string>;

std::string escaped(const std::string& s, const std::string& special, const std::string& before) {
  std::string out;
  for (char c : s) {
    if (special.find(c) != std::string::npos) out += before;
    out += c;
  }
  return out;
}

std::string markdown(const Table& t) {
  auto cell = [](const std::string& s) { return " " + escaped(s, "|", "\\") + " |"; };
  std::string out = t.title.empty() ? "" : "### " + t.title + "\n\n";
  std::string head = "|", rule = "|";
  for (const Column& c : t.columns) {
    head += cell(c.header);
    rule += c.left ? "---|" : "---:|";
  }
  out += head + "\n" + rule + "\n";
  for (const Row& r : t.rows_without_repeats()) {
    out += "|";
    for (const std::string& s : r) out += cell(s);
    out += "\n";
  }
  for (const std::string& n : t.notes) out += "\n" + n + "\n";
  return out;
}

std::string csv(const Table& t) {
  auto line = [](const Row& r) {
    std::string out;
    for (size_t c = 0; c < r.size(); ++c) {
      bool quote = r[c].find_first_of(",\"\n") != std::string::npos;
      out += (c ? "," : "") + (quote ? "\"" + escaped(r[c], "\"", "\"") + "\"" : r[c]);
    }
    return out + "\n";
  };
  Row head;
  for (const Column& c : t.columns) head.push_back(c.header);
  std::string out = line(head);
  for (const Row& r : t.rows) out += line(r);
  return out;
}

std::string latex(const Table& t) {
  auto cell = [](const std::string& s) {
    std::string out;
    for (const char* p = s.c_str(); *p; ++p) {
      std::string rest(p, std::min<size_t>(3, s.size() - size_t(p - s.c_str())));
      if (rest.rfind("–", 0) == 0) out += "--", p += 2;
      else if (rest.rfind("×", 0) == 0) out += "$\\times$", ++p;
      else if (rest.rfind("÷", 0) == 0) out += "$\\div$", ++p;
      else if (rest.rfind("·", 0) == 0) out += "$\\cdot$", ++p;
      else if (*p == '\\') out += "\\textbackslash{}";
      else if (*p == '~' || *p == '^') out += std::string("\\") + *p + "{}";
      else if (std::string("&%$#_{}").find(*p) != std::string::npos) out += std::string("\\") + *p;
      else out += *p;
    }
    return out;
  };
  auto line = [&](const Row& r) {
    std::string out;
    for (size_t c = 0; c < r.size(); ++c) out += (c ? " & " : "") + cell(r[c]);
    return out + " \\\\\n";
  };
  std::string spec;
  Row head;
  for (const Column& c : t.columns) {
    spec += c.left ? 'l' : 'r';
    head.push_back(c.header);
  }
  std::string out = t.title.empty() ? "" : "% " + t.title + "\n";
  out += "\\begin{tabular}{" + spec + "}\n\\hline\n" + line(head) + "\\hline\n";
  for (const Row& r : t.rows_without_repeats()) out += line(r);
  out += "\\hline\n\\end{tabular}\n";
  for (const std::string& n : t.notes) out += "\n{\\footnotesize " + cell(n) + "}\n";
  return out;
}

}  // namespace

std::vector<Row> Table::rows_without_repeats() const {
  std::vector<Row> shown = rows;
  for (size_t r = rows.size(); r-- > 1;)
    for (size_t c = 0; c < keys && rows[r][c] == rows[r - 1][c]; ++c) shown[r][c].clear();
  return shown;
}

void Table::drop_empty_columns() {
  for (size_t c = columns.size(); c-- > 0;) {
    bool used = std::any_of(rows.begin(), rows.end(), [c](const Row& r) { return !r[c].empty(); });
    if (used) continue;
    columns.erase(columns.begin() + int64_t(c));
    for (Row& r : rows) r.erase(r.begin() + int64_t(c));
    if (c < keys) --keys;
  }
}

std::string render(const std::vector<Table>& tables, TableFormat format) {
  if (format == TableFormat::text) return render_text(tables, 0);
  std::string out;
  for (const Table& t : tables) {
    out += out.empty() ? "" : "\n";
    out += format == TableFormat::markdown ? markdown(t) : format == TableFormat::csv ? csv(t) : latex(t);
  }
  return out;
}

}  // namespace sinter::lab
