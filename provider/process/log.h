// SPDX-License-Identifier: MIT
// The log: one line for each event of devices, connections and queue pairs, and for each call that was refused, since
// programs often report only that something failed.
//
// UIW_LOG names a file or standard error, UIW_LOG_LEVEL says how much is logged (provider/process/settings.h). Nothing
// is logged for each work request or completion.
#pragma once

#include <sys/socket.h>

#include <array>

#include "provider/export.h"
#include "provider/process/settings.h"

namespace uiw::provider {

// Whether events of this level are logged. To be asked first if the arguments are expensive.
inline bool logs(LogLevel level) { return settings().values.log_level >= level; }

// Appends a line: the time in UTC, the process id, and the text, of which at most about 900 octets are kept. Does
// nothing if logs(level) is false. The file is opened for each line, so that there is no descriptor that the program
// might close. Standard error is written only if it is still the file that it was when the library was loaded. Keeps
// errno. Thread-safe; takes no lock, allocates nothing, and is no cancellation point; blocks as write(2) on that file
// does.
__attribute__((format(printf, 2, 3))) UIW_API void log_event(LogLevel level, const char* format, ...);

// Added to the reason why a peer has given up a start-up in which this end asks for markers (UIW_MARKERS).
inline constexpr const char* kNoMarkersPerhaps =
    "; it may not support markers, which this end asks for: try --markers off";

// An errno in English words. Unlike strerror() it needs no lock and no memory. The text lives for ever.
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
