// SPDX-License-Identifier: MIT
// The words that shells complete, as CLI11's description of a command line has them, and the scripts that are made of
// them. tests/apps/interfaces/completion.py runs the scripts.
#include "tools/completion/completion.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <string_view>

#include "provider/process/settings.h"
#include "tools/command_line.h"
#include "tools/completion/command_words.h"
#include "tools/version/version.h"

using namespace uiw::tools;

namespace {

using Words = std::vector<std::string>;

const OptionWords& option(const CommandWords& command, std::string_view name) {
  const auto found = std::find_if(command.options.begin(), command.options.end(), [&](const OptionWords& one) {
    return std::find(one.names.begin(), one.names.end(), name) != one.names.end();
  });
  CAPTURE(name);
  REQUIRE(found != command.options.end());
  return *found;
}

const CommandWords& subcommand(const CommandWords& command, std::string_view name) {
  const auto found = std::find_if(command.subcommands.begin(), command.subcommands.end(),
                                  [&](const CommandWords& one) { return one.name == name; });
  CAPTURE(name);
  REQUIRE(found != command.subcommands.end());
  return *found;
}

// An app with all that completion knows.
CommandWords example() {
  static std::string text;
  static std::vector<std::string> texts;
  static bool flag = false;
  CLI::App app{"An example", "ex-1"};
  app.add_option("-c,--config", text, "It's [a]: file")->check(CLI::ExistingFile);
  CLI::App* go = app.add_subcommand("go", "Go\nthere");
  go->add_flag("-q,--quiet", flag, "Say nothing");
  go->add_option("--size", text, "How large")->check(CLI::IsMember({"s", "l"}));
  go->add_option("--colour", text, "Which")->type_name("red|green");
  go->add_option("--into", text, "Where")->check(CLI::ExistingDirectory);
  go->add_option("--times", text, "How often")->check(CLI::Range(1, 9));
  go->add_option("--secret", text, "Not shown")->group("");
  go->add_option("PROGRAM", texts, "What to run");
  CLI::App* ask = app.add_subcommand("ask", "Ask");
  ask->add_option("FIRST", text, "What first")->check(CLI::IsMember({"who", "why"}));
  app.add_subcommand("hidden", "Not shown")->group("");
  return command_words(app);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("completion: options have their names and what their values may be") {
  const CommandWords words = example();
  CHECK(words.name == "ex-1");
  CHECK(words.help == "An example");
  CHECK(option(words, "-h").names == Words{"-h", "--help"});
  CHECK(option(words, "--help").value.kind == ValueKind::none);
  CHECK(option(words, "--config").names == Words{"-c", "--config"});
  CHECK(option(words, "--config").value.kind == ValueKind::file);
  const CommandWords& go = subcommand(words, "go");
  CHECK(go.help == "Go there");
  CHECK(option(go, "--quiet").value.kind == ValueKind::none);
  CHECK(option(go, "--quiet").help == "Say nothing");
  CHECK(option(go, "--size").value.kind == ValueKind::choice);
  CHECK(option(go, "--size").value.choices.size() == 2);  // in an order of CLI11's
  CHECK(option(go, "--colour").value.choices == Words{"red", "green"});
  CHECK(option(go, "--into").value.kind == ValueKind::directory);
  CHECK(option(go, "--times").value.kind == ValueKind::any);
  CHECK(go.options.size() == 6);  // and --help
}

TEST_CASE("completion: positionals and subcommands, without the hidden ones") {
  const CommandWords words = example();
  CHECK(words.positionals.empty());
  REQUIRE(words.subcommands.size() == 2);
  REQUIRE(subcommand(words, "go").positionals.size() == 1);
  CHECK(subcommand(words, "go").positionals[0].kind == ValueKind::program);
  REQUIRE(subcommand(words, "ask").positionals.size() == 1);
  CHECK(subcommand(words, "ask").positionals[0].name == "FIRST");
  CHECK(subcommand(words, "ask").positionals[0].kind == ValueKind::choice);
}

TEST_CASE("completion: each script names its function by the command, and quotes for its shell") {
  const CommandWords words = example();
  const std::string bash = bash_completion(words), zsh = zsh_completion(words), fish = fish_completion(words);
  CHECK(contains(bash, "\ncomplete -F _ex_1 ex-1\n"));
  CHECK(contains(bash, "_ex_1_offer red green"));
  CHECK(contains(zsh, "#compdef ex-1\n"));
  CHECK(contains(zsh, R"('(-c --config)--config=[It'\''s \[a\]\: file]:)"));
  CHECK(contains(zsh, ":red|green:(red green)'"));
  CHECK(contains(fish, "\ncomplete -c ex-1 -f\n"));
  CHECK(contains(fish, R"( -s c -l config -r -F -d 'It\'s [a]: file')"));
  CHECK(contains(fish, "-l colour -x -a 'red green' -d 'Which'\n"));
  for (const std::string& script : {bash, zsh, fish}) {
    CHECK_FALSE(contains(script, "secret"));
    CHECK_FALSE(contains(script, "hidden"));
  }
}

TEST_CASE("completion: a command without subcommands has a script too") {
  CLI::App app{"Alone", "alone"};
  CHECK(contains(bash_completion(command_words(app)), "alone_offer -h --help"));
  CHECK_FALSE(contains(zsh_completion(command_words(app)), "->command"));
  CHECK(contains(fish_completion(command_words(app)), "-s h -l help"));
}

TEST_CASE("completion: uiw's own command line") {
  const auto line = command_line("uiw", {});
  const CommandWords words = command_words(line->app);
  Words names;
  for (const CommandWords& command : words.subcommands) names.push_back(command.name);
  CHECK(names == Words{"run", "devices", "doctor", "bench", "completion"});
  CHECK(option(words, "--version").value.kind == ValueKind::none);
  const CommandWords& run = subcommand(words, "run");
  REQUIRE(run.positionals.size() == 1);
  CHECK(run.positionals[0].kind == ValueKind::program);
  for (const auto& setting : uiw::provider::setting_table()) {
    const ValueWords& value = option(run, setting.option).value;
    CHECK(value.kind != ValueKind::none);
    for (const std::string& choice : value.choices)
      CHECK(uiw::provider::check_setting(setting.variable, choice).empty());
  }
  CHECK(option(run, "--crc").value.choices == Words{"auto", "on", "off"});
  CHECK(option(run, "--mulpdu").value.kind == ValueKind::any);
  CHECK(option(run, "--runtime-dir").value.kind == ValueKind::directory);
}

TEST_CASE("version: with the commit in parentheses, where it is known") {
  const std::string plain = std::string("uiw ") + uiw::kVersion;
  CHECK(version_text("") == plain);
  CHECK(version_text("0123456789ab+changes") == plain + " (0123456789ab+changes)");
}
