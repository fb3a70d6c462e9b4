// Tables as text, for terminals.
#include <algorithm>

#include "lab/table.h"

namespace sinter::lab {
namespace {

constexpr size_t gap = 2;
constexpr size_t narrow = 20;  // no column is made narrower than this

size_t width_of(const std::string& s) {  // code points; the few non-ASCII characters we print are one column wide
  return size_t(std::count_if(s.begin(), s.end(), [](unsigned char c) { return (c & 0xc0) != 0x80; }));
}

// The first n characters.
std::string first(const std::string& s, size_t n) {
  size_t at = 0;
  for (size_t seen = 0; at < s.size(); ++at)
    if ((static_cast<unsigned char>(s[at]) & 0xc0) != 0x80 && seen++ == n) break;
  return s.substr(0, at);
}

std::string padded(const std::string& s, size_t width, bool left) {
  std::string space(width - std::min(width, width_of(s)), ' ');
  return left ? s + space : space + s;
}

std::string trimmed(std::string s) {
  s.erase(s.find_last_not_of(' ') + 1);
  return s + "\n";
}

std::vector<std::string> words_of(const std::string& s) {
  std::vector<std::string> words(1);
  for (char c : s)
    if (c == ' ') words.emplace_back();
    else words.back() += c;
  return words;
}

// Lines of at most so many characters, unless a word is longer.
std::vector<std::string> lines_of(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  for (const std::string& word : words_of(text)) {
    bool fits = !lines.empty() && width_of(lines.back()) + 1 + width_of(word) <= width;
    if (fits) lines.back() += " " + word;
    else lines.push_back(word);
  }
  return lines;
}

class TextTable {
 public:
  TextTable(const Table& table, size_t limit) : t_(table), limit_(limit) {
    for (size_t c = 0; c < t_.columns.size(); ++c) shown_.push_back(c);
    if (limit_ > 0) lift_constant_keys();
    measure(false);
    if (limit_ == 0 || total() <= limit_) return;
    measure(true);
    drop_columns();
    narrow_columns();
  }

  std::string text() const {
    std::string out = t_.title.empty() ? "" : line(t_.title);
    if (!lifted_.empty()) out += line(lifted_);
    out += head();
    std::vector<std::vector<std::string>> rows = t_.rows_without_repeats();
    for (const auto& row : rows) out += row_lines(row);
    for (const std::string& n : t_.notes) out += line(n);
    if (!left_out_.empty())
      out += line("Left out to fit " + std::to_string(limit_) + " columns: " + left_out_ + " (--wide shows all).");
    return out;
  }

 private:
  std::string line(const std::string& s) const { return limit_ == 0 ? s + "\n" : wrapped(s, limit_, "  "); }
  std::string row_lines(const std::vector<std::string>& row) const {
    std::vector<std::vector<std::string>> cells;
    size_t height = 1;
    for (size_t i = 0; i < shown_.size(); ++i) {
      const std::string& s = row[shown_[i]];
      size_t width = widths_[i];
      if (width_of(s) <= width) cells.push_back({s});
      else if (t_.columns[shown_[i]].fit == Column::wrap) cells.push_back(lines_of(s, width));
      else cells.push_back({cut_to(s, width)});
      height = std::max(height, cells.back().size());
    }
    std::string out;
    for (size_t l = 0; l < height; ++l)
      out += row_text([&](size_t i) { return l < cells[i].size() ? cells[i][l] : std::string(); });
    return out;
  }
  template <class F> std::string row_text(const F& text_of) const {
    std::string s;
    for (size_t i = 0; i < shown_.size(); ++i)
      s += padded(text_of(i), widths_[i], t_.columns[shown_[i]].left) + std::string(gap, ' ');
    return trimmed(s);
  }

  std::string head() const {
    size_t height = 0;
    for (const auto& h : headers_) height = std::max(height, h.size());
    std::string out, rule;
    for (size_t l = 0; l < height; ++l)
      out += row_text([&](size_t i) {  // the last lines stand on the rule
        size_t above = height - headers_[i].size();
        return l < above ? std::string() : headers_[i][l - above];
      });
    for (size_t w : widths_) {
      for (size_t i = 0; i < w; ++i) rule += "─";
      rule += std::string(gap, ' ');
    }
    return out + trimmed(rule);
  }

  // What every row says alike is said once.
  void lift_constant_keys() {
    if (t_.rows.empty()) return;
    std::vector<size_t> rest;
    for (size_t c : shown_) {
      auto same = [&](const auto& row) { return row[c] == t_.rows[0][c]; };
      bool key = c < t_.keys && std::all_of(t_.rows.begin(), t_.rows.end(), same);
      if (!key) rest.push_back(c);
      else if (!t_.rows[0][c].empty())
        lifted_ += (lifted_.empty() ? "" : ", ") + t_.columns[c].header + " " + t_.rows[0][c];
    }
    if (!rest.empty()) shown_ = rest;
    else lifted_.clear();
  }

  void measure(bool break_headers) {
    broken_ = break_headers;
    widths_.clear(), headers_.clear();
    for (size_t c : shown_) {
      size_t cells = 0;
      for (const auto& row : t_.rows) cells = std::max(cells, width_of(row[c]));
      const std::string& header = t_.columns[c].header;
      size_t w = width_of(header);
      if (break_headers) {
        w = cells;
        for (const std::string& word : words_of(header)) w = std::max(w, width_of(word));
      }
      headers_.push_back(break_headers ? lines_of(header, w) : std::vector{header});
      widths_.push_back(std::max(w, cells));
    }
  }
  size_t total() const {
    size_t sum = 0;
    for (size_t w : widths_) sum += w + gap;
    return sum > 0 ? sum - gap : 0;
  }

  // The width when all that may be made narrower is as narrow as it may be.
  size_t least_total() const {
    size_t sum = total();
    for (size_t i = 0; i < shown_.size(); ++i)
      if (t_.columns[shown_[i]].fit != Column::whole && widths_[i] > narrow) sum -= widths_[i] - narrow;
    return sum;
  }

  void drop_columns() {
    while (least_total() > limit_) {
      size_t worst = shown_.size();
      for (size_t i = 0; i < shown_.size(); ++i)
        if (t_.columns[shown_[i]].drop > (worst == shown_.size() ? 0 : t_.columns[shown_[worst]].drop)) worst = i;
      if (worst == shown_.size()) break;
      left_out_ += (left_out_.empty() ? "" : ", ") + t_.columns[shown_[worst]].header;
      shown_.erase(shown_.begin() + int64_t(worst));
      measure(broken_);
    }
  }

  // The widest that may be made narrower is, until all fits or none is left.
  void narrow_columns() {
    while (total() > limit_) {
      size_t widest = shown_.size();
      for (size_t i = 0; i < shown_.size(); ++i) {
        bool may = t_.columns[shown_[i]].fit != Column::whole && widths_[i] > narrow;
        if (may && (widest == shown_.size() || widths_[i] > widths_[widest])) widest = i;
      }
      if (widest == shown_.size()) return;
      --widths_[widest];
    }
  }

  const Table& t_;
  size_t limit_;
  bool broken_ = false;
  std::vector<size_t> shown_;  // columns
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> headers_;  // lines of each
  std::string lifted_, left_out_;
};

}  // namespace

std::string cut_to(const std::string& text, size_t width) {
  return width_of(text) <= width ? text : first(text, width - 1) + "…";
}

std::string wrapped(const std::string& text, size_t width, const std::string& indent) {
  std::string out, lead;
  size_t spaces = std::min(text.find_first_not_of(' '), text.size());
  lead.assign(spaces, ' ');
  std::string rest = text.substr(spaces);
  if (lead.size() + width_of(rest) <= width) return text + "\n";
  // The first line has the whole width; the others stand a little to the right.
  std::vector<std::string> words = words_of(rest);
  std::string line = lead;
  bool empty = true;
  for (const std::string& word : words) {
    if (!empty && width_of(line) + 1 + width_of(word) > width) {
      out += trimmed(line);
      line = lead + indent, empty = true;
    }
    line += (empty ? "" : " ") + word;
    empty = false;
  }
  return out + trimmed(line);
}

std::string render_text(const std::vector<Table>& tables, size_t width) {
  std::string out;
  for (const Table& t : tables) out += (out.empty() ? "" : "\n") + TextTable(t, width).text();
  return out;
}

}  // namespace sinter::lab
