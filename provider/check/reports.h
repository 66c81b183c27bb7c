// SPDX-License-Identifier: MIT
// Reports faults: each once, when it is first found, on standard error, and with how often it happened in a summary
// when the process ends. A fault is the same if its kind and its places are. Thread-safe; its lock is the innermost
// one.
//
// UIW_CHECK_REPORT names a file to which a JSON object is appended for each fault at the end, one a line.
// UIW_CHECK_SUPPRESS names a file of faults that are known; each of its lines is the name of a fault, and perhaps a
// pattern as of glob(7), which one of the functions, source files or modules of the fault's places has to match:
//
//   leak  main
//   memory-overlap  */ib_send_bw   # perftest receives into one buffer
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/lock_annotations.h"
#include "base/mutex.h"
#include "provider/check/fault.h"
#include "provider/check/source_line.h"
#include "provider/export.h"

namespace uiw::provider::check {

struct Suppression {
  FaultKind kind;
  std::string pattern;  // empty: each fault of this kind
};

// Reads a file of suppressions. Returns an empty string, or says what is wrong with the file. Throws std::bad_alloc.
UIW_API std::string read_suppressions(const std::string& file, std::vector<Suppression>& into);

class Reports {
 public:
  // Reads the settings. A suppression file that cannot be read suppresses nothing.
  Reports();

  // A call of the program, and what it did there, for example "posted".
  struct At {
    Place place{};
    const char* what = "";
  };
  // Whether this fault was not found before: `at` is the call that shows it, `other` the call that this conflicts with,
  // if there is one. A fault that is not new is counted.
  bool is_new(FaultKind kind, const At& at, const At& other) UIW_EXCLUDES(mutex_);
  // As is_new(), without counting.
  bool knows(FaultKind kind, const At& at, const At& other) UIW_EXCLUDES(mutex_);
  // Adds a fault that is new, to be shown by show_new(). `text` is one sentence with the objects and their numbers.
  // Throws std::bad_alloc.
  void add(FaultKind kind, const At& at, const At& other, std::string text) UIW_EXCLUDES(mutex_);
  // Shows what was added since. To be called without a lock: it reads debugging information, by the dynamic linker.
  void show_new() noexcept UIW_EXCLUDES(mutex_);
  // Writes the summary and the file of reports. Returns how many faults there are that are not suppressed.
  std::size_t finish();
  // In the child of a fork, with the lock held: forgets what its parent has reported.
  void forget() UIW_REQUIRES(mutex_) { faults_.clear(); }
  TableMutex& mutex() UIW_RETURN_CAPABILITY(mutex_) { return mutex_; }

 private:
  struct Counted {
    FaultKind kind;
    std::string text;
    At at, other;
    std::vector<SourceLine> at_lines{}, other_lines{};
    std::uint64_t times = 1;
    bool suppressed = false, shown = false;
  };
  Counted* find(FaultKind kind, const At& at, const At& other) UIW_REQUIRES(mutex_);
  bool is_suppressed(const Counted& counted) const;
  static void show(const Counted& counted);
  void write_file() UIW_REQUIRES(mutex_);

  TableMutex mutex_;
  std::vector<Suppression> suppressions_;
  std::deque<Counted> faults_ UIW_GUARDED_BY(mutex_);  // whose elements stay where they are
  std::atomic<bool> any_new_{false};
};

}  // namespace uiw::provider::check
