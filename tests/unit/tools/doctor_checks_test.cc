// SPDX-License-Identifier: MIT
// What `uiw doctor` makes of a file name and of the devices that there are.
#include "tools/doctor/checks.h"

#include <arpa/inet.h>

#include <catch2/catch.hpp>
#include <initializer_list>

using namespace uiw::tools;
using uiw::provider::DeviceInfo;

namespace {

DeviceInfo device(std::initializer_list<const char*> addresses) {
  DeviceInfo made;
  for (const char* const text : addresses) {
    uiw::provider::Gid gid{};
    REQUIRE(inet_pton(AF_INET6, text, gid.data()) == 1);
    made.gids.push_back(gid);
  }
  return made;
}

}  // namespace

TEST_CASE("doctor: rdma-core's release ends the name of libibverbs") {
  CHECK(release_of("/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0") == "44.0");
  CHECK(release_of("/opt/rdma-core-57.0/lib/libibverbs.so.1.14.57.0") == "57.0");
  CHECK(release_of("/usr/lib/libibverbs.so") == "of unknown release");
  CHECK(release_of("") == "of unknown release");
}

TEST_CASE("doctor: the way of the self-test's connection is in the log, which is not its result") {
  const std::string log = "2026-11-24T20:00:00.000000Z 77 uiw: queue pair 0x9ddb66: ";
  CHECK(selftest_output("").said.empty());
  CHECK(selftest_output("it worked\n").said == "it worked");
  CHECK(selftest_output("it worked\n").way == "TCP");
  const SelftestOutput both =
      selftest_output(log + "its octets go through shared memory\nit worked\n\n" + log + "its connection ends: why\n");
  CHECK(both.said == "it worked");
  CHECK(both.way == "shared memory");
}

TEST_CASE("doctor: the self-test goes over 127.0.0.1, or over the first address that needs no scope") {
  CHECK(selftest_address({}).empty());
  CHECK(selftest_address({device({"fe80::1"})}).empty());
  CHECK(selftest_address({device({"fe80::1", "2001:db8::1"}), device({"::ffff:192.0.2.1"})}) == "2001:db8::1");
  CHECK(selftest_address({device({"::ffff:192.0.2.1"}), device({"::ffff:127.0.0.1"})}) == "127.0.0.1");
}

TEST_CASE("doctor: every check has a subject and a text, and what failed has advice") {
  for (const Finding& finding : examine()) {
    INFO(finding.subject << ": " << finding.text);
    CHECK_FALSE(finding.subject.empty());
    CHECK_FALSE(finding.text.empty());
    CHECK(finding.advice.empty() == (finding.verdict == Verdict::ok));
  }
}
