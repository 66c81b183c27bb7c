// SPDX-License-Identifier: MIT
// The checks of `uiw doctor`. They print nothing, and none takes longer than the 20 seconds of the self-test.
#pragma once

#include <string>
#include <vector>

#include "provider/process/device.h"

namespace uiw::tools {

enum class Verdict { ok, warn, fail };

struct Finding {
  Verdict verdict = Verdict::ok;
  std::string subject;  // "libibverbs"
  std::string text;     // what was found
  std::string advice;   // what to do about it; empty if there is nothing to do
};

// Runs all checks, in the order in which problems should be corrected.
std::vector<Finding> examine();

// "44.0" from ".../libibverbs.so.1.14.44.0": the file name ends with the release of rdma-core.
std::string release_of(const std::string& path);

// What is found in the output of uiw-selftest, which has log lines of uiw in between: the last line that is not a log
// line, and what the connection used according to the log, "TCP" or "shared memory".
struct SelftestOutput {
  std::string said;
  std::string way = "TCP";
};
SelftestOutput selftest_output(const std::string& output);

// The address for the self-test: 127.0.0.1 if a device has it, else the first address that is not link-local. Empty if
// there is none.
std::string selftest_address(const std::vector<provider::DeviceInfo>& devices);

}  // namespace uiw::tools
