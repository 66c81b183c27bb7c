// SPDX-License-Identifier: MIT
// Sources: kernel-abi/sysfs/tree_content.cc, kernel-abi/sysfs/sysfs_tree.cc (hidden in libuiw.so.1)
#include "kernel-abi/sysfs/sysfs_tree.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "kernel-abi/sysfs/port_files.h"
#include "kernel-abi/sysfs/tree_content.h"

using namespace uiw::kernel_abi;
namespace fs = std::filesystem;

namespace {

NumberedDevice sample(const std::string& interface, unsigned number) {
  uiw::provider::DeviceInfo info;
  info.name = "uiw_" + interface;
  info.interface = interface;
  info.guid = 0x0011'22ff'fe33'4455;
  info.speed_mbps = 25000;
  info.gids = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1}, {0x20, 0x01, 0x0d, 0xb8}};
  return {info, number};
}

// Of the entry with this path, also through the link of a device in its class.
std::string content(const Tree& tree, const std::string& path) {
  constexpr std::string_view kUp = "../../";
  for (const TreeEntry& entry : tree.entries) {
    if (entry.content.starts_with(kUp) && path.starts_with(entry.path + "/"))
      return content(tree, entry.content.substr(kUp.size()) + path.substr(entry.path.size()));
  }
  const auto found = std::find_if(tree.entries.begin(), tree.entries.end(),
                                  [&](const TreeEntry& entry) { return entry.path == path; });
  return found != tree.entries.end() ? found->content : "(none)";
}

std::string read(const fs::path& path) {
  std::ifstream stream(path);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

constexpr uid_t kStranger = 65534;

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

class Folder {
 public:
  Folder() {
    char pattern[] = "/tmp/uiw-test-XXXXXX";
    REQUIRE(mkdtemp(pattern) != nullptr);
    path_ = pattern;
  }
  ~Folder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string own() const { return path_ + "/uiw-" + std::to_string(geteuid()); }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("sysfs shows an RNIC in the kernel's words") {
  const Tree tree = make_tree({sample("eth0", 3)}, {});
  const std::string device = "class/infiniband/uiw_eth0/";
  CHECK(content(tree, device + "node_type") == "4: RNIC\n");
  CHECK(content(tree, device + "node_guid") == "0011:22ff:fe33:4455\n");
  CHECK(content(tree, device + "ports/1/state") == "4: ACTIVE\n");
  CHECK(content(tree, device + "ports/1/rate") == "25 Gb/sec (1X EDR)\n");
  CHECK(content(tree, device + "ports/1/gids/0") == "0000:0000:0000:0000:0000:ffff:c000:0201\n");
  CHECK(content(tree, device + "ports/1/gids/1") == "2001:0db8:0000:0000:0000:0000:0000:0000\n");
  CHECK(content(tree, device + "ports/1/gid_attrs/ndevs/1") == "eth0\n");
  CHECK(content(tree, "class/infiniband_verbs/uverbs3/ibdev") == "uiw_eth0\n");
  CHECK(content(tree, "class/infiniband_verbs/uverbs3/dev") == "231:195\n");
  CHECK(content(tree, "class/infiniband_verbs/abi_version") == "6\n");
  CHECK(content(tree, "class/misc/rdma_cm/abi_version") == "4\n");
  CHECK(content(tree, "dev/infiniband/uverbs3") == "/dev/null");
}

TEST_CASE("the folder of the adapter names the interface, and where it is in the machine") {
  NumberedDevice device = sample("eth0", 3);
  device.info.ifindex = 7;
  const std::string folder = "class/infiniband/uiw_eth0/device/";
  Tree tree = make_tree({device}, {});
  CHECK(content(tree, folder + "net/eth0/ifindex") == "7\n");
  CHECK(content(tree, folder + "net/eth0/dev_port") == "0\n");
  CHECK(content(tree, folder + "numa_node") == "(none)");
  device.files = {"pci0000:00/0000:00:03.0", true, {"numa_node"}};
  tree = make_tree({device}, {});
  CHECK(content(tree, folder + "net/eth0") == "/sys/class/net/eth0");
  CHECK(content(tree, folder + "numa_node") == "/sys/class/net/eth0/device/numa_node");
  CHECK(content(tree, "class/infiniband/uiw_eth0") == "../../devices/pci0000:00/0000:00:03.0/infiniband/uiw_eth0");
  CHECK(content(tree, folder + "modalias") == "uiw:eth0\n");  // of uiw's devices, not of the interface's adapter
}

TEST_CASE("sysfs shows an adapter for RoCE v2 in the kernel's words") {
  NumberedDevice device = sample("eth0", 3);
  const Tree rnic = make_tree({device}, {});
  device.info.transport = uiw::provider::Transport::roce;
  const Tree tree = make_tree({device}, {});
  const std::string folder = "class/infiniband/uiw_eth0/";
  CHECK(content(tree, folder + "node_type") == "1: CA\n");
  CHECK(content(tree, folder + "ports/1/link_layer") == "Ethernet\n");
  CHECK(content(tree, folder + "ports/1/lid") == "0x0\n");
  CHECK(content(tree, folder + "ports/1/pkeys/0") == "0xffff\n");
  for (const char* index : {"0", "1"}) {
    CHECK(content(rnic, folder + "ports/1/gid_attrs/types/" + index) == "IB/RoCE v1\n");
    CHECK(content(tree, folder + "ports/1/gid_attrs/types/" + index) == "RoCE v2\n");
    CHECK(content(tree, folder + "ports/1/gid_attrs/ndevs/" + index) == "eth0\n");
  }
  CHECK(tree.hash() != rnic.hash());
  CHECK(tree.times[0].seconds != rnic.times[0].seconds);
}

TEST_CASE("each counter of a port has a file, and a path by which it is known") {
  const Tree tree = make_tree({sample("eth0", 0)}, {});
  const std::string port = "class/infiniband/uiw_eth0/ports/1/";
  CHECK(content(tree, port + "counters/port_xmit_data") == "0\n");
  CHECK(content(tree, port + "hw_counters/datagrams_no_receive") == "0\n");
  CHECK(content(tree, port + "hw_counters/lifespan") == "0\n");
  uiw::provider::PortCounts counts{};
  counts[index_of(uiw::provider::PortCounter::octets_sent)] = 4007;
  counts[index_of(uiw::provider::PortCounter::packets_sent)] = 5;
  counts[index_of(uiw::provider::PortCounter::datagrams_sent)] = 6;
  const auto value = [&](const std::string& path) {
    const auto found = parse_port_path(path);
    REQUIRE(found);
    REQUIRE(found->file != nullptr);
    CHECK(found->device == "uiw_eth0");
    return found->file->value(counts);
  };
  CHECK(value(port + "counters/port_xmit_data") == 1001);  // units of four octets
  CHECK(value(port + "counters/port_xmit_packets") == 11);
  CHECK(value("./class//infiniband/./uiw_eth0/ports/1/hw_counters//sent_pkts") == 11);
  for (const std::string& folder : {port + "counters", port + "hw_counters/", port, port + ".."}) {
    const auto found = parse_port_path(folder);
    CHECK((folder.ends_with("..") ? !found : found && found->file == nullptr));
  }
  for (const std::string path :
       {"", "/", "class/infiniband/uiw_eth0", "class/infiniband/uiw_eth0/node_type",
        "class/infiniband_verbs/uverbs0/ports/1", "class/infiniband/uiw_eth0/ports/2",
        "class/infiniband/uiw_eth0/ports/1/counters/none", "class/infiniband/uiw_eth0/ports/1/counters/symbol_error/x",
        "class/infiniband/uiw_eth0/ports/1/gids", "class/infiniband/uiw_eth0/ports/1/gids/x",
        "class/infiniband/uiw_eth0/ports/1/gids/0/1", "class/infiniband/uiw_eth0/ports/1/gid_attrs/0",
        "class/infiniband/uiw_eth0/ports/1/rate"})
    CHECK_FALSE(parse_port_path(path));
}

TEST_CASE("files of a port that change with its interface are known by their paths") {
  using Kind = PortPath::Kind;
  const auto kind = [](const std::string& file, unsigned index = 0) {
    const auto found = parse_port_path("class/infiniband/uiw_eth0/ports/1/" + file);
    REQUIRE(found);
    CHECK(found->device == "uiw_eth0");
    CHECK(found->index == index);
    return found->kind;
  };
  CHECK(kind("state") == Kind::state);
  CHECK(kind("phys_state") == Kind::physical_state);
  CHECK(kind("gids/12", 12) == Kind::gid);
  CHECK(kind("gid_attrs/types/3", 3) == Kind::gid_type);
  CHECK(kind("gid_attrs//ndevs/0") == Kind::gid_interface);
  CHECK(kind("counters") == Kind::folder);
}

TEST_CASE("a port that is down is shown so, and an empty GID as in the kernel's sysfs, on the same device") {
  NumberedDevice device = sample("eth0", 0);
  const Tree before = make_tree({device}, {});
  device.info.active = false;
  device.info.gids[0] = uiw::provider::kNoGid;
  const Tree carrier = make_tree({device}, {});
  device.info.enabled = false;
  const Tree down = make_tree({device}, {});
  const std::string port = "class/infiniband/uiw_eth0/ports/1/";
  CHECK(content(before, port + "state") == "4: ACTIVE\n");
  CHECK(content(before, port + "phys_state") == "5: LinkUp\n");
  CHECK(content(carrier, port + "state") == "1: DOWN\n");
  CHECK(content(carrier, port + "phys_state") == "2: Polling\n");
  CHECK(content(down, port + "phys_state") == "3: Disabled\n");
  CHECK(content(down, port + "gids/0") == "0000:0000:0000:0000:0000:0000:0000:0000\n");
  CHECK(content(down, port + "gids/1") == content(before, port + "gids/1"));
  CHECK(before.hash() != down.hash());
  CHECK(before.times[0].seconds == down.times[0].seconds);
}

TEST_CASE("what all processes have counted for a device is added up") {
  std::vector<uiw::provider::ProcessInventory> processes(3);
  for (auto& process : processes) {
    const auto place = process.inventory.index_of_device("uiw_eth0");
    process.inventory.devices[place].counts[0] = 7;
  }
  processes[1].inventory.devices[processes[1].inventory.index_of_device("uiw_lo")].counts[0] = 100;
  CHECK(counts_of(processes, "uiw_eth0")[0] == 21);
  CHECK(counts_of(processes, "uiw_lo")[0] == 100);
  CHECK(counts_of(processes, "uiw_none")[0] == 0);
}

TEST_CASE_METHOD(Folder, "counters are rewritten in a tree that stays whole") {
  const Tree tree = make_tree({sample("eth0", 0)}, {});
  const std::string root = place_tree(tree, {path()}).root;
  const std::string name = "class/infiniband/uiw_eth0/ports/1/counters/port_xmit_data";
  rewrite_counters(root, {{TreeEntry::Kind::counter, name, "42\n"}, {TreeEntry::Kind::counter, "none/there", "1\n"}});
  CHECK(read(root + "/" + name) == "42\n");
  CHECK(place_tree(tree, {path()}).root == root);
  CHECK(read(root + "/" + name) == "42\n");  // nobody has taken it for a damaged one
  CHECK(names_in(fs::path(root).parent_path()).size() == 1);
}

TEST_CASE("the host's own devices stand beside ours, ours first") {
  const HostDevices host = {{"mlx5_0", "uiw_eth0"}, {"uverbs0", "uverbs3"}, {"uverbs0", "rdma_cm", "umad0"}};
  const Tree tree = make_tree({sample("eth0", 3)}, host);
  CHECK(content(tree, "class/infiniband/mlx5_0") == "/sys/class/infiniband/mlx5_0");
  CHECK(content(tree, "class/infiniband/uiw_eth0") == "../../devices/virtual/infiniband/uiw_eth0");
  CHECK(content(tree, "class/infiniband_verbs/uverbs0") == "/sys/class/infiniband_verbs/uverbs0");
  CHECK(content(tree, "class/infiniband_verbs/uverbs3") == "(none)");
  CHECK(content(tree, "dev/infiniband/umad0") == "/dev/infiniband/umad0");
  CHECK(content(tree, "dev/infiniband/rdma_cm") == "/dev/null");
}

TEST_CASE("a device keeps its time while it stays the same") {
  const Tree one = make_tree({sample("eth0", 3)}, {});
  const Tree two = make_tree({sample("eth0", 3), sample("eth1", 4)}, {});
  CHECK(one.hash() != two.hash());
  CHECK(one.times[0].seconds == two.times[0].seconds);
  CHECK(one.times[0].seconds != make_tree({sample("eth0", 5)}, {}).times[0].seconds);
}

TEST_CASE_METHOD(Folder, "a tree is built once and used again") {
  const Tree tree = make_tree({sample("eth0", 0)}, {});
  const PlacedTree first = place_tree(tree, {path()});
  REQUIRE(first.error.empty());
  CHECK(first.root == own() + "/" + tree.hash());
  CHECK(read(first.root + "/class/infiniband/uiw_eth0/node_type") == "4: RNIC\n");
  struct stat before = {};
  struct stat after = {};
  REQUIRE(stat(first.root.c_str(), &before) == 0);
  CHECK((before.st_mode & 077) == 0);
  CHECK(place_tree(tree, {path()}).root == first.root);
  REQUIRE(stat(first.root.c_str(), &after) == 0);
  CHECK(before.st_ino == after.st_ino);
}

TEST_CASE_METHOD(Folder, "a damaged tree is replaced, and an unfinished one is in nobody's way") {
  const Tree tree = make_tree({sample("eth0", 0)}, {});
  const std::string root = place_tree(tree, {path()}).root;
  fs::remove(root + "/class/infiniband/uiw_eth0/node_guid");
  fs::create_directory(own() + "/.new-killed");
  CHECK(place_tree(tree, {path()}).root == root);
  CHECK(read(root + "/class/infiniband/uiw_eth0/node_guid") == "0011:22ff:fe33:4455\n");
  std::size_t left = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(own())) ++left;
  CHECK(left == 2);  // the tree, and the young directory of what may be another builder
}

TEST_CASE_METHOD(Folder, "a directory that may be somebody else's is left alone, and another serves") {
  const Folder elsewhere;
  const Tree tree = make_tree({sample("eth0", 0)}, {});
  const auto plant = [&](const std::string& path) {
    SECTION("a symbolic link") { fs::create_directory_symlink(elsewhere.path(), path); }
    SECTION("a file") { std::ofstream{path}; }
    SECTION("a pipe") { REQUIRE(mkfifo(path.c_str(), 0600) == 0); }
    SECTION("open to others") {
      REQUIRE(mkdir(path.c_str(), 0700) == 0);
      REQUIRE(chmod(path.c_str(), 0755) == 0);
    }
    SECTION("of another user") {
      REQUIRE(mkdir(path.c_str(), 0700) == 0);
      if (geteuid() == 0) {
        REQUIRE(chown(path.c_str(), kStranger, kStranger) == 0);
      } else {
        REQUIRE(chmod(path.c_str(), 0777) == 0);  // only root can give a directory away
      }
    }
  };
  SECTION("uiw-<uid> is taken") { plant(own()); }
  SECTION("so are names of the second choice") {
    REQUIRE(mkfifo(own().c_str(), 0600) == 0);
    plant(own() + "-000000");
  }
  const std::set<std::string> planted = names_in(path());

  const PlacedTree first = place_tree(tree, {path()});
  REQUIRE(first.error.empty());
  const fs::path chosen = fs::path(first.root).parent_path();
  CHECK(chosen.string().starts_with(own() + "-"));
  CHECK(chosen.string().size() == own().size() + 7);
  CHECK(planted.count(chosen.filename()) == 0);
  CHECK(read(first.root + "/class/infiniband/uiw_eth0/node_type") == "4: RNIC\n");
  struct stat status = {};
  REQUIRE(lstat(chosen.c_str(), &status) == 0);
  CHECK(S_ISDIR(status.st_mode));
  CHECK(status.st_uid == geteuid());
  CHECK((status.st_mode & 0777) == 0700);

  CHECK(place_tree(tree, {path()}).root == first.root);
  CHECK(names_in(path()).size() == planted.size() + 1);
  CHECK(fs::is_empty(elsewhere.path()));
  for (const std::string& name : planted) {
    std::error_code none;
    CHECK((!fs::is_directory(path() + "/" + name, none) || fs::is_empty(path() + "/" + name)));
  }
}

TEST_CASE_METHOD(Folder, "of several directories of the second choice the first by name serves") {
  const Tree tree = make_tree({sample("eth0", 0)}, {});
  std::ofstream{own()};
  for (const char* end : {"-bbbbbb", "-cccccc", "-dddddd"}) REQUIRE(mkdir((own() + end).c_str(), 0700) == 0);
  CHECK(place_tree(tree, {path()}).root == own() + "-bbbbbb/" + tree.hash());
}

TEST_CASE_METHOD(Folder, "where a base is of no use the next one serves") {
  const Tree tree = make_tree({sample("eth0", 0)}, {});
  const PlacedTree none = place_tree(tree, {"/nowhere", "/dev/null"});
  CHECK(none.root.empty());
  CHECK(
      none.error ==
      "no RDMA devices, because their files cannot be put into /nowhere (No such file or directory) or /dev/null (Not "
      "a directory); set UIW_RUNTIME_DIR to a directory of yours that can be written");
  CHECK(place_tree(tree, {"/nowhere", "relative", path()}).error.empty());
}

TEST_CASE_METHOD(Folder, "several builders at once agree") {
  const Tree tree = make_tree({sample("eth0", 0)}, {});
  std::vector<std::string> roots(8);
  std::vector<std::thread> builders;
  for (std::string& root : roots)
    builders.emplace_back([this, &tree, &root] { root = place_tree(tree, {path()}).root; });
  for (std::thread& builder : builders) builder.join();
  for (const std::string& root : roots) CHECK(root == own() + "/" + tree.hash());
  std::size_t left = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(own())) ++left;
  CHECK(left == 1);
}

TEST_CASE_METHOD(Folder, "several builders at once that find their name taken come to agree") {
  const Tree tree = make_tree({sample("eth0", 0)}, {});
  std::ofstream{own()};
  std::vector<std::string> roots(8);
  std::vector<std::thread> builders;
  for (std::string& root : roots)
    builders.emplace_back([this, &tree, &root] { root = place_tree(tree, {path()}).root; });
  for (std::thread& builder : builders) builder.join();
  for (const std::string& root : roots) CHECK_FALSE(root.empty());
  const std::string agreed = place_tree(tree, {path()}).root;
  CHECK(agreed == *std::min_element(roots.begin(), roots.end()));
  const std::size_t names = names_in(path()).size();
  CHECK(place_tree(tree, {path()}).root == agreed);
  CHECK(names_in(path()).size() == names);
}

TEST_CASE("a runtime directory that was asked for is the only one tried") {
  CHECK(tree_bases("/x") == std::vector<std::string>{"/x"});
  setenv("XDG_RUNTIME_DIR", "/run/user/4711", 1);
  CHECK(tree_bases("") == std::vector<std::string>{"/run/user/4711", "/dev/shm", "/tmp"});
  unsetenv("XDG_RUNTIME_DIR");
  CHECK(tree_bases("") == std::vector<std::string>{"/dev/shm", "/tmp"});
}
