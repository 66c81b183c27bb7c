// SPDX-License-Identifier: MIT
#include "tools/doctor/doctor.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/json.h"
#include "tools/child.h"
#include "tools/doctor/checks.h"

namespace uiw::tools {
namespace {

const char* word_for(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok: return "ok";
    case Verdict::warn: return "warn";
    case Verdict::fail: break;
  }
  return "FAIL";
}

void print_json(const std::vector<Finding>& findings, bool healthy) {
  std::vector<std::string> rows;
  rows.reserve(findings.size());
  for (const Finding& finding : findings)
    rows.push_back(json_object({{"verdict", json_string(word_for(finding.verdict))},
                                {"subject", json_string(finding.subject)},
                                {"text", json_string(finding.text)},
                                {"advice", json_string(finding.advice)}}));
  std::printf("%s\n", json_object({{"healthy", json_bool(healthy)}, {"findings", json_array(rows)}}).c_str());
}

int examine_and_print(bool json) {
  catch_interrupts();
  const std::vector<Finding> findings = examine();
  const bool healthy = std::none_of(findings.begin(), findings.end(),
                                    [](const Finding& finding) { return finding.verdict == Verdict::fail; });
  if (json) {
    print_json(findings, healthy);
  } else {
    for (const Finding& finding : findings)
      std::printf("%-4s  %s: %s%s%s\n", word_for(finding.verdict), finding.subject.c_str(), finding.text.c_str(),
                  finding.advice.empty() ? "" : "; ", finding.advice.c_str());
  }
  return healthy ? 0 : 1;
}

}  // namespace

Action add_doctor(CLI::App& command) {
  auto json = std::make_shared<bool>(false);
  command.add_flag("--json", *json, "Print JSON");
  command.footer(
      "Each line starts with ok, warn or FAIL. Exit status 0 where nothing failed, else 1.\n"
      "Where a program fails although all of this is ok, uiw run --log - PROGRAM says why.");
  return [json] { return examine_and_print(*json); };
}

}  // namespace uiw::tools
