// SPDX-License-Identifier: MIT
// GIDs and their IP addresses as text.
#pragma once

#include <arpa/inet.h>

#include <cstddef>
#include <string>

#include "provider/process/device.h"

namespace uiw::tools {

// "192.0.2.1" or "2001:db8::1"
inline std::string address_text(const provider::Gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  if (provider::is_ipv4(gid))
    inet_ntop(AF_INET, gid.data() + 12, text, sizeof text);
  else
    inet_ntop(AF_INET6, gid.data(), text, sizeof text);
  return text;
}

// All eight groups, as ibv_devinfo -v and sysfs print a GID.
inline std::string gid_text(const provider::Gid& gid) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < gid.size(); ++i) {
    if (i > 0 && i % 2 == 0) text += ':';
    text += digits[gid[i] >> 4];
    text += digits[gid[i] & 15];
  }
  return text;
}

}  // namespace uiw::tools
