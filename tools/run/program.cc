// SPDX-License-Identifier: MIT
#include "tools/run/program.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <type_traits>

namespace uiw::tools {
namespace {

#if __SIZEOF_POINTER__ == 8
constexpr unsigned char kOwnClass = ELFCLASS64;
#else
constexpr unsigned char kOwnClass = ELFCLASS32;
#endif

template <typename T>
bool read_at(int fd, std::uint64_t offset, T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return pread(fd, &value, sizeof value, static_cast<off_t>(offset)) == static_cast<ssize_t>(sizeof value);
}

// e_machine of this program; 0 if it cannot be read.
Elf64_Half own_machine() {
  const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  Elf64_Ehdr header{};  // e_machine has the same offset in both classes
  const bool good = read_at(fd, 0, header);
  close(fd);
  return good ? header.e_machine : static_cast<Elf64_Half>(0);
}

template <typename Header, typename Segment>
bool has_interpreter(int fd) {
  Header header{};
  if (!read_at(fd, 0, header)) return true;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Segment segment{};
    if (!read_at(fd, header.e_phoff + std::uint64_t{i} * header.e_phentsize, segment)) return true;
    if (segment.p_type == PT_INTERP) return true;
  }
  return false;
}

Reach reach_of_elf(int fd) {
  Elf64_Ehdr header{};
  if (!read_at(fd, 0, header)) return Reach::reachable;
  const Elf64_Half own = own_machine();
  if (header.e_ident[EI_CLASS] != kOwnClass || (own != 0 && header.e_machine != own)) return Reach::other_machine;
  const bool interpreter = kOwnClass == ELFCLASS64 ? has_interpreter<Elf64_Ehdr, Elf64_Phdr>(fd)
                                                   : has_interpreter<Elf32_Ehdr, Elf32_Phdr>(fd);
  return interpreter ? Reach::reachable : Reach::is_static;
}

bool gains_privilege(const std::string& path, const struct stat& st) {
  if ((st.st_mode & S_ISUID) != 0 && st.st_uid != geteuid()) return true;
  if ((st.st_mode & S_ISGID) != 0 && st.st_gid != getegid()) return true;
  return geteuid() != 0 && getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
}

// The interpreter in the first line of a script; empty if there is none.
std::string script_interpreter(int fd) {
  std::array<char, 256> start{};
  const ssize_t got = pread(fd, start.data(), start.size() - 1, 0);
  if (got < 3 || start[0] != '#' || start[1] != '!') return {};
  const char* from = start.data() + 2;
  from += std::strspn(from, " \t");
  return std::string(from, std::strcspn(from, " \t\n"));
}

Reach reach_of(const std::string& path, bool follow_script) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Reach::reachable;  // an executable file need not be readable
  struct stat st {};
  std::array<unsigned char, SELFMAG> magic{};
  Reach result = Reach::reachable;
  if (read_at(fd, 0, magic) && std::memcmp(magic.data(), ELFMAG, SELFMAG) == 0) {
    result = fstat(fd, &st) == 0 && gains_privilege(path, st) ? Reach::privileged : reach_of_elf(fd);
  } else if (follow_script) {
    const std::string interpreter = script_interpreter(fd);
    if (!interpreter.empty()) result = reach_of(interpreter, false);
  }
  close(fd);
  return result;
}

}  // namespace

Reach reach_of(const std::string& path) { return reach_of(path, true); }

}  // namespace uiw::tools
