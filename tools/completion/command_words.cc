// SPDX-License-Identifier: MIT
#include "tools/completion/command_words.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

namespace uiw::tools {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

bool is_word(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '+';
  });
}

// A set of CLI::IsMember reads "TEXT:{on,off}"; a type name that is itself a choice, "on|off".
std::vector<std::string> choices_of(const std::string& type) {
  const std::size_t open = type.find('{'), close = type.rfind('}');
  std::vector<std::string> found;
  if (open != std::string::npos && close != std::string::npos && open < close)
    found = split(type.substr(open + 1, close - open - 1), ',');
  else if (type.find('|') != std::string::npos)
    found = split(type, '|');
  return std::all_of(found.begin(), found.end(), is_word) ? found : std::vector<std::string>();
}

ValueWords value_of(const CLI::Option& option) {
  ValueWords value;
  if (option.get_items_expected_max() == 0) return value;
  const std::string type = option.get_type_name();
  value.name = option.get_positional() ? option.get_name(true) : type;
  value.choices = choices_of(type);
  if (value.name == "PROGRAM")
    value.kind = ValueKind::program;
  else if (!value.choices.empty())
    value.kind = ValueKind::choice;
  else if (type.find("DIR") != std::string::npos)
    value.kind = ValueKind::directory;
  else if (type.find("FILE") != std::string::npos || type.find("PATH") != std::string::npos)
    value.kind = ValueKind::file;
  else
    value.kind = ValueKind::any;
  return value;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

CommandWords command_words(const CLI::App& app) {
  CommandWords words{app.get_name(), one_line(app.get_description()), {}, {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    if (!option->nonpositional()) {
      words.positionals.push_back(value_of(*option));
      continue;
    }
    OptionWords found{{}, one_line(option->get_description()), value_of(*option)};
    for (const std::string& name : option->get_snames()) found.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) found.names.push_back("--" + name);
    words.options.push_back(found);
  }
  const auto shown = [](const CLI::App* command) { return !command->get_group().empty(); };
  for (const CLI::App* command : app.get_subcommands(shown)) {
    words.subcommands.push_back(command_words(*command));
    words.subcommands.back().subcommands.clear();
  }
  return words;
}

std::string function_name(const std::string& name) {
  std::string made = name;
  std::replace_if(
      made.begin(), made.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return made;
}

std::string shell_word(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string joined(const std::vector<std::string>& texts, const char* separator) {
  std::string all;
  for (std::size_t i = 0; i < texts.size(); ++i) all += (i == 0 ? "" : separator) + texts[i];
  return all;
}

std::string shell_words(const std::vector<std::string>& texts) {
  std::vector<std::string> words;
  words.reserve(texts.size());
  for (const std::string& text : texts) words.push_back(is_word(text) ? text : shell_word(text));
  return joined(words, " ");
}

std::string filled(std::string script, const std::vector<std::pair<std::string, std::string>>& values) {
  for (const auto& [name, value] : values) {
    const std::string mark = "@" + name + "@";
    for (std::size_t at = script.find(mark); at != std::string::npos; at = script.find(mark, at + value.size()))
      script.replace(at, mark.size(), value);
  }
  return script;
}

}  // namespace uiw::tools
