# SPDX-License-Identifier: MIT
# At each build: writes the header `output` with the commit of the tree `source`, if it has changed. In a checkout asks
# git; an archive of `git archive` has the commit in a file; other trees have none. So that builds are reproducible, the
# header has neither time nor path, and the hash twelve digits: the number that git chooses depends on the clone.
set(commit "")
if(EXISTS "${source}/.git")
  find_program(git git)
  if(git)
    cmake_path(GET source PARENT_PATH parent)
    set(ENV{GIT_OPTIONAL_LOCKS} 0)
    set(ENV{GIT_CEILING_DIRECTORIES} "${parent}")
    execute_process(COMMAND "${git}" -C "${source}" describe --always --abbrev=12 --exclude=* --dirty=+changes
                    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
elseif(EXISTS "${source}/tools/version/archived-commit")
  file(STRINGS "${source}/tools/version/archived-commit" commit LIMIT_COUNT 1)
  string(SUBSTRING "${commit}" 0 12 commit)
endif()
if(NOT commit MATCHES "^[0-9a-f]+(\\+changes)?$")
  set(commit "")
endif()
file(CONFIGURE OUTPUT "${output}" @ONLY CONTENT [[
// SPDX-License-Identifier: MIT
// Written by tools/version/commit.cmake.
#pragma once

namespace uiw::tools {

inline constexpr char kCommit[] = "@commit@";

}  // namespace uiw::tools
]])
