// SPDX-License-Identifier: MIT
// Writing JSON (RFC 8259), as much of it as the --json options and reports need.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace uiw {

// Each returns the text of a JSON value.
std::string json_string(std::string_view text);  // bytes that are not UTF-8 become U+FFFD
std::string json_number(double value);           // null if the value is not finite
std::string json_bool(bool value);
std::string json_array(const std::vector<std::string>& values);
std::string json_object(const std::vector<std::pair<std::string, std::string>>& members);

}  // namespace uiw
