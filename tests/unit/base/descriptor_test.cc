// SPDX-License-Identifier: MIT
#include "base/descriptor.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <set>
#include <string>
#include <vector>

using namespace uiw;

namespace {

std::set<int> kept;
int changes = 0;
bool outside_of_change = false;  // a protection that began or ended outside of a change
const DescriptorGuard guard = {[](int fd) {
                                 kept.insert(fd);
                                 outside_of_change |= changes == 0;
                               },
                               [](int fd) {
                                 kept.erase(fd);
                                 outside_of_change |= changes == 0;
                               },
                               [] { ++changes; }, [] { --changes; }};

std::string told;
void tell(const char* purpose, unsigned long limit, bool by_limit) {
  told += std::string(purpose) + " " + std::to_string(limit) + (by_limit ? " limit;" : " system;");
}

int make() { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }
bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

// The body returns what is wrong; it runs in a process of its own with this limit, since limits and descriptors stay.
template <typename Body>
std::string with_limit(unsigned long limit, Body body) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    rlimit all{};
    ::getrlimit(RLIMIT_NOFILE, &all);
    all.rlim_cur = limit;
    std::string wrong = ::setrlimit(RLIMIT_NOFILE, &all) == 0 ? body() : "setrlimit";
    wrong += ".";
    [[maybe_unused]] const auto n = ::write(ends[1], wrong.data(), wrong.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  char said[256] = {};
  [[maybe_unused]] const auto n = ::read(ends[0], said, sizeof said - 1);
  ::close(ends[0]);
  int status = -1;
  ::waitpid(child, &status, 0);
  return status == 0 ? said : "it died";
}

int files_to_be_had() {
  std::vector<int> files;
  for (int fd; (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) files.push_back(fd);
  for (const int fd : files) ::close(fd);
  return static_cast<int>(files.size());
}

}  // namespace

TEST_CASE("a descriptor that is taken moves up, close-on-exec, and is protected until it is closed", "[descriptor]") {
  set_descriptor_guard(&guard);
  const int made = make();
  const int taken = DescriptorChange().take(made, "a test");
  REQUIRE(taken >= 0);
  CHECK(taken != made);
  CHECK_FALSE(is_open(made));
  CHECK((::fcntl(taken, F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(kept == std::set{taken});
  const int other = DescriptorChange().take(make(), "a test");
  CHECK(kept == std::set{taken, other});
  errno = ELOOP;
  close_descriptor(taken);
  CHECK(errno == ELOOP);
  CHECK_FALSE(is_open(taken));
  CHECK(kept == std::set{other});
  DescriptorChange().leave(other);
  CHECK(kept.empty());
  CHECK(::close(other) == 0);
  CHECK_FALSE(outside_of_change);
  CHECK(changes == 0);
  set_descriptor_guard(nullptr);
}

TEST_CASE("a high number stays what it is", "[descriptor]") {
  const int made = make();
  const int high = ::fcntl(made, F_DUPFD_CLOEXEC, 2000);
  ::close(made);
  if (high < 0) return;  // a lower limit
  CHECK(DescriptorChange().take(high, "a test") == high);
  close_descriptor(high);
}

TEST_CASE("none of the last descriptors is taken, and the refusal is reported", "[descriptor]") {
  set_descriptors_exhausted(tell);
  for (const unsigned long limit : {40UL, 64UL, 300UL, 2000UL}) {
    CAPTURE(limit);
    CHECK(with_limit(limit, [limit]() -> std::string {
            if (!may_take_descriptor("early")) return "refused early";
            std::vector<int> taken;
            for (int fd; (fd = DescriptorChange().take(make(), "a test")) >= 0;) taken.push_back(fd);
            if (errno != EMFILE) return "errno " + std::to_string(errno);
            if (told != "a test " + std::to_string(limit) + " limit;") return told;
            if (may_take_descriptor("late") || errno != EMFILE) return "not refused late";
            const int left = files_to_be_had();
            if (left != kDescriptorsLeft) return std::to_string(left) + " are left";
            // Those that are closed are there again.
            close_descriptor(taken.back());
            return DescriptorChange().take(make(), "again") >= 0 ? "" : "refused again";
          }) == ".");
  }
  set_descriptors_exhausted(nullptr);
}

TEST_CASE("what the program opens meanwhile is counted", "[descriptor]") {
  CHECK(with_limit(200, []() -> std::string {
          const int first = DescriptorChange().take(make(), "a test");
          if (first < 0) return "refused";
          const int free = files_to_be_had();
          for (int left = free; left > kDescriptorsLeft; --left)
            if (::open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) return "open";
          if (DescriptorChange().take(make(), "a test") >= 0) return "one of the last was taken";
          return files_to_be_had() == kDescriptorsLeft ? "" : "not all are left";
        }) == ".");
}

TEST_CASE("a limit that was lowered holds", "[descriptor]") {
  CHECK(with_limit(400, []() -> std::string {
          for (int i = 0; i < 20; ++i)
            if (DescriptorChange().take(make(), "a test") < 0) return "refused";
          rlimit limit{};
          ::getrlimit(RLIMIT_NOFILE, &limit);
          limit.rlim_cur = 100;
          ::setrlimit(RLIMIT_NOFILE, &limit);
          while (DescriptorChange().take(make(), "a test") >= 0) {
          }
          const int left = files_to_be_had();
          return left == kDescriptorsLeft ? "" : std::to_string(left) + " are left";
        }) == ".");
}

TEST_CASE("a call that could not make one keeps its errno", "[descriptor]") {
  told.clear();
  set_descriptors_exhausted(tell);
  errno = EAFNOSUPPORT;
  CHECK(DescriptorChange().take(-1, "a test") == -1);
  CHECK(errno == EAFNOSUPPORT);
  CHECK(told.empty());
  errno = ENFILE;
  CHECK(DescriptorChange().take(-1, "a test") == -1);
  CHECK(errno == ENFILE);
  CHECK(told.find(" system;") != std::string::npos);
  set_descriptors_exhausted(nullptr);
}
