// SPDX-License-Identifier: MIT
// The single checks of `uiw doctor`. None prints; none takes longer than the self-test's 20 seconds.
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
  std::string advice;   // what to do about it; empty where nothing is to be done
};

// All checks, in the order in which a reader wants to mend what is wrong.
std::vector<Finding> examine();

// "44.0" from ".../libibverbs.so.1.14.44.0": rdma-core's release ends the file name.
std::string release_of(const std::string& path);

// The address to connect over: 127.0.0.1 where a device has it, else the first of the first device that needs
// no scope. Empty where there is none.
std::string selftest_address(const std::vector<provider::DeviceInfo>& devices);

}  // namespace uiw::tools
