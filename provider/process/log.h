// SPDX-License-Identifier: MIT
// The log: one line for each event of devices, connections and queue pairs, and for each call of verbs or rdma_cm that
// uiw refuses, since programs often report only that something failed.
//
// UIW_LOG names a file or standard error, UIW_LOG_LEVEL says how much is logged (provider/process/settings.h). Nothing
// is logged for each work request or completion.
#pragma once

#include <sys/socket.h>

#include <array>

#include "provider/export.h"
#include "provider/process/settings.h"

namespace uiw::provider {

// Whether events of this level are logged. Call this before log_event() if its arguments are expensive to compute.
inline bool logs(LogLevel level) { return settings().values.log_level >= level; }

// Appends a line: the time in UTC, the process id, and the text, of which at most about 980 octets are kept. Does
// nothing if logs(level) is false. The file is opened for each line, so that there is no descriptor that the program
// might close. Standard error is written only if it is still the file that it was when the library was loaded. Keeps
// errno. Thread-safe; takes no lock, allocates nothing, and is no cancellation point; blocks as write(2) on that file
// does.
__attribute__((format(printf, 2, 3))) UIW_API void log_event(LogLevel level, const char* format, ...);

// Appended to the log line about a connection that the peer has given up, if this end asks for markers (UIW_MARKERS).
inline constexpr const char* kNoMarkersPerhaps =
    "; it may not support markers, which this end asks for: try --markers off";

// Describes an errno in English. With glibc 2.32 or later the function takes no lock and allocates nothing, unlike
// strerror(). The text is never freed.
UIW_API const char* text_of_errno(int error);

// An IPv4 or IPv6 address with its port, as "10.0.0.1:5000" or "[fe80::1%2]:5000".
class AddressText {
 public:
  explicit AddressText(const sockaddr_storage& address);
  const char* c_str() const { return text_.data(); }

 private:
  std::array<char, 80> text_{};
};

}  // namespace uiw::provider
