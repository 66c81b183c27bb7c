// SPDX-License-Identifier: MIT
#include "provider/capture/capture_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <mutex>
#include <new>

#include "mpa/descriptor.h"
#include "provider/capture/pcapng_format.h"
#include "provider/process/log.h"
#include "provider/process/notice.h"
#include "provider/process/settings.h"
#include "provider/version.h"

namespace uiw::provider {

namespace {

constexpr char kComment[] =
    "Written by uiw. The headers of IP and TCP are made up: a packet is what the process gave to the connection, or "
    "took "
    "from it, at a time, also where it went through shared memory.";

// Locks of the file far behind its octets: one for its start, and one for each connection.
constexpr off_t kStartLock = off_t{1} << 61;
constexpr off_t kConnectionLocks = off_t{1} << 62;

std::vector<std::byte> start_of_file() { return pcapng::encode_start(std::string("uiw ") + kVersion, kComment); }

// These make bare system calls: some of those of libc are cancellation points, and functions of uiw's preload library.

// A lock of the open file description, so that of a process, and not of a thread.
int lock_octet(int fd, off_t at, short type, bool waits) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  return ::syscall(SYS_fcntl, fd, waits ? F_OFD_SETLKW : F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

// 0, an errno, or EBADMSG if the file holds something else than a capture of this release.
int write_start(int fd) {
  const std::vector<std::byte> start = start_of_file();
  struct stat st {};
  if (::fstat(fd, &st) != 0) return errno;
  if (!S_ISREG(st.st_mode)) return EBADMSG;
  if (st.st_size == 0) {
    const long written = ::syscall(SYS_write, fd, start.data(), start.size());
    return written == static_cast<long>(start.size()) ? 0 : written < 0 ? errno : ENOSPC;
  }
  std::vector<std::byte> found(start.size());
  const long size = ::syscall(SYS_pread64, fd, found.data(), found.size(), 0L);
  return size == static_cast<long>(found.size()) && found == start ? 0 : EBADMSG;
}

// A descriptor, or a negative errno. Throws std::bad_alloc.
int open_capture(const char* path) {
  // A FIFO that nobody reads would be waited for.
  constexpr int kFlags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  const int fd = mpa::DescriptorChange().take(static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, kFlags, 0600)),
                                              "the capture");
  if (fd < 0) return -errno;
  int error = lock_octet(fd, kStartLock, F_WRLCK, true);
  if (error == 0) {
    try {
      error = write_start(fd);
    } catch (const std::exception&) {
      error = ENOMEM;
    }
    lock_octet(fd, kStartLock, F_UNLCK, false);
  }
  if (error == 0) return fd;
  mpa::close_descriptor(fd);
  return -error;
}

const char* why(int error) {
  return error == EBADMSG ? "it is there, and not a capture of this release of uiw" : text_of_errno(error);
}

}  // namespace

std::string prepare_capture(const std::string& path) {
  const int fd = open_capture(path.c_str());
  if (fd < 0) return "the capture " + path + " cannot be written: " + why(-fd) + "; choose another file";
  mpa::close_descriptor(fd);
  return {};
}

CaptureFile* CaptureFile::get() noexcept {
  if (settings().values.capture.empty()) return nullptr;
  static std::atomic<CaptureFile*> known{nullptr};
  CaptureFile* file = known.load();
  // The child of a fork opens the file again. Connections of the parent, which it does not use, keep the parent's.
  if (file == nullptr || file->process_ != ::getpid()) {
    CaptureFile* const opened = open();
    if (opened == nullptr) return nullptr;
    if (known.compare_exchange_strong(file, opened)) {
      file = opened;
    } else {
      mpa::close_descriptor(opened->fd_);
      delete opened;
    }
  }
  return file->broken_.load(std::memory_order_relaxed) ? nullptr : file;
}

CaptureFile* CaptureFile::open() noexcept {
  const char* const path = settings().values.capture.c_str();
  int error = 0;
  try {
    const int fd = open_capture(path);
    if (fd >= 0) {
      auto* const file = new (std::nothrow) CaptureFile(fd, ::getpid());
      if (file == nullptr) mpa::close_descriptor(fd);
      return file;
    }
    error = -fd;
  } catch (const std::exception&) {
    error = ENOMEM;
  }
  say_once(Cause::capture, "the capture %s cannot be written: %s", path, why(error));
  return nullptr;
}

bool CaptureFile::claim(std::uint64_t connection) noexcept {
  const off_t at = kConnectionLocks + static_cast<off_t>(connection >> 2);
  const std::lock_guard lock(mutex_);
  if (std::find(claimed_.begin(), claimed_.end(), connection) != claimed_.end()) return false;
  try {
    claimed_.push_back(connection);
  } catch (const std::exception&) {
    return false;
  }
  const int error = lock_octet(fd_, at, F_WRLCK, false);
  if (error != EAGAIN && error != EACCES) return true;  // a file system without locks does without this
  claimed_.pop_back();
  return false;
}

void CaptureFile::release(std::uint64_t connection) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = std::find(claimed_.begin(), claimed_.end(), connection);
  if (found == claimed_.end()) return;
  claimed_.erase(found);
  lock_octet(fd_, kConnectionLocks + static_cast<off_t>(connection >> 2), F_UNLCK, false);
}

// A file that grew beyond the limit of the process would end it by SIGXFSZ.
bool CaptureFile::has_room(std::size_t size) const {
  rlimit limit{};
  struct stat st {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
  return ::fstat(fd_, &st) == 0 && static_cast<rlim_t>(st.st_size) + size < limit.rlim_cur;
}

void CaptureFile::append(std::span<const iovec> block, std::size_t size) noexcept {
  if (broken_.load(std::memory_order_relaxed)) return;
  if (!has_room(size)) return give_up(EFBIG, 0);
  const int saved_errno = errno;
  const long written = ::syscall(SYS_writev, fd_, block.data(), block.size());
  if (written != static_cast<long>(size))
    give_up(written < 0 ? errno : ENOSPC, written > 0 ? static_cast<std::size_t>(written) : 0);
  errno = saved_errno;
}

// Takes back part of a block, unless another process has appended to it.
void CaptureFile::give_up(int error, std::size_t written) {
  broken_.store(true, std::memory_order_relaxed);
  struct stat st {};
  const off_t end = ::lseek(fd_, 0, SEEK_CUR);
  if (written > 0 && ::fstat(fd_, &st) == 0 && st.st_size == end &&
      ::ftruncate(fd_, end - static_cast<off_t>(written)) != 0) {
    error = errno;
  }
  say_once(Cause::capture, "the capture %s ends here: %s", settings().values.capture.c_str(), text_of_errno(error));
}

}  // namespace uiw::provider
