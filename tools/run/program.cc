// SPDX-License-Identifier: MIT
#include "tools/run/program.h"

#include <elf.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace uiw::tools {
namespace {

template <typename T>
bool read_at(int fd, std::uint64_t offset, T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return pread(fd, &value, sizeof value, static_cast<off_t>(offset)) == static_cast<ssize_t>(sizeof value);
}

// The start of an ELF file, which is the same in 32-bit and 64-bit files.
struct Start {
  std::array<unsigned char, EI_NIDENT> ident;
  Elf64_Half type;
  Elf64_Half machine;
};

Start own_start() {
  Start start{};
  const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return start;
  if (!read_at(fd, 0, start)) start = {};
  close(fd);
  return start;
}

std::string machine_name(const Start& start) {
  const bool is_64 = start.ident[EI_CLASS] == ELFCLASS64;
  switch (start.machine) {
    case EM_X86_64: return is_64 ? "x86-64" : "x32 (32-bit)";
    case EM_AARCH64: return is_64 ? "arm64" : "arm64 (32-bit)";
    case EM_386: return "i386 (32-bit)";
    case EM_ARM: return "ARM (32-bit)";
    case EM_PPC64: return "ppc64";
    case EM_S390: return is_64 ? "s390x" : "s390 (32-bit)";
    case EM_RISCV: return is_64 ? "riscv64" : "riscv (32-bit)";
    case 258: return "loongarch64";  // EM_LOONGARCH, which not every elf.h has
    default:
      return "machine type " + std::to_string(start.machine) + (start.ident[EI_CLASS] == ELFCLASS32 ? " (32-bit)" : "");
  }
}

bool has_interpreter(int fd) {
  Elf64_Ehdr header{};
  if (!read_at(fd, 0, header)) return true;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!read_at(fd, header.e_phoff + std::uint64_t{i} * header.e_phentsize, segment)) return true;
    if (segment.p_type == PT_INTERP) return true;
  }
  return false;
}

Reached reach_of_elf(int fd, const std::string& path) {
  Start start{};
  if (!read_at(fd, 0, start)) return {Reach::reachable, path, ""};
  const Start own = own_start();
  if (start.ident[EI_CLASS] != ELFCLASS64 ||
      (own.machine != 0 && (start.machine != own.machine || start.ident[EI_DATA] != own.ident[EI_DATA])))
    return {Reach::other_machine, path, machine_name(start)};
  return {has_interpreter(fd) ? Reach::reachable : Reach::is_static, path, ""};
}

std::string user_name(uid_t number) {
  const passwd* const user = getpwuid(number);
  return user != nullptr ? user->pw_name : std::to_string(number);
}

std::string group_name(gid_t number) {
  const group* const found = getgrgid(number);
  return found != nullptr ? found->gr_name : std::to_string(number);
}

// Whether the program gains rights that this process does not have, by the rules of execve(2).
Reached privilege_of(const std::string& path) {
  struct stat st {};
  struct statvfs file_system {};
  const bool in_vain = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 || stat(path.c_str(), &st) != 0 ||
                       (statvfs(path.c_str(), &file_system) == 0 && (file_system.f_flag & ST_NOSUID) != 0);
  if (in_vain) return {Reach::reachable, path, ""};
  if ((st.st_mode & S_ISUID) != 0 && st.st_uid != geteuid()) return {Reach::set_user_id, path, user_name(st.st_uid)};
  if ((st.st_mode & S_ISGID) != 0 && (st.st_mode & S_IXGRP) != 0 && st.st_gid != getegid())
    return {Reach::set_group_id, path, group_name(st.st_gid)};
  if (geteuid() != 0 && getxattr(path.c_str(), "security.capability", nullptr, 0) > 0)
    return {Reach::has_capabilities, path, ""};
  return {Reach::reachable, path, ""};
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

Reached reach_of(const std::string& path, bool follow_script) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return privilege_of(path);  // an executable file need not be readable
  std::array<unsigned char, SELFMAG> magic{};
  Reached result{Reach::reachable, path, ""};
  if (read_at(fd, 0, magic) && std::memcmp(magic.data(), ELFMAG, SELFMAG) == 0) {
    result = reach_of_elf(fd, path);
    if (result.reach == Reach::reachable) result = privilege_of(path);
  } else if (follow_script) {
    const std::string interpreter = script_interpreter(fd);
    if (!interpreter.empty()) result = reach_of(interpreter, false);
  }
  close(fd);
  return result;
}

}  // namespace

Reached reach_of(const std::string& path) { return reach_of(path, true); }

std::string own_machine_name() { return machine_name(own_start()); }

std::string advice_for(const Reached& reached) {
  const std::string& path = reached.path;
  const std::string& name = reached.name;
  switch (reached.reach) {
    case Reach::reachable: break;
    case Reach::is_static: return path + " is statically linked, so uiw cannot reach it; link it dynamically";
    case Reach::set_user_id:
      return path + " is set-user-ID of " + name +
             ", so the loader ignores uiw; run a copy without that bit, or run it as that user";
    case Reach::set_group_id:
      return path + " is set-group-ID of " + name +
             ", so the loader ignores uiw; run a copy without that bit, or run it in that group";
    case Reach::has_capabilities:
      return path + " has file capabilities, so the loader ignores uiw; run a copy, which has none";
    case Reach::other_machine:
      return path + " is built for " + name + " and this uiw for " + own_machine_name() +
             (name.ends_with("(32-bit)") ? "; uiw is 64-bit alone, so use a 64-bit build of the program"
                                         : "; use a uiw for " + name);
  }
  return {};
}

}  // namespace uiw::tools
