#include "cli/misuse.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <vector>

namespace sinter::cli {
namespace {

using Commands = std::vector<const CLI::App*>;
using Words = std::vector<std::string>;

std::string words_of(const CLI::App* command) {  // "sinter bench model"
  const CLI::App* parent = command->get_parent();
  return parent ? words_of(parent) + " " + command->get_name() : command->get_name();
}

Commands below(const CLI::App* command) { return command->get_subcommands(nullptr); }

Words names_of(const Commands& commands) {
  Words names;
  for (const CLI::App* c : commands) names.push_back(c->get_name());
  return names;
}

Words options_of(const CLI::App* command) {  // with two dashes, but for those that help does not show
  Words names;
  for (const CLI::Option* o : command->get_options())
    for (const std::string& name : o->get_lnames())
      if (!o->get_group().empty()) names.push_back("--" + name);
  return names;
}

// The commands that were understood, the program first.
Commands understood(const CLI::App& root) {
  Commands path = {&root};
  while (!path.back()->get_subcommands().empty()) path.push_back(path.back()->get_subcommands().back());
  return path;
}

// A word without what people vary: dashes, underscores, capitals.
std::string plain(const std::string& word) {
  std::string text;
  for (char c : word.substr(std::min(word.size(), word.find_first_not_of('-'))))
    text += c == '_' ? '-' : char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// How many letters are missing, too many, wrong or swapped with the next.
size_t mistakes(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

// What was probably meant: one with few mistakes, or the only one that begins so. Empty if there is none.
std::string closest(const std::string& typed, const Words& known) {
  std::string word = plain(typed).substr(0, 100), best;
  size_t fewest = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& name : known)
    if (size_t n = mistakes(word, plain(name)); n < fewest) fewest = n, best = name;
  if (!best.empty()) return best;
  Words longer;
  for (const std::string& name : known)
    if (plain(name).rfind(word, 0) == 0) longer.push_back(name);
  return longer.size() == 1 ? longer[0] : "";
}

// Another command that has this option or this name, below `command`.
const CLI::App* owner_of(const std::string& word, const CLI::App* command) {
  Words options = options_of(command);
  if (command->get_name() == word || std::find(options.begin(), options.end(), word) != options.end()) return command;
  for (const CLI::App* c : below(command))
    if (const CLI::App* owner = owner_of(word, c)) return owner;
  return nullptr;
}

std::string unexpected(const CLI::App& root, const CLI::App* command, const std::string& word) {
  bool option = word.size() > 1 && word[0] == '-', group = !below(command).empty();
  std::string name = option ? word.substr(0, word.find('=')) : word, here = words_of(command);
  std::string what = fmt::format("{}: {} {}", name.empty() ? "\"\"" : name, here,
                                 option  ? "has no such option"
                                 : group ? "has no such command"
                                         : "takes no such argument");
  Words known = option || !group ? options_of(command) : names_of(below(command));
  if (std::string meant = closest(name, known); !meant.empty()) return what + fmt::format("; did you mean {}?", meant);
  const CLI::App* deepest = understood(root).back();
  const CLI::App* owner = owner_of(name, deepest);
  if (!owner && (option || group)) owner = owner_of(name, &root);
  if (owner && owner != command) return what + fmt::format(", but {} {}", words_of(owner), option ? "has" : "is one");
  return group && !option ? what + fmt::format("; choose {}", fmt::join(known, ", ")) : what;
}

std::string wrong_count(const CLI::Option* option, const std::string& name) {
  std::string type = option->get_type_name();
  if (option->results().empty()) return fmt::format("{}: its value is missing; give {} {}", name, name, type);
  bool list = type.find(",..") != std::string::npos;
  return fmt::format("{}: given {} times; give it once{}", name, option->results().size(),
                     list ? ", and several values with commas" : "");
}

std::string flag_with_a_value(const CLI::App* command) {
  for (const CLI::Option* o : command->get_options())
    if (o->get_items_expected_max() == 0)
      for (const std::string& value : o->results())
        if (value != "true" && value != "false") return o->get_name();
  return "";
}

std::string missing_from(const CLI::App* command, const CLI::ParseError& error) {
  if (!below(command).empty())
    return fmt::format("{} needs a subcommand: {}", words_of(command), fmt::join(names_of(below(command)), ", "));
  for (const CLI::Option* o : command->get_options())
    if (o->get_positional() && o->get_required() && o->results().empty())
      return fmt::format("{} needs a {}: {}", words_of(command), o->get_type_name(), o->get_description());
  return error.what();
}

}  // namespace

std::string misuse(const CLI::App& root, const CLI::ParseError& error) {
  Commands path = understood(root);
  auto explained = [&](const CLI::App* command, const std::string& what) {
    return fmt::format("{}{} {} --help", what, what.back() == '?' ? " See" : "; see", words_of(command));
  };
  bool extras = dynamic_cast<const CLI::ExtrasError*>(&error),
       required = dynamic_cast<const CLI::RequiredError*>(&error);
  // A word that was not understood is the reason also where the library misses what it should have been.
  if (extras || required)
    for (const CLI::App* command : path)
      if (Words words = command->remaining(); !words.empty())
        return explained(command, unexpected(root, command, words[0]));
  if (required) return explained(path.back(), missing_from(path.back(), error));
  std::string text = error.what(), name = text.substr(0, text.find(':'));
  const CLI::Option* option = path.back()->get_option_no_throw(name);
  if (option && dynamic_cast<const CLI::ArgumentMismatch*>(&error))
    return explained(path.back(), wrong_count(option, name));
  if (dynamic_cast<const CLI::ConversionError*>(&error))  // all other options are text
    if (std::string flag = flag_with_a_value(path.back()); !flag.empty())
      return explained(path.back(), flag + ": takes no value; leave it out, or the whole flag");
  return explained(path.back(), text);
}

}  // namespace sinter::cli
