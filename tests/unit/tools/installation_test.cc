// SPDX-License-Identifier: MIT
// Files of several versions of uiw, and driver files that name plugins, all made here.
#include "tools/installation.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "kernel-abi/interposer/file_version.h"
#include "provider/version.h"
#include "tools/files.h"
#include "tools/packages.h"

using namespace uiw::tools;

namespace {

class Folder {
 public:
  Folder() { REQUIRE(::mkdtemp(path_.data()) != nullptr); }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }
  std::string put(const std::string& name, const std::string& content) const {
    const std::string path = path_ + "/" + name;
    std::ofstream(path) << content;
    return path;
  }

 private:
  std::string path_ = "/tmp/uiw-installation-test-XXXXXX";
};

std::string mark(const std::string& version) { return "UIW_PRIVATE_" + version + std::string(1, '\0'); }

std::string version_in(const std::string& path) {
  char version[uiw::kernel_abi::kLongestVersion] = "none";
  uiw::kernel_abi::file_version(path.c_str(), version);
  return version;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("installation: a file tells the version of uiw that it belongs to") {
  const Folder folder;
  CHECK(version_in(folder.path() + "/none") == "none");
  CHECK(version_in(folder.path()) == "none");
  CHECK(version_in(folder.put("empty", "")) == "none");
  CHECK(version_in(folder.put("short", "UIW_PRIVATE_")) == "none");
  CHECK(version_in(folder.put("open", "UIW_PRIVATE_1.2")) == "none");
  CHECK(version_in(folder.put("whole", mark("1.2.3"))) == "1.2.3");
  CHECK(version_in(folder.put("second", mark("") + mark("x") + mark(std::string(99, '1')) + mark("1.2.3"))) == "1.2.3");
  for (const int before : {4000, 4080, 4084, 4090, 4095, 4096, 8180, 8192})
    CHECK(version_in(folder.put("far", std::string(static_cast<std::size_t>(before), 'x') + mark("12.34.56"))) ==
          "12.34.56");
  CHECK(version_in(own_library()) == uiw::kVersion);
  CHECK(version_in(preload_library()) == uiw::kVersion);
  CHECK(version_in(plugin_library(34)) == uiw::kVersion);
}

TEST_CASE("installation: this one has no problem") {
  CHECK_FALSE(preload_problem());
  CHECK_FALSE(plugin_problem(34));
  CHECK_FALSE(second_preload_problem());
  CHECK(plugin_problem(99)->text.starts_with("libuiw-rdmav99.so is not in "));
}

TEST_CASE("installation: of two versions the older one is to be removed") {
  const Folder older, newer, same, broken;
  older.put("libuiw.so.1", mark("0.0.1"));
  newer.put("libuiw.so.1", mark("999.0"));
  same.put("libuiw.so.1", mark(uiw::kVersion));
  std::filesystem::create_symlink("libuiw.so.1.0.0", broken.path() + "/libuiw.so.1");
  CHECK_FALSE(second_library_problem({}));
  CHECK_FALSE(second_library_problem({same.path(), "/nowhere", library_directory()}));
  const std::optional<Problem> with_older = second_library_problem({same.path(), older.path()});
  REQUIRE(with_older);
  CHECK(contains(with_older->text, older.path() + "/libuiw.so.1 (uiw 0.0.1)"));
  CHECK(contains(with_older->text, own_library()));
  CHECK(contains(with_older->advice, older.path()));
  const std::optional<Problem> with_newer = second_library_problem({newer.path()});
  REQUIRE(with_newer);
  CHECK_FALSE(contains(with_newer->advice, newer.path()));
  const std::optional<Problem> with_broken = second_library_problem({broken.path()});
  REQUIRE(with_broken);
  CHECK(with_broken->text == broken.path() + "/libuiw.so.1 is a link to libuiw.so.1.0.0, which does not exist");
}

TEST_CASE("installation: a driver file names a plugin that exists and is of this uiw") {
  const Folder folder;
  const std::string stem = folder.path() + "/libuiw";
  const auto problem = [&](const std::string& content, unsigned abi, bool other_prefix) {
    const std::optional<Problem> found = driver_problem({folder.put("uiw.driver", content)}, abi, other_prefix);
    return found ? found->text : "";
  };
  CHECK_FALSE(driver_problem({}, 34, true));
  CHECK_FALSE(driver_problem({folder.path() + "/none"}, 34, true));
  CHECK(problem("", 34, true).empty());
  CHECK(problem("# driver /nowhere\ndriver\n", 34, true).empty());
  CHECK(contains(problem("driver " + stem + "\n", 34, true), stem + "-rdmav34.so, which does not exist"));
  CHECK(contains(problem("driver " + stem + "\n", 0, false), stem + "-rdmav34.so, which does not exist"));
  CHECK(contains(problem("driver nobodys\n", 34, true), "/libnobodys-rdmav34.so, which does not exist"));
  folder.put("libuiw-rdmav59.so", mark(uiw::kVersion));
  CHECK(problem("driver " + stem + "\n", 0, false).empty());
  CHECK(problem("driver " + stem + "\n", 59, false).empty());
  CHECK(contains(problem("driver " + stem + "\n", 59, true), "not the plugin of this uiw, " + plugin_library(59)));
  CHECK(contains(problem("driver " + stem + "\n", 34, false), "does not exist"));
  folder.put("libuiw-rdmav59.so", mark("0.0.1"));
  CHECK(contains(problem("driver " + stem + "\n", 0, false), stem + "-rdmav59.so (uiw 0.0.1)"));
}

TEST_CASE("packages are named as Debian and as Fedora have them") {
  CHECK(how_to_install({kLibibverbs}) == "apt-get install libibverbs1 (Fedora: dnf install libibverbs)");
  CHECK(how_to_install({kIbverbsUtils, kPerftest}) ==
        "apt-get install ibverbs-utils perftest (Fedora: dnf install libibverbs-utils perftest)");
}
