// SPDX-License-Identifier: MIT
// Sources: kernel-abi/interposer/path_rewrite.cc (part of the interposer, not of libuiw.so.1)
#include "kernel-abi/interposer/path_rewrite.h"

#include <catch2/catch.hpp>
#include <string>

using namespace uiw::kernel_abi;

namespace {

std::string rewritten(const char* path) {
  const RdmaPath parsed = parse_rdma_path(path);
  if (parsed.area == RdmaArea::none) return "";
  char buffer[256];
  return join_rdma_path("/tree", parsed, buffer, sizeof buffer) ? buffer : "too long";
}

std::string node(const char* path) {
  char name[32];
  return device_node_name(parse_rdma_path(path), name, sizeof name) ? name : "";
}

}  // namespace

TEST_CASE("paths of the RDMA areas lead into the tree") {
  CHECK(rewritten("/sys/class/infiniband") == "/tree/class/infiniband");
  CHECK(rewritten("/sys/class/infiniband/") == "/tree/class/infiniband/");
  CHECK(rewritten("/sys/class/infiniband/uiw_lo/node_type") == "/tree/class/infiniband/uiw_lo/node_type");
  CHECK(rewritten("/sys/class/infiniband_verbs/abi_version") == "/tree/class/infiniband_verbs/abi_version");
  CHECK(rewritten("/sys/class/misc/rdma_cm/abi_version") == "/tree/class/misc/rdma_cm/abi_version");
  CHECK(rewritten("/dev/infiniband/uverbs0") == "/tree/dev/infiniband/uverbs0");
}

namespace {

const char* const kFolders[] = {"/", "/sys", "/sys/class", "/sys/class/misc", "/dev", "/home"};

// Where a path leads that starts in the folder with this number.
std::string rewritten_from(const char* start, const char* path) {
  int number = 0;
  while (std::string(kFolders[number]) != start) ++number;
  const auto is_folder = [](int folder, const char* absolute) { return std::string(kFolders[folder]) == absolute; };
  const RdmaPath parsed = parse_relative_rdma_path(path, number, is_folder);
  if (parsed.area == RdmaArea::none) return "";
  char buffer[256];
  return join_rdma_path("/tree", parsed, buffer, sizeof buffer) ? buffer : "too long";
}

}  // namespace

TEST_CASE("relative paths lead into the tree from each folder above an area") {
  for (const char* rest : {"", "/", "/uiw_lo/node_type", "/./uiw_lo//ports"}) {
    const std::string whole = std::string("/tree/class/infiniband") + rest;
    CHECK(rewritten_from("/", ("sys/class/infiniband" + std::string(rest)).c_str()) == whole);
    CHECK(rewritten_from("/", (".//sys/./class/infiniband" + std::string(rest)).c_str()) == whole);
    CHECK(rewritten_from("/sys", ("class/infiniband" + std::string(rest)).c_str()) == whole);
    CHECK(rewritten_from("/sys/class", ("infiniband" + std::string(rest)).c_str()) == whole);
  }
  CHECK(rewritten_from("/sys/class", "infiniband_verbs/uverbs0") == "/tree/class/infiniband_verbs/uverbs0");
  CHECK(rewritten_from("/sys/class", "misc/rdma_cm") == "/tree/class/misc/rdma_cm");
  CHECK(rewritten_from("/sys/class/misc", "rdma_cm/dev") == "/tree/class/misc/rdma_cm/dev");
  CHECK(rewritten_from("/", "dev/infiniband/rdma_cm") == "/tree/dev/infiniband/rdma_cm");
  CHECK(rewritten_from("/dev", "infiniband/rdma_cm") == "/tree/dev/infiniband/rdma_cm");
}

TEST_CASE("relative paths from other folders, to others, or out of an area stay as they are") {
  CHECK(rewritten_from("/home", "sys/class/infiniband").empty());
  CHECK(rewritten_from("/home", "infiniband").empty());
  CHECK(rewritten_from("/", "infiniband").empty());
  CHECK(rewritten_from("/sys", "sys/class/infiniband").empty());
  CHECK(rewritten_from("/sys/class", "class/infiniband").empty());
  CHECK(rewritten_from("/sys/class", "infiniband/../net").empty());
  CHECK(rewritten_from("/sys/class", "infinibandx").empty());
  for (const char* path : {"", ".", "sys", "sys/class", "misc", "dev", "/sys/class/infiniband"})
    CHECK(rewritten_from("/", path).empty());
}

TEST_CASE("doubled slashes and dots do not hide an area") {
  CHECK(rewritten("//sys///class/./infiniband//uiw_lo") == "/tree/class/infiniband//uiw_lo");
  CHECK(rewritten("/./dev/infiniband/./rdma_cm") == "/tree/dev/infiniband/./rdma_cm");
}

TEST_CASE("other paths stay as they are") {
  CHECK(parse_rdma_path(nullptr).area == RdmaArea::none);
  for (const char* path : {"", "/", "sys/class/infiniband", "/sys", "/sys/class", "/sys/class/infiniban",
                           "/sys/class/infiniband_mad/abi_version", "/sys/class/infinibandx", "/sys/class/misc",
                           "/sys/class/misc/rdma_cmx", "/sys/class/net/eth0", "/dev/null", "/dev/infinibandx/uverbs0",
                           "/device/infiniband", "/home/sys/class/infiniband", "/dev"})
    CHECK(rewritten(path).empty());
}

TEST_CASE("a path that climbs out of an area is the host's") {
  CHECK(rewritten("/sys/class/infiniband/../net/eth0").empty());
  CHECK(rewritten("/dev/infiniband/a/../../null").empty());
  CHECK(rewritten("/sys/class/infiniband/uiw_lo/../uiw_lo/node_guid") ==
        "/tree/class/infiniband/uiw_lo/../uiw_lo/node_guid");
  CHECK(rewritten("/dev/infiniband/..") == "/tree/dev/infiniband/..");
}

TEST_CASE("device nodes are recognised by name") {
  CHECK(node("/dev/infiniband/uverbs12") == "uverbs12");
  CHECK(node("/dev//infiniband/.//rdma_cm") == "rdma_cm");
  CHECK(node("/dev/infiniband").empty());
  CHECK(node("/dev/infiniband/").empty());
  CHECK(node("/dev/infiniband/..").empty());
  CHECK(node("/dev/infiniband/by-ibdev/uverbs0").empty());
  CHECK(node("/dev/infiniband/uverbs0/").empty());
  CHECK(node("/sys/class/infiniband/uverbs0").empty());
  CHECK(node("/dev/infiniband/a-name-that-is-longer-than-the-buffer").empty());
}

TEST_CASE("a path that does not fit is refused") {
  char small[24];
  CHECK_FALSE(join_rdma_path("/tree", parse_rdma_path("/dev/infiniband/uverbs0"), small, sizeof small));
  CHECK(join_rdma_path("/", parse_rdma_path("/dev/infiniband/rd"), small, sizeof small));
}
