// SPDX-License-Identifier: MIT
#include "provider/check/reports.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/json.h"
#include "provider/check/not_cancelled.h"
#include "provider/process/log.h"
#include "provider/process/notice.h"
#include "provider/process/settings.h"

namespace uiw::provider::check {

namespace {

constexpr std::size_t kMostFaults = 1000;  // more different ones are not kept

void say(const std::string& text) {
  // Line by line, since the lines of other processes may come in between.
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size() - 1);
    const std::string line = "uiw check: " + text.substr(at, end + 1 - at);
    write_to_standard_error(line.data(), line.size());
    at = end + 1;
  }
}

std::string places(const char* what, const std::vector<SourceLine>& lines) {
  constexpr std::size_t kMostCallers = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(lines.size(), kMostCallers); ++i)
    text += (i == 0 ? std::string("  ") + what + " in " : std::string("    called by ")) + text_of(lines[i]) + "\n";
  return text;
}

std::string json_of(const Reports::At& call, const std::vector<SourceLine>& lines) {
  std::vector<std::string> stack;
  stack.reserve(lines.size());
  for (const SourceLine& line : lines) {
    stack.push_back(json_object({{"function", json_string(short_name(line.function))},
                                 {"file", json_string(line.file)},
                                 {"line", std::to_string(line.line)},
                                 {"module", json_string(line.module)},
                                 {"offset", std::to_string(line.offset)}}));
  }
  return json_object({{"what", json_string(call.what)}, {"stack", json_array(stack)}});
}

// Faults that the one who posts work makes. Where librdmacm does, as for rsockets, the program cannot mend them.
bool is_of_work(FaultKind kind) {
  switch (kind) {
    case FaultKind::source_changed:
    case FaultKind::memory_overlap:
    case FaultKind::key_gone:
    case FaultKind::region_in_use:
    case FaultKind::send_queue_stuck:
    case FaultKind::cq_overrun: return true;
    default: return false;
  }
}

bool matches(const std::string& pattern, const std::vector<SourceLine>& lines) {
  const auto match = [&pattern](const std::string& text) {
    return !text.empty() && ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
  };
  return std::any_of(lines.begin(), lines.end(), [&](const SourceLine& line) {
    return match(short_name(line.function)) || match(line.file) || match(line.module);
  });
}

}  // namespace

std::string read_suppressions(const std::string& file, std::vector<Suppression>& into) {
  std::ifstream stream(file);
  if (!stream) return file + " cannot be read: " + std::strerror(errno);
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, pattern, more;
    words >> name >> pattern >> more;
    if (name.empty()) continue;
    const auto* const found =
        std::find_if(kFaults.begin(), kFaults.end(), [&](const auto& one) { return name == one.name; });
    const std::string place = file + ":" + std::to_string(number) + ": ";
    if (found == kFaults.end()) return place + "there is no fault '" + name + "'; uiw(1) lists them";
    if (!more.empty()) return place + "a line is the name of a fault and one pattern; '" + more + "' is too much";
    into.push_back({static_cast<FaultKind>(found - kFaults.begin()), pattern});
  }
  return {};
}

Reports::Reports() {
  const std::string& file = settings().values.check_suppress;
  if (!file.empty() && !read_suppressions(file, suppressions_).empty()) suppressions_.clear();
}

bool Reports::is_suppressed(const Counted& counted) const {
  return std::any_of(suppressions_.begin(), suppressions_.end(), [&](const Suppression& one) {
    return one.kind == counted.kind &&
           (one.pattern.empty() || matches(one.pattern, counted.at_lines) || matches(one.pattern, counted.other_lines));
  });
}

Reports::Counted* Reports::find(FaultKind kind, const At& at, const At& other) {
  const auto found = std::find_if(faults_.begin(), faults_.end(), [&](const Counted& known) {
    return known.kind == kind && known.at.place == at.place && known.other.place == other.place;
  });
  return found != faults_.end() ? &*found : nullptr;
}

bool Reports::knows(FaultKind kind, const At& at, const At& other) {
  const LockGuard lock(mutex_);
  return find(kind, at, other) != nullptr;
}

bool Reports::is_new(FaultKind kind, const At& at, const At& other) {
  const LockGuard lock(mutex_);
  Counted* const known = find(kind, at, other);
  if (known != nullptr) ++known->times;
  return known == nullptr && faults_.size() < kMostFaults;
}

void Reports::add(FaultKind kind, const At& at, const At& other, std::string text) {
  const LockGuard lock(mutex_);
  faults_.push_back({kind, std::move(text), at, other});
  any_new_.store(true);
}

void Reports::show_new() noexcept {
  if (!any_new_.load(std::memory_order_relaxed)) return;
  const int saved = errno;
  const NotCancelled not_cancelled;
  try {
    any_new_.store(false);
    for (std::size_t i = 0;; ++i) {
      Counted* fault = nullptr;
      {
        const LockGuard lock(mutex_);
        while (i < faults_.size() && faults_[i].shown) ++i;
        if (i >= faults_.size()) break;
        fault = &faults_[i];
        fault->shown = true;
      }
      std::vector<SourceLine> at = lines_of(fault->at.place), other = lines_of(fault->other.place);
      const LockGuard lock(mutex_);
      fault->at_lines = std::move(at);
      fault->other_lines = std::move(other);
      fault->suppressed = is_suppressed(*fault) || (is_of_work(fault->kind) && is_made_by_librdmacm(fault->at.place));
      if (!fault->suppressed) show(*fault);
    }
  } catch (const std::exception&) {
  }
  errno = saved;
}

void Reports::show(const Counted& counted) {
  const FaultInfo& info = info_of(counted.kind);
  std::string text = std::string(info.name) + ": " + counted.text + "\n";
  text += places(counted.at.what, counted.at_lines);
  text += places(counted.other.what, counted.other_lines);
  text += std::string("  ") + info.advice + "\n";
  say(text);
}

void Reports::write_file() {
  const std::string& file = settings().values.check_report;
  if (file.empty()) return;
  const int fd = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
  if (fd < 0) return say(file + " cannot be written: " + text_of_errno(errno) + "\n");
  for (const Counted& counted : faults_) {
    const FaultInfo& info = info_of(counted.kind);
    const std::string line = json_object({{"fault", json_string(info.name)},
                                          {"process", std::to_string(::getpid())},
                                          {"times", std::to_string(counted.times)},
                                          {"suppressed", json_bool(counted.suppressed)},
                                          {"text", json_string(counted.text)},
                                          {"advice", json_string(info.advice)},
                                          {"at", json_of(counted.at, counted.at_lines)},
                                          {"other", json_of(counted.other, counted.other_lines)}}) +
                             "\n";
    if (::write(fd, line.data(), line.size()) < 0) break;
  }
  ::close(fd);
}

std::size_t Reports::finish() {
  show_new();
  const LockGuard lock(mutex_);
  write_file();
  std::size_t shown = 0, suppressed = 0;
  std::string text;
  for (const Counted& counted : faults_) {
    if (counted.suppressed) {
      ++suppressed;
      continue;
    }
    ++shown;
    text += "  " + (counted.times == 1 ? "once" : std::to_string(counted.times) + " times") + ": " +
            info_of(counted.kind).name;
    if (!counted.at_lines.empty()) text += " in " + text_of(counted.at_lines.front());
    text += "\n";
  }
  std::string heading = std::to_string(shown) + (shown == 1 ? " fault" : " faults");
  if (suppressed != 0) heading += ", and " + std::to_string(suppressed) + " suppressed";
  say("process " + std::to_string(::getpid()) + ": " + heading + "\n" + text);
  return shown;
}

}  // namespace uiw::provider::check
