// SPDX-License-Identifier: MIT
#include "base/json.h"

#include <cmath>
#include <cstdio>

namespace uiw {
namespace {

// The length of the UTF-8 sequence (RFC 3629 section 4) at the start of `text`; 0 if there is none.
std::size_t utf8_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  std::size_t length = 0;
  if (first < 0x80)
    length = 1;
  else if (first >= 0xC2 && first <= 0xDF)
    length = 2;
  else if (first >= 0xE0 && first <= 0xEF)
    length = 3;
  else if (first >= 0xF0 && first <= 0xF4)
    length = 4;
  if (length == 0 || length > text.size()) return 0;
  // After these first octets some second octets would make an overlong form, a surrogate or a number above 10FFFF.
  const auto second = length > 1 ? static_cast<unsigned char>(text[1]) : 0;
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) || (first == 0xF0 && second < 0x90) ||
      (first == 0xF4 && second > 0x8F))
    return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 0;
  return length;
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text[0]);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
      text.remove_prefix(1);
    } else if (c < 0x20 || c == 0x7F) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
      text.remove_prefix(1);
    } else if (const std::size_t length = utf8_length(text); length > 0) {
      out += text.substr(0, length);
      text.remove_prefix(length);
    } else {
      out += "\\ufffd";
      text.remove_prefix(1);
    }
  }
  return out + "\"";
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[40];
  std::snprintf(text, sizeof text, "%.10g", value);
  return text;
}

std::string json_bool(bool value) { return value ? "true" : "false"; }

std::string json_array(const std::vector<std::string>& values) {
  std::string out = "[";
  for (std::size_t i = 0; i < values.size(); ++i) out += (i > 0 ? ", " : "") + values[i];
  return out + "]";
}

std::string json_object(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string out = "{";
  for (std::size_t i = 0; i < members.size(); ++i)
    out += (i > 0 ? ", " : "") + json_string(members[i].first) + ": " + members[i].second;
  return out + "}";
}

}  // namespace uiw
