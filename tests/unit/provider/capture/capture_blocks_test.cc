// SPDX-License-Identifier: MIT
#include "provider/capture/capture_blocks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "base/guarded_copy.h"
#include "tests/unit/octets.h"

using namespace uiw;
using namespace uiw::test;
using namespace uiw::provider;

namespace {

// The numbers are those of draft-ietf-opsawg-pcapng.
constexpr std::uint32_t kSection = 0x0A0D0D0A, kInterface = 1, kPacket = 6, kLocalUse = 0x80000000;

// A file in a directory of its own, and what is in it.
class File {
 public:
  File() { REQUIRE(::mkdtemp(directory_.data()) != nullptr); }
  ~File() {
    ::unlink(path().c_str());
    ::rmdir(directory_.c_str());
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::string path() const { return directory_ + "/capture.pcapng"; }
  int open() const {
    const int fd = CaptureBlocks::open(path().c_str());
    REQUIRE(fd >= 0);
    return fd;
  }
  std::string octets() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void add(const std::string& octets) const {
    std::ofstream file(path(), std::ios::binary | std::ios::app);
    file << octets;
  }

  // The packets: what each carries, as readers see them, which skip blocks for local use. An empty list and a failed
  // check where the file is not a row of whole blocks.
  std::vector<std::string> packets() const {
    const std::string all = octets();
    std::vector<std::string> found;
    for (std::size_t at = 0; at < all.size();) {
      const auto number = [&](std::size_t offset) {
        std::uint32_t value = 0;
        if (offset + sizeof value <= all.size())
          std::copy_n(all.data() + offset, sizeof value, reinterpret_cast<char*>(&value));
        return value;
      };
      const std::uint32_t type = number(at), length = number(at + 4);
      const bool whole = length >= 12 && at + length <= all.size() && number(at + length - 4) == length &&
                         (type == kSection || type == kInterface || type == kPacket || type == kLocalUse);
      CHECK(whole);
      if (!whole) return {};
      if (type == kPacket) found.push_back(all.substr(at + 8, length - 12));
      at += length;
    }
    return found;
  }

 private:
  std::string directory_ = "/tmp/uiw-capture-test-XXXXXX";
};

// A packet of `size` octets, a multiple of four.
std::string packet(std::size_t size, char letter) {
  const std::uint32_t numbers[] = {kPacket, static_cast<std::uint32_t>(size + 12)};
  const std::string start(reinterpret_cast<const char*>(numbers), 8);
  return start + std::string(size, letter) + start.substr(4);
}

int append(CaptureBlocks& blocks, const std::string& block) {
  // In pieces, as the payload of a segment is.
  std::string octets = block;
  const std::size_t first = octets.size() / 3;
  const std::array<iovec, 2> pieces{{{octets.data(), first}, {octets.data() + first, octets.size() - first}}};
  return blocks.append(pieces, octets.size());
}

}  // namespace

TEST_CASE("capture_blocks: what two processes append follows one another", "[capture_blocks]") {
  const File file;
  CaptureBlocks one(file.open()), other(file.open());
  CHECK(append(one, packet(100, 'a')) == 0);
  CHECK(append(other, packet(8000, 'b')) == 0);
  CHECK(append(one, packet(0, 'c')) == 0);
  CHECK(file.packets() == std::vector{std::string(100, 'a'), std::string(8000, 'b'), std::string()});
}

TEST_CASE("capture_blocks: readers skip what a killed process has left of a block", "[capture_blocks]") {
  const std::string block = packet(8000, 'x');
  for (const std::size_t left : {4u, 8u, 12u, 28u, 4096u, 8008u}) {
    INFO(left << " octets are left");
    const File file;
    CaptureBlocks one(file.open()), other(file.open());
    CHECK(append(one, packet(100, 'a')) == 0);
    CHECK(append(other, packet(100, 'b')) == 0);
    file.add(block.substr(0, left));
    // For one that has written before, and for one that comes later.
    CHECK(append(one, packet(100, 'c')) == 0);
    file.add(block.substr(0, left));
    CaptureBlocks later(file.open());
    CHECK(file.packets().size() == 3);
    CHECK(append(later, packet(100, 'd')) == 0);
    file.add(block.substr(0, left));
    CHECK(append(later, packet(100, 'e')) == 0);
    const std::vector<std::string> packets = file.packets();
    REQUIRE(packets.size() == 5);
    for (std::size_t i = 0; i < packets.size(); ++i) CHECK(packets[i] == std::string(100, static_cast<char>('a' + i)));
  }
}

TEST_CASE("capture_blocks: what is no block of a capture stays", "[capture_blocks]") {
  for (const char* const text : {"somebody else's", "somebody else's\n"}) {
    const File file;
    CaptureBlocks blocks(file.open());
    CHECK(append(blocks, packet(100, 'a')) == 0);
    file.add(text);
    const std::string before = file.octets();
    CHECK(append(blocks, packet(100, 'b')) == 0);
    CHECK(file.octets() == before + packet(100, 'b'));
  }
}

TEST_CASE("capture_blocks: a file that somebody empties starts again", "[capture_blocks]") {
  const File file;
  CaptureBlocks blocks(file.open());
  const std::string start = file.octets();
  CHECK(append(blocks, packet(100, 'a')) == 0);
  REQUIRE(::truncate(file.path().c_str(), 0) == 0);
  CHECK(append(blocks, packet(100, 'b')) == 0);
  CHECK(file.octets() == start + packet(100, 'b'));
}

TEST_CASE("capture_blocks: a limit of the size of files ends no process", "[capture_blocks]") {
  const File file;
  CaptureBlocks blocks(file.open());
  CHECK(append(blocks, packet(8000, 'a')) == 0);
  file.add(packet(8000, 'x').substr(0, 100));  // beyond the limit too
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit limit{4000, 4000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(1);
    CaptureBlocks limited(CaptureBlocks::open(file.path().c_str()));
    ::_exit(append(limited, packet(100, 'b')) == EFBIG ? 0 : 2);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(append(blocks, packet(100, 'c')) == 0);
  CHECK(file.packets().size() == 2);
}

TEST_CASE("capture_blocks: a block of which the program has unmapped a part is not there", "[capture_blocks]") {
  install_copy_guard();
  const File file;
  CaptureBlocks blocks(file.open());
  const long page = ::sysconf(_SC_PAGESIZE);
  void* const memory =
      ::mmap(nullptr, static_cast<std::size_t>(2 * page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto* const octets = static_cast<char*>(memory);
  for (const long there : {page, 1002L, 10L, 2L}) {
    INFO(there << " octets are there");
    REQUIRE(::mprotect(octets + page, static_cast<std::size_t>(page), PROT_NONE) == 0);
    const std::string start = packet(5000, 'x').substr(0, static_cast<std::size_t>(there));
    std::copy(start.begin(), start.end(), octets + page - there);
    const std::array<iovec, 1> pieces{{{octets + page - there, 5012}}};
    CHECK(blocks.append(pieces, 5012) == EFAULT);
    CHECK(append(blocks, packet(100, 'a')) == 0);
  }
  CHECK(file.packets() == std::vector<std::string>(4, std::string(100, 'a')));
  CHECK(::munmap(memory, static_cast<std::size_t>(2 * page)) == 0);
}

TEST_CASE("capture_blocks: nothing is lost where processes write at the same time", "[capture_blocks]") {
  constexpr std::size_t kBlocks = 2000;
  const File file;
  const auto write = [&file](char letter) {
    CaptureBlocks blocks(CaptureBlocks::open(file.path().c_str()));
    for (std::size_t i = 0; i < kBlocks; ++i) append(blocks, packet(i % 10 * 1000, letter));
  };
  std::thread first(write, 'a'), second(write, 'b');
  write('c');
  first.join();
  second.join();
  CHECK(file.packets().size() == 3 * kBlocks);
}

TEST_CASE("capture_blocks: processes that are killed while they write, beside one that goes on", "[capture_blocks]") {
  constexpr std::size_t kLarge = 65536;
  const std::string large = packet(kLarge, 'x'), small(100, 's');
  for (int round = 0; round < 200; ++round) {
    INFO("round " << round);
    const File file;
    CaptureBlocks survivor(file.open());
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::alarm(60);  // should this test end before
      const int fd = CaptureBlocks::open(file.path().c_str());
      CaptureBlocks blocks(fd);
      for (int i = 0; i < 1000; ++i)
        if (fd < 0 || append(blocks, large) != 0) ::_exit(1);
      ::pause();
      ::_exit(1);
    }
    int status = 0;
    pid_t ended = 0;
    for (struct stat st{}; ended == 0 && st.st_size < off_t{kLarge} * (round % 5 + 1);) {
      CHECK(::stat(file.path().c_str(), &st) == 0);
      ended = ::waitpid(child, &status, WNOHANG);
    }
    REQUIRE(ended == 0);
    ::kill(child, SIGKILL);
    for (int i = 0; i < 20; ++i) CHECK(append(survivor, packet(small.size(), 's')) == 0);
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(append(survivor, packet(small.size(), 's')) == 0);
    const std::vector<std::string> packets = file.packets();
    REQUIRE(std::count(packets.begin(), packets.end(), small) == 21);
  }
}
