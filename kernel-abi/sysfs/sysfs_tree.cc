// SPDX-License-Identifier: MIT
// Creates and checks directories through descriptors, so that another user cannot replace a part of a path between a
// check and the use of the path.
#include "kernel-abi/sysfs/sysfs_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "base/descriptor.h"
#include "base/file_limit.h"

namespace uiw::kernel_abi {
namespace {

constexpr const char* kUnfinished = ".new-";
// A tree that is still under construction after this time counts as abandoned; building takes milliseconds.
constexpr std::time_t kAbandonedAfterSeconds = 60;
constexpr int kAttempts = 8;  // attempts to use a directory that another process may remove

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close_descriptor(fd_);
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_;
};

Descriptor open_folder(int parent, const char* name) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  return Descriptor(DescriptorChange().guard(::openat(parent, name, kFlags)));
}

template <typename Visitor>
void each_name(int folder, const Visitor& visit) {
  const int copy = DescriptorChange().guard(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* stream = copy >= 0 ? ::fdopendir(copy) : nullptr;
  if (stream == nullptr) {
    if (copy >= 0) close_descriptor(copy);
    return;
  }
  while (const dirent* entry = ::readdir(stream)) {
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) visit(entry->d_name);
  }
  const DescriptorChange change;
  change.leave(copy);
  ::closedir(stream);
}

std::vector<std::string> list(int folder) {
  std::vector<std::string> names;
  each_name(folder, [&names](const char* name) { names.emplace_back(name); });
  return names;
}

void remove_recursively(int parent, const std::string& name) {
  if (::unlinkat(parent, name.c_str(), 0) == 0) return;
  {
    const Descriptor folder = open_folder(parent, name.c_str());
    if (folder.valid())
      for (const std::string& child : list(folder.get())) remove_recursively(folder.get(), child);
  }
  ::unlinkat(parent, name.c_str(), AT_REMOVEDIR);
}

// Creates all parent directories of `path`. 0 or an errno.
int make_parents(int root, const std::string& path, std::set<std::string>& made) {
  for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string folder = path.substr(0, slash);
    if (!made.insert(folder).second) continue;
    if (::mkdirat(root, folder.c_str(), 0755) != 0 && errno != EEXIST) return errno;
  }
  return 0;
}

int write_file(int root, const TreeEntry& entry) {
  if (!file_may_have(entry.content.size())) return EFBIG;
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const Descriptor file(DescriptorChange().guard(::openat(root, entry.path.c_str(), kFlags, 0444)));
  if (!file.valid()) return errno;
  std::size_t done = 0;
  while (done < entry.content.size()) {
    const ssize_t written = ::write(file.get(), entry.content.data() + done, entry.content.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    done += static_cast<std::size_t>(written);
  }
  return 0;
}

int build(int root, const Tree& tree) {
  std::set<std::string> made;
  for (const TreeEntry& entry : tree.entries) {
    int error = make_parents(root, entry.path, made);
    if (error == 0) {
      if (entry.kind != TreeEntry::Kind::link)
        error = write_file(root, entry);
      else if (::symlinkat(entry.content.c_str(), root, entry.path.c_str()) != 0)
        error = errno;
    }
    if (error != 0) return error;
  }
  for (const TreeTime& time : tree.times) {
    const timespec both[2] = {{time.seconds, 0}, {time.seconds, 0}};
    if (::utimensat(root, time.path.c_str(), both, AT_SYMLINK_NOFOLLOW) != 0) return errno;
  }
  return 0;
}

bool contains(int root, const TreeEntry& entry) {
  std::string found(entry.content.size() + 1, '\0');
  ssize_t length;
  if (entry.kind == TreeEntry::Kind::counter) {
    struct stat status = {};
    return ::fstatat(root, entry.path.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode);
  }
  if (entry.kind == TreeEntry::Kind::link) {
    length = ::readlinkat(root, entry.path.c_str(), found.data(), found.size());
  } else {
    constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC;
    const Descriptor file(DescriptorChange().guard(::openat(root, entry.path.c_str(), kFlags)));
    if (!file.valid()) return false;
    length = ::read(file.get(), found.data(), found.size());
  }
  return length == static_cast<ssize_t>(entry.content.size()) &&
         std::memcmp(found.data(), entry.content.data(), entry.content.size()) == 0;
}

// Whether the directory has all entries of `tree` with their content; counters only have to exist. Checks all entries,
// since a program that removes old files (systemd-tmpfiles in /tmp) may have removed some.
bool is_whole(int parent, const std::string& name, const Tree& tree) {
  const Descriptor root = open_folder(parent, name.c_str());
  if (!root.valid()) return false;
  for (const TreeEntry& entry : tree.entries)
    if (!contains(root.get(), entry)) return false;
  for (const TreeTime& time : tree.times) {
    struct stat status = {};
    if (::fstatat(root.get(), time.path.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return false;
    if (status.st_mtim.tv_sec != time.seconds) return false;
  }
  return true;
}

void remove_abandoned(int parent) {
  for (const std::string& name : list(parent)) {
    if (!name.starts_with(kUnfinished)) continue;
    struct stat status = {};
    if (::fstatat(parent, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (std::time(nullptr) - status.st_mtim.tv_sec > kAbandonedAfterSeconds) remove_recursively(parent, name);
  }
}

// Creates the complete tree as `name`. 0 or an errno.
int build_in_place(int parent, const std::string& parent_path, const std::string& name, const Tree& tree) {
  remove_abandoned(parent);
  std::string pattern = parent_path + "/" + kUnfinished + "XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) return errno;
  const std::string unfinished = pattern.substr(parent_path.size() + 1);
  int error;
  {
    const Descriptor root = open_folder(parent, unfinished.c_str());
    error = root.valid() ? build(root.get(), tree) : errno;
  }
  if (error == 0 && ::renameat(parent, unfinished.c_str(), parent, name.c_str()) != 0) {
    error = errno;
    // Another process has created the tree meanwhile, or the existing tree is damaged. A damaged tree gets a name that
    // begins with kUnfinished, so that a later process removes it if this process ends before it can remove the tree.
    if (error == EEXIST || error == ENOTEMPTY || error == ENOTDIR) {
      error = 0;
      if (!is_whole(parent, name, tree)) {
        const std::string damaged = unfinished + "-old";
        ::renameat(parent, name.c_str(), parent, damaged.c_str());
        if (::renameat(parent, unfinished.c_str(), parent, name.c_str()) != 0) {
          error = errno;
          if (is_whole(parent, name, tree)) error = 0;
        }
        remove_recursively(parent, damaged);
      }
    }
  }
  remove_recursively(parent, unfinished);
  return error;
}

struct OwnFolder {
  Descriptor folder;
  std::string name;
  int error = 0;  // an errno if there is no folder
};

// Opens a directory that belongs to this user and is closed to others; anything else is an error.
OwnFolder open_own(int base, const std::string& name) {
  Descriptor folder = open_folder(base, name.c_str());
  struct stat status = {};
  if (!folder.valid() || ::fstat(folder.get(), &status) != 0) return {Descriptor(), name, errno};
  if (status.st_uid != ::geteuid() || (status.st_mode & 0777) != 0700) return {Descriptor(), name, EPERM};
  return {std::move(folder), name};
}

// The first, by name, of this user's directories uiw-<uid>-XXXXXX, so that all processes choose the same one. Other
// users may create many such names. Each of them costs a comparison of names; it also costs an open if no directory of
// this user was found before it, or if it sorts before that directory.
OwnFolder find_spare(int base, const std::string& prefix) {
  OwnFolder found{Descriptor(), "", ENOENT};
  each_name(base, [&](const char* name) {
    if (!std::string_view(name).starts_with(prefix)) return;
    if (found.folder.valid() && found.name <= name) return;
    if (OwnFolder own = open_own(base, name); own.folder.valid()) found = std::move(own);
  });
  return found;
}

// This user's directory with an unpredictable name, created if missing.
OwnFolder spare_folder(int base, const std::string& base_path, const std::string& prefix) {
  OwnFolder found = find_spare(base, prefix);
  if (found.folder.valid()) return found;
  std::string path = base_path + "/" + prefix + "XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return {Descriptor(), prefix, errno};
  const std::string made = path.substr(base_path.size() + 1);
  // Another process may have created such a directory at the same time. Both then use the one that find_spare()
  // chooses.
  found = find_spare(base, prefix);
  if (found.name != made) ::unlinkat(base, made.c_str(), AT_REMOVEDIR);
  return found;
}

// This user's directory in a base, created if missing. If another user has taken the name uiw-<uid>, which is possible
// in a base where everybody may write, this is the directory with an unpredictable name (spare_folder()).
OwnFolder own_folder(int base, const std::string& base_path) {
  const std::string name = "uiw-" + std::to_string(::geteuid());
  if (::mkdirat(base, name.c_str(), 0700) != 0 && errno != EEXIST) return {Descriptor(), name, errno};
  OwnFolder own = open_own(base, name);
  return own.folder.valid() ? std::move(own) : spare_folder(base, base_path, name + "-");
}

int place_in_own(const std::string& base_path, const Tree& tree, std::string& root) {
  const Descriptor base(DescriptorChange().guard(::open(base_path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)));
  if (!base.valid()) return errno;
  const OwnFolder own = own_folder(base.get(), base_path);
  if (!own.folder.valid()) return own.error;
  const std::string folder = base_path + "/" + own.name;
  const std::string name = tree.hash();
  if (!is_whole(own.folder.get(), name, tree)) {
    if (const int error = build_in_place(own.folder.get(), folder, name, tree); error != 0) return error;
  }
  root = folder + "/" + name;
  return 0;
}

int place_in(const std::string& base, const Tree& tree, std::string& root) {
  if (base.empty() || base.front() != '/') return EINVAL;
  // Tries again if the directory is gone: a process that has created a directory with an unpredictable name removes it
  // again if it then finds another such directory that sorts before it.
  int error = ENOENT;
  for (int attempt = 0; error == ENOENT && attempt < kAttempts; ++attempt) error = place_in_own(base, tree, root);
  return error;
}

}  // namespace

void rewrite_counters(const std::string& root, const std::vector<TreeEntry>& counters) {
  const std::size_t slash = root.rfind('/');
  if (slash == std::string::npos) return;
  const std::string parent_path = root.substr(0, slash);
  const Descriptor parent = open_folder(AT_FDCWD, parent_path.c_str());
  const Descriptor tree = open_folder(parent.get(), root.substr(slash + 1).c_str());
  std::string pattern = parent_path + "/" + kUnfinished + "XXXXXX";
  if (!parent.valid() || !tree.valid() || ::mkdtemp(pattern.data()) == nullptr) return;
  const std::string unfinished = pattern.substr(parent_path.size() + 1);
  {
    const Descriptor folder = open_folder(parent.get(), unfinished.c_str());
    for (const TreeEntry& counter : counters) {
      if (!folder.valid() || write_file(folder.get(), {counter.kind, "counter", counter.content}) != 0) break;
      ::renameat(folder.get(), "counter", tree.get(), counter.path.c_str());
    }
  }
  remove_recursively(parent.get(), unfinished);
}

std::vector<std::string> tree_bases(const std::string& runtime_dir) {
  if (!runtime_dir.empty()) return {runtime_dir};
  std::vector<std::string> bases;
  const char* session = std::getenv("XDG_RUNTIME_DIR");
  if (session != nullptr && session[0] == '/') bases.emplace_back(session);
  bases.emplace_back("/dev/shm");
  bases.emplace_back("/tmp");
  return bases;
}

PlacedTree place_tree(const Tree& tree, const std::vector<std::string>& bases) {
  PlacedTree result;
  for (const std::string& base : bases) {
    const int error = place_in(base, tree, result.root);
    if (error == 0) return {result.root, ""};
    result.error += (result.error.empty() ? "" : " or ") + base + " (" + std::strerror(error) + ")";
  }
  result.root.clear();
  result.error = "no RDMA devices, because their files cannot be put into " + result.error +
                 "; set UIW_RUNTIME_DIR to a directory of yours that can be written";
  return result;
}

}  // namespace uiw::kernel_abi
