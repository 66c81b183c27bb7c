// SPDX-License-Identifier: MIT
// Who calls, and does this call fail? For the functions of libfaults.so that stand in front of libc's.
#pragma once

#include "tests/faults/faults.h"

namespace faults {

// Where uiw calls from; `count` is 0 where the caller is not uiw.
struct Caller {
  Frames frames{};
  std::size_t count = 0;
};

// `from` is the return address of the function that was called.
Caller caller(const void* from);

// Whether some call is to fail, or calls are logged.
bool is_watching();
// Whether the calls with this socket pass.
bool is_spared(int fd);
// Counts the call. 0, or the errno or kShort with which it ends.
int decide(Function function, unsigned traits, const Caller& who);

// Marks a thread that is inside of libfaults.so, whose own calls are not counted.
class Inside {
 public:
  Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside();
  static bool already();
};

}  // namespace faults
