// SPDX-License-Identifier: MIT
#include "provider/process/log.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "base/descriptor.h"
#include "base/file_limit.h"
#include "provider/process/notice.h"

namespace uiw::provider {

namespace {

using Line = std::array<char, 1024>;

// Begins the line with "2026-01-31T12:00:00.000000Z 4711 uiw: ". Does not use localtime_r(), which takes a lock of libc
// that a fork may leave taken.
std::size_t begin_line(Line& line) {
  using namespace std::chrono;
  const auto now = floor<microseconds>(system_clock::now());
  const auto day = floor<days>(now);
  const year_month_day date(day);
  const hh_mm_ss time(now - day);
  const int length = std::snprintf(
      line.data(), line.size(), "%04d-%02u-%02uT%02d:%02d:%02d.%06dZ %d uiw: ", static_cast<int>(date.year()),
      static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), static_cast<int>(time.hours().count()),
      static_cast<int>(time.minutes().count()), static_cast<int>(time.seconds().count()),
      static_cast<int>(time.subseconds().count()), static_cast<int>(::getpid()));
  return static_cast<std::size_t>(std::max(length, 0));
}

void tell_of(const char* path, int error) {
  const char* const why = error == ENXIO ? "nobody reads it" : text_of_errno(error);  // ENXIO: the file is a FIFO
  say_once(Cause::log, "the log %s cannot be written: %s", path, why);
}

// Uses bare system calls: some of libc's functions are cancellation points or hooked by uiw's preload library.
void append(const char* path, const char* line, std::size_t size) {
  // O_NONBLOCK, since without it open() of a FIFO that nobody reads would block.
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  const int fd = DescriptorChange().guard(static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, kFlags, 0644)));
  if (fd < 0) return tell_of(path, errno);
  if (may_write(fd, size)) {
    ::syscall(SYS_fcntl, fd, F_SETFL, O_APPEND);
    [[maybe_unused]] const long written = ::syscall(SYS_write, fd, line, size);
  } else {
    tell_of(path, EFBIG);
  }
  close_descriptor(fd);
}

}  // namespace

void log_event(LogLevel level, const char* format, ...) {
  if (!logs(level)) return;
  const int saved_errno = errno;
  Line line;
  const std::size_t start = begin_line(line);
  std::va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(line.data() + start, line.size() - start, format, arguments);
  va_end(arguments);
  if (length >= 0) {
    // The newline replaces the null octet after the text. vsnprintf() writes this octet even if it cuts the text.
    const std::size_t end = std::min(start + static_cast<std::size_t>(length), line.size() - 1);
    line[end] = '\n';
    const std::string& to = settings().values.log;
    if (to == kLogToStandardError) {
      write_to_standard_error(line.data(), end + 1);
    } else {
      append(to.c_str(), line.data(), end + 1);
    }
  }
  errno = saved_errno;
}

const char* text_of_errno(int error) {
#if __GLIBC_PREREQ(2, 32)
  const char* text = ::strerrordesc_np(error);
  return text != nullptr ? text : "unknown error";
#else
  return std::strerror(error);
#endif
}

AddressText::AddressText(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> host{};
  if (address.ss_family == AF_INET) {
    const auto& ip = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &ip.sin_addr, host.data(), host.size());
    std::snprintf(text_.data(), text_.size(), "%s:%u", host.data(), ntohs(ip.sin_port));
  } else if (address.ss_family == AF_INET6) {
    const auto& ip = reinterpret_cast<const sockaddr_in6&>(address);
    ::inet_ntop(AF_INET6, &ip.sin6_addr, host.data(), host.size());
    std::array<char, 16> scope{};
    if (ip.sin6_scope_id != 0) std::snprintf(scope.data(), scope.size(), "%%%u", ip.sin6_scope_id);
    std::snprintf(text_.data(), text_.size(), "[%s%s]:%u", host.data(), scope.data(), ntohs(ip.sin6_port));
  } else {
    std::snprintf(text_.data(), text_.size(), "no address");
  }
}

}  // namespace uiw::provider
