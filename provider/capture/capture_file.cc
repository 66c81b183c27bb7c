// SPDX-License-Identifier: MIT
#include "provider/capture/capture_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>

#include "base/descriptor.h"
#include "base/mutex.h"
#include "provider/process/log.h"
#include "provider/process/notice.h"
#include "provider/process/settings.h"

namespace uiw::provider {

namespace {

const char* why(int error) {
  return error == EBADMSG ? "it is there, and not a capture of this release of uiw" : text_of_errno(error);
}

}  // namespace

std::string prepare_capture(const std::string& path) {
  const int fd = CaptureBlocks::open(path.c_str());
  if (fd < 0) return "the capture " + path + " cannot be written: " + why(-fd) + "; choose another file";
  close_descriptor(fd);
  return {};
}

CaptureFile* CaptureFile::get() noexcept {
  if (settings().values.capture.empty()) return nullptr;
  static std::atomic<CaptureFile*> known{nullptr};
  CaptureFile* file = known.load();
  // The child of a fork opens the file again. The parent's connections, which the child does not use, keep the parent's
  // CaptureFile.
  if (file == nullptr || file->process_ != ::getpid()) {
    CaptureFile* const opened = open();
    if (opened == nullptr) return nullptr;
    if (known.compare_exchange_strong(file, opened)) {
      file = opened;
    } else {
      delete opened;
    }
  }
  return file->broken_.load(std::memory_order_relaxed) ? nullptr : file;
}

CaptureFile* CaptureFile::open() noexcept {
  const char* const path = settings().values.capture.c_str();
  int error = ENOMEM;
  const int fd = CaptureBlocks::open(path);
  if (fd >= 0) {
    if (auto* const file = new (std::nothrow) CaptureFile(fd, ::getpid()); file != nullptr) return file;
    close_descriptor(fd);
  } else {
    error = -fd;
  }
  say_once(Cause::capture, "the capture %s cannot be written: %s", path, why(error));
  return nullptr;
}

bool CaptureFile::claim(std::uint64_t connection) noexcept {
  const LockGuard lock(mutex_);
  if (std::find(claimed_.begin(), claimed_.end(), connection) != claimed_.end()) return false;
  try {
    claimed_.push_back(connection);
  } catch (const std::exception&) {
    return false;
  }
  if (blocks_.try_lock(connection)) return true;
  claimed_.pop_back();
  return false;
}

void CaptureFile::release(std::uint64_t connection) noexcept {
  const LockGuard lock(mutex_);
  const auto found = std::find(claimed_.begin(), claimed_.end(), connection);
  if (found == claimed_.end()) return;
  claimed_.erase(found);
  blocks_.unlock(connection);
}

bool CaptureFile::append(std::span<const iovec> block, std::size_t size) noexcept {
  if (broken_.load(std::memory_order_relaxed)) return true;
  const int error = blocks_.append(block, size);
  if (error == EFAULT) return false;
  if (error != 0) {
    broken_.store(true, std::memory_order_relaxed);
    say_once(Cause::capture, "the capture %s ends here: %s", settings().values.capture.c_str(), text_of_errno(error));
  }
  return true;
}

}  // namespace uiw::provider
