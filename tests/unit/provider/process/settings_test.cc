// SPDX-License-Identifier: MIT
#include "provider/process/settings.h"

#include <limits.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>

using namespace uiw::provider;

namespace {

bool good(const char* variable, const std::string& value) { return check_setting(variable, value).empty(); }

// What settings() says in a process of its own with this environment.
std::string in_child(const std::string& environment) {
  std::array<char, PATH_MAX> self{};
  REQUIRE(::readlink("/proc/self/exe", self.data(), self.size() - 1) > 0);
  const std::string command = "env -i " + environment + " '" + self.data() + "' '[.settings-child]' 2>&1";
  std::FILE* pipe = ::popen(command.c_str(), "re");
  REQUIRE(pipe != nullptr);
  std::string out;
  std::array<char, 512> line;
  while (std::fgets(line.data(), static_cast<int>(line.size()), pipe) != nullptr) {
    if (std::strncmp(line.data(), "settings: ", 10) == 0) out = line.data() + 10;
  }
  ::pclose(pipe);
  if (!out.empty()) out.pop_back();
  return out;
}

}  // namespace

TEST_CASE("settings: (child)", "[.settings-child]") {
  const LoadedSettings& loaded = settings();
  const Settings& s = loaded.values;
  std::string devices;
  for (const auto& device : s.devices) devices += device.interface + "=" + device_name(device) + ";";
  std::printf("settings: %s|%d|%d|%s|%u|%u|%u|%s|%d|%u-%u|%d\n", loaded.error.c_str(), static_cast<int>(s.crc),
              static_cast<int>(s.completion), devices.c_str(), s.mulpdu, s.startup_timeout_ms, s.mpa_revision,
              s.runtime_dir.c_str(), static_cast<int>(s.transport), s.port_range.first, s.port_range.last,
              static_cast<int>(s.messages));
}

TEST_CASE("settings: every value is checked", "[settings]") {
  for (const char* value : {"auto", "on", "off"}) CHECK(good("UIW_CRC", value));
  for (const char* value : {"", "ON", "1", "yes", "on "}) CHECK_FALSE(good("UIW_CRC", value));
  for (const char* value : {"off", "on"}) CHECK(good("UIW_MARKERS", value));
  for (const char* value : {"", "auto", "1"}) CHECK_FALSE(good("UIW_MARKERS", value));
  for (const char* value : {"auto", "local", "remote"}) CHECK(good("UIW_COMPLETION", value));
  for (const char* value : {"", "Remote", "on", "local "}) CHECK_FALSE(good("UIW_COMPLETION", value));
  for (const char* value : {"", "lo", "lo,eth0", "eth0.5", "eth0=mlx5_0,eth0=mlx5_1,lo", "lo,lo=b"})
    CHECK(good("UIW_DEVICES", value));
  for (const char* value :
       {",", "lo,,eth0", ",lo", "=a", "lo=", "lo=a/b", "lo=..", "lo=rxe0", "lo,lo", "lo=a,eth0=a", "eth0=uiw_lo,lo"})
    CHECK_FALSE(good("UIW_DEVICES", value));
  for (const char* value : {"auto", "1", "64"}) CHECK(good("UIW_PROGRESS_THREADS", value));
  for (const char* value : {"", "0", "65", "Auto"}) CHECK_FALSE(good("UIW_PROGRESS_THREADS", value));
  for (const char* value : {"0", "128", "1500", "64768"}) CHECK(good("UIW_MULPDU", value));
  for (const char* value :
       {"", "1", "127", "64769", "65536", "-1", "4k", " 128", "128 ", "0x80", "99999999999999999999"}) {
    CHECK_FALSE(good("UIW_MULPDU", value));
  }
  for (const char* value : {"100", "10000", "600000"}) CHECK(good("UIW_STARTUP_TIMEOUT", value));
  for (const char* value : {"", "0", "99", "600001", "1s"}) CHECK_FALSE(good("UIW_STARTUP_TIMEOUT", value));
  for (const char* value : {"1", "2"}) CHECK(good("UIW_MPA_REVISION", value));
  for (const char* value : {"", "0", "3", "two"}) CHECK_FALSE(good("UIW_MPA_REVISION", value));
  for (const char* value : {"", "1024-1024", "20000-20063", "1024-65535"}) CHECK(good("UIW_PORT_RANGE", value));
  for (const char* value :
       {"20000", "20001-20000", "1023-2000", "20000-65536", "-", "a-b", "1024-", "1024-2000 ", "65535-65535"}) {
    CHECK_FALSE(good("UIW_PORT_RANGE", value));
  }
  for (const char* value : {"1024", "14791", "65535"}) CHECK(good("UIW_MULTICAST_PORT", value));
  for (const char* value : {"", "0", "1023", "65536", "14791x"}) CHECK_FALSE(good("UIW_MULTICAST_PORT", value));
  for (const char* value : {"auto", "tcp"}) CHECK(good("UIW_SAME_HOST", value));
  for (const char* value : {"", "shared", "TCP"}) CHECK_FALSE(good("UIW_SAME_HOST", value));
  for (const char* value : {"0", "256", "4096"}) CHECK(good("UIW_MTU", value));
  for (const char* value : {"", "1", "1500", "8192", "-1", "1024 "}) CHECK_FALSE(good("UIW_MTU", value));
  for (const char* value : {"iwarp", "roce"}) CHECK(good("UIW_TRANSPORT", value));
  for (const char* value : {"", "RoCE", "rocev2", "ib", "roce "}) CHECK_FALSE(good("UIW_TRANSPORT", value));
  for (const char* value : {"", "/tmp", "/run/user/1000"}) CHECK(good("UIW_RUNTIME_DIR", value));
  for (const char* value : {"tmp", "./x"}) CHECK_FALSE(good("UIW_RUNTIME_DIR", value));
  for (const char* value : {"", "on", "off"}) CHECK(good("UIW_MESSAGES", value));
  for (const char* value : {"1", "On", "yes"}) CHECK_FALSE(good("UIW_MESSAGES", value));
  CHECK_FALSE(good("UIW_NONE", "1"));
}

TEST_CASE("settings: a complaint names variable, value and what would do", "[settings]") {
  const std::string complaint = check_setting("UIW_CRC", "maybe");
  CHECK(complaint.find("UIW_CRC") != std::string::npos);
  CHECK(complaint.find("maybe") != std::string::npos);
  CHECK(complaint.find("auto|on|off") != std::string::npos);
}

TEST_CASE("settings: the table holds each variable once, and its initial value is good", "[settings]") {
  const auto table = setting_table();
  CHECK(table.size() >= 7);
  for (const SettingInfo& row : table) {
    CHECK(std::strncmp(row.variable, "UIW_", 4) == 0);
    CHECK(std::strncmp(row.option, "--", 2) == 0);
    CHECK(good(row.variable, row.initial));
    CHECK(std::strlen(row.help) > 0);
    int same = 0;
    for (const SettingInfo& other : table) same += std::strcmp(row.variable, other.variable) == 0;
    CHECK(same == 1);
  }
}

TEST_CASE("settings: read from the environment", "[settings][native]") {
  CHECK(in_child("") == "|0|0||0|10000|2||0|0-0|0");
  CHECK(in_child("UIW_CRC=on UIW_COMPLETION=remote UIW_DEVICES=lo=a,eth0 UIW_MULPDU=1500 UIW_STARTUP_TIMEOUT=500 "
                 "UIW_MPA_REVISION=1 UIW_RUNTIME_DIR=/tmp/x UIW_TRANSPORT=roce UIW_PORT_RANGE=20000-20063 "
                 "UIW_MESSAGES=on UIWX=1") == "|1|2|lo=a;eth0=uiw_eth0;|1500|500|1|/tmp/x|1|20000-20063|1");
  CHECK(in_child("UIW_CRC=off UIW_COMPLETION=local").substr(0, 5) == "|2|1|");
  CHECK(in_child("UIW_CRC=never").find("UIW_CRC is 'never'") == 0);
  CHECK(in_child("UIW_TYPO=1").find("UIW_TYPO is not a setting") == 0);
}
