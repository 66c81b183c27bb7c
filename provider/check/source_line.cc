// SPDX-License-Identifier: MIT
#include "provider/check/source_line.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace uiw::provider::check {

namespace {

// The functions of libdw that are used, found at run time, so that a program that is not checked does not load libdw.
class Libdw {
 public:
  static const Libdw& get() {
    static const Libdw instance;
    return instance;
  }

 private:
  // The first members are initialized first.
  void* const library_ = ::dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
  bool complete_ = library_ != nullptr;

  template <typename Function>
  Function find(const char* name) {
    void* const found = library_ != nullptr ? ::dlsym(library_, name) : nullptr;
    complete_ = complete_ && found != nullptr;
    return reinterpret_cast<Function>(found);
  }

 public:
  bool complete() const { return complete_; }
  decltype(&::dwarf_attr_integrate) dwarf_attr_integrate =
      find<decltype(&::dwarf_attr_integrate)>("dwarf_attr_integrate");
  decltype(&::dwarf_diename) dwarf_diename = find<decltype(&::dwarf_diename)>("dwarf_diename");
  decltype(&::dwarf_filesrc) dwarf_filesrc = find<decltype(&::dwarf_filesrc)>("dwarf_filesrc");
  decltype(&::dwarf_formudata) dwarf_formudata = find<decltype(&::dwarf_formudata)>("dwarf_formudata");
  decltype(&::dwarf_getscopes) dwarf_getscopes = find<decltype(&::dwarf_getscopes)>("dwarf_getscopes");
  decltype(&::dwarf_getscopes_die) dwarf_getscopes_die = find<decltype(&::dwarf_getscopes_die)>("dwarf_getscopes_die");
  decltype(&::dwarf_getsrcfiles) dwarf_getsrcfiles = find<decltype(&::dwarf_getsrcfiles)>("dwarf_getsrcfiles");
  decltype(&::dwarf_tag) dwarf_tag = find<decltype(&::dwarf_tag)>("dwarf_tag");
  decltype(&::dwfl_addrmodule) dwfl_addrmodule = find<decltype(&::dwfl_addrmodule)>("dwfl_addrmodule");
  decltype(&::dwfl_begin) dwfl_begin = find<decltype(&::dwfl_begin)>("dwfl_begin");
  decltype(&::dwfl_build_id_find_debuginfo) dwfl_build_id_find_debuginfo =
      find<decltype(&::dwfl_build_id_find_debuginfo)>("dwfl_build_id_find_debuginfo");
  decltype(&::dwfl_end) dwfl_end = find<decltype(&::dwfl_end)>("dwfl_end");
  decltype(&::dwfl_lineinfo) dwfl_lineinfo = find<decltype(&::dwfl_lineinfo)>("dwfl_lineinfo");
  decltype(&::dwfl_linux_proc_find_elf) dwfl_linux_proc_find_elf =
      find<decltype(&::dwfl_linux_proc_find_elf)>("dwfl_linux_proc_find_elf");
  decltype(&::dwfl_linux_proc_report) dwfl_linux_proc_report =
      find<decltype(&::dwfl_linux_proc_report)>("dwfl_linux_proc_report");
  decltype(&::dwfl_module_addrdie) dwfl_module_addrdie = find<decltype(&::dwfl_module_addrdie)>("dwfl_module_addrdie");
  decltype(&::dwfl_module_addrname) dwfl_module_addrname =
      find<decltype(&::dwfl_module_addrname)>("dwfl_module_addrname");
  decltype(&::dwfl_module_getsrc) dwfl_module_getsrc = find<decltype(&::dwfl_module_getsrc)>("dwfl_module_getsrc");
  decltype(&::dwfl_report_end) dwfl_report_end = find<decltype(&::dwfl_report_end)>("dwfl_report_end");
};

const Libdw& libdw() { return Libdw::get(); }

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                         std::free);
  return status == 0 && text ? text.get() : name;
}

// What the process has loaded, as libdw sees it. Debugging information is looked for in the files themselves and by
// their build ids, so no server is asked for it.
class Modules {
 public:
  Modules() {
    const Libdw& dw = libdw();
    if (!dw.complete()) return;
    static char* no_path = nullptr;
    callbacks_ = {dw.dwfl_linux_proc_find_elf, dw.dwfl_build_id_find_debuginfo, nullptr, &no_path};
    dwfl_ = dw.dwfl_begin(&callbacks_);
    if (dwfl_ == nullptr) return;
    dw.dwfl_linux_proc_report(dwfl_, ::getpid());
    dw.dwfl_report_end(dwfl_, nullptr, nullptr);
  }
  ~Modules() {
    if (dwfl_ != nullptr) libdw().dwfl_end(dwfl_);
  }
  Modules(const Modules&) = delete;
  Modules& operator=(const Modules&) = delete;

  // Fills in function, file and line, and appends the functions into which the function was inlined, from the inside
  // out. `lines` ends with a line that has module and offset.
  void look_up(std::uintptr_t address, std::vector<SourceLine>& lines) {
    const Libdw& dw = libdw();
    Dwfl_Module* const module = dwfl_ != nullptr ? dw.dwfl_addrmodule(dwfl_, address) : nullptr;
    if (module == nullptr) return;
    if (const char* const name = dw.dwfl_module_addrname(module, address)) lines.back().function = demangled(name);
    if (Dwfl_Line* const found = dw.dwfl_module_getsrc(module, address)) {
      const char* const file = dw.dwfl_lineinfo(found, nullptr, &lines.back().line, nullptr, nullptr, nullptr);
      if (file != nullptr) lines.back().file = file;
    }
    Dwarf_Addr bias = 0;
    Dwarf_Die* const unit = dw.dwfl_module_addrdie(module, address, &bias);
    if (unit == nullptr) return;
    Dwarf_Die *innermost = nullptr, *scopes = nullptr;
    if (dw.dwarf_getscopes(unit, address - bias, &innermost) <= 0) return;
    // Behind an inlined function dwarf_getscopes() has the scopes of its definition, not of the call.
    const int count = dw.dwarf_getscopes_die(innermost, &scopes);
    std::free(innermost);
    const std::string outermost = lines.back().function;
    for (int i = 0; i < count; ++i) {
      if (dw.dwarf_tag(&scopes[i]) != DW_TAG_inlined_subroutine) continue;
      if (const char* const name = dw.dwarf_diename(&scopes[i])) lines.back().function = name;
      SourceLine caller = lines.back();
      caller.function = outermost;
      caller.line = static_cast<int>(number(scopes[i], DW_AT_call_line));
      Dwarf_Files* files = nullptr;
      std::size_t known = 0;
      if (dw.dwarf_getsrcfiles(unit, &files, &known) == 0) {
        const char* const file = dw.dwarf_filesrc(files, number(scopes[i], DW_AT_call_file), nullptr, nullptr);
        if (file != nullptr) caller.file = file;
      }
      lines.push_back(std::move(caller));
    }
    std::free(scopes);
  }

 private:
  static Dwarf_Word number(Dwarf_Die& die, unsigned attribute) {
    Dwarf_Attribute found{};
    Dwarf_Word value = 0;
    if (libdw().dwarf_attr_integrate(&die, attribute, &found) != nullptr) libdw().dwarf_formudata(&found, &value);
    return value;
  }

  Dwfl_Callbacks callbacks_{};
  Dwfl* dwfl_ = nullptr;
};

std::string_view name_of_file(std::string_view path) { return path.substr(path.find_last_of('/') + 1); }

bool is_below_librdmacm(std::string_view module) {
  const std::string_view name = name_of_file(module);
  return name.starts_with("libuiw") || name.starts_with("libibverbs.");
}

bool is_librdmacm(std::string_view module) { return name_of_file(module).starts_with("librdmacm."); }

// Whether the line belongs to what lies between the program and uiw: a library, or the inline functions of its header.
bool is_between(const SourceLine& line) {
  return is_below_librdmacm(line.module) || is_librdmacm(line.module) || line.file.ends_with("infiniband/verbs.h") ||
         line.file.ends_with("rdma/rdma_verbs.h");
}

}  // namespace

std::vector<SourceLine> lines_of(const Place& place) {
  std::vector<SourceLine> lines;
  Modules modules;
  for (const void* const frame : place.frames()) {
    SourceLine line;
    Dl_info info{};
    if (::dladdr(frame, &info) != 0 && info.dli_fname != nullptr) {
      line.module = info.dli_fname;
      line.offset = reinterpret_cast<std::uintptr_t>(frame) - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
      if (info.dli_sname != nullptr) line.function = demangled(info.dli_sname);
    }
    // What has called main(), or a thread's function. The debugging information of libc is large.
    if (!lines.empty() && name_of_file(line.module).starts_with("libc.so")) break;
    // A return address is behind the call, perhaps already in the next line.
    std::vector<SourceLine> of_frame{line};
    if (!is_between(line)) modules.look_up(reinterpret_cast<std::uintptr_t>(frame) - 1, of_frame);
    for (SourceLine& one : of_frame) {
      if (lines.size() == 1 && is_between(lines[0])) lines.clear();
      lines.push_back(std::move(one));
    }
  }
  if (lines.size() > 1 && is_between(lines[0])) lines.erase(lines.begin());
  return lines;
}

bool is_made_by_librdmacm(const Place& place) {
  for (const void* const frame : place.frames()) {
    Dl_info info{};
    if (::dladdr(frame, &info) == 0 || info.dli_fname == nullptr) return false;
    if (!is_below_librdmacm(info.dli_fname)) return is_librdmacm(info.dli_fname);
  }
  return false;
}

std::string short_name(const std::string& function) {
  constexpr std::string_view kOperator = "operator";
  std::string name;
  int depth = 0;
  for (std::size_t at = 0; at < function.size(); ++at) {
    const std::string_view rest = std::string_view(function).substr(at);
    if (depth == 0 && rest.starts_with("(anonymous namespace)::")) {
      at += std::string_view("(anonymous namespace)::").size() - 1;
    } else if (depth == 0 && rest.starts_with("operator()")) {
      name += "operator()";
      at += std::string_view("operator()").size() - 1;
    } else if (function[at] == '<' && !name.ends_with(kOperator)) {
      ++depth;
    } else if (function[at] == '>' && depth > 0) {
      --depth;
    } else if (function[at] == '(' && depth == 0) {
      break;
    } else if (depth == 0) {
      name += function[at];
    }
  }
  return name;
}

std::string text_of(const SourceLine& line) {
  std::string text = line.function.empty() ? "an unknown function" : short_name(line.function);
  if (!line.function.empty() && !text.ends_with("()")) text += "()";
  if (!line.file.empty()) {
    const std::string name = line.file.substr(line.file.find_last_of('/') + 1);
    return text + " at " + name + ":" + std::to_string(line.line);
  }
  char offset[32];
  std::snprintf(offset, sizeof offset, "+0x%llx", static_cast<unsigned long long>(line.offset));
  return text + " (" + line.module + offset + ")";
}

}  // namespace uiw::provider::check
