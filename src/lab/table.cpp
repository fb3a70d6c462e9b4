#include "lab/table.h"

#include <algorithm>

namespace sinter::lab {
namespace {

using Row = std::vector<std::string>;

size_t width_of(const std::string& s) {  // code points; the few non-ASCII characters we print are one column wide
  return size_t(std::count_if(s.begin(), s.end(), [](unsigned char c) { return (c & 0xc0) != 0x80; }));
}

std::string padded(const std::string& s, size_t width, bool left) {
  std::string space(width - std::min(width, width_of(s)), ' ');
  return left ? s + space : space + s;
}

std::string trimmed(std::string s) {
  s.erase(s.find_last_not_of(' ') + 1);
  return s + "\n";
}

// Rows for the eye: a key that repeats the row above is blank as long as the keys before it repeat too.
std::vector<Row> without_repeats(const Table& t) {
  std::vector<Row> rows = t.rows;
  for (size_t r = t.rows.size(); r-- > 1;)
    for (size_t c = 0; c < t.keys && t.rows[r][c] == t.rows[r - 1][c]; ++c) rows[r][c].clear();
  return rows;
}

std::string text(const Table& t) {
  std::vector<Row> rows = without_repeats(t);
  std::vector<size_t> widths;
  for (size_t c = 0; c < t.columns.size(); ++c) {
    size_t w = width_of(t.columns[c].header);
    for (const Row& r : rows) w = std::max(w, width_of(r[c]));
    widths.push_back(w);
  }
  std::string out = t.title.empty() ? "" : t.title + "\n", line, rule;
  for (size_t c = 0; c < widths.size(); ++c) {
    line += padded(t.columns[c].header, widths[c], t.columns[c].left) + "  ";
    for (size_t i = 0; i < widths[c]; ++i) rule += "─";
    rule += "  ";
  }
  out += trimmed(line) + trimmed(rule);
  for (const Row& r : rows) {
    line.clear();
    for (size_t c = 0; c < widths.size(); ++c) line += padded(r[c], widths[c], t.columns[c].left) + "  ";
    out += trimmed(line);
  }
  for (const std::string& n : t.notes) out += n + "\n";
  return out;
}

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
  for (const Row& r : without_repeats(t)) {
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
  for (const Row& r : without_repeats(t)) out += line(r);
  out += "\\hline\n\\end{tabular}\n";
  for (const std::string& n : t.notes) out += "\n{\\footnotesize " + cell(n) + "}\n";
  return out;
}

}  // namespace

void Table::drop_empty_columns() {
  for (size_t c = columns.size(); c-- > 0;) {
    bool used = std::any_of(rows.begin(), rows.end(), [c](const Row& r) { return !r[c].empty(); });
    if (used) continue;
    columns.erase(columns.begin() + int64_t(c));
    for (Row& r : rows) r.erase(r.begin() + int64_t(c));
    if (c < keys) --keys;
  }
}

std::string render(const Table& t, TableFormat format) {
  switch (format) {
    case TableFormat::markdown: return markdown(t);
    case TableFormat::csv: return csv(t);
    case TableFormat::latex: return latex(t);
    case TableFormat::text: break;
  }
  return text(t);
}

std::string render(const std::vector<Table>& tables, TableFormat format) {
  std::string out;
  for (const Table& t : tables) out += (out.empty() ? "" : "\n") + render(t, format);
  return out;
}

}  // namespace sinter::lab
