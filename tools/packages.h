// SPDX-License-Identifier: MIT
// Names of the packages with the libraries and programs that uiw uses, for messages.
#pragma once

#include <string>
#include <vector>

namespace uiw::tools {

struct Package {
  const char* debian;
  const char* fedora;  // and RHEL
};

inline constexpr Package kLibibverbs{"libibverbs1", "libibverbs"};
inline constexpr Package kLibrdmacm{"librdmacm1", "librdmacm"};
inline constexpr Package kIbverbsUtils{"ibverbs-utils", "libibverbs-utils"};
inline constexpr Package kRdmacmUtils{"rdmacm-utils", "librdmacm-utils"};
inline constexpr Package kPerftest{"perftest", "perftest"};
inline constexpr Package kPython3{"python3", "python3"};

// "apt-get install libibverbs1 (Fedora: dnf install libibverbs)"
inline std::string how_to_install(const std::vector<Package>& packages) {
  std::string debian = "apt-get install";
  std::string fedora = "dnf install";
  for (const Package& package : packages) {
    debian += std::string(" ") + package.debian;
    fedora += std::string(" ") + package.fedora;
  }
  return debian + " (Fedora: " + fedora + ")";
}

}  // namespace uiw::tools
