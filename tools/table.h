// SPDX-License-Identifier: MIT
// Tables for people: each column is as wide as its widest cell, with two spaces between columns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace uiw::tools {

// One line of text for each row, with a line end. There is at least one row, and all rows have the same number of
// cells.
inline std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows[0].size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      if (i + 1 < row.size()) text.append(widths[i] - row[i].size() + 2, ' ');
    }
    text += '\n';
  }
  return text;
}

}  // namespace uiw::tools
