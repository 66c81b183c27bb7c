// SPDX-License-Identifier: MIT
// What becomes of ibv_wr_atomic_write() and ibv_wr_flush(), where the peer is uiw and where it is not. The plugin's
// part depends on the release of libibverbs (tests/unit/plugin).
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "provider/memory/rights.h"
#include "tests/unit/provider/pair.h"

using namespace uiw;
using namespace uiw::test;
using provider::kAccessFlushGlobal;
using provider::kAccessFlushPersistent;

namespace {

constexpr unsigned kTarget = kLocal | IBV_ACCESS_REMOTE_WRITE | kAccessFlushGlobal;
constexpr int kWcFlush = 8, kWcAtomicWrite = 9;  // as rdma-core 45 names them

// What the plugin makes of a call: an atomic operation without SGEs.
ibv_send_wr on(std::uint64_t id, std::uint32_t key, std::uint64_t address) {
  ibv_send_wr made{};
  made.wr_id = id;
  made.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  made.send_flags = IBV_SEND_SIGNALED;
  made.wr.atomic.rkey = key;
  made.wr.atomic.remote_addr = address;
  return made;
}

int write(Side& side, const ibv_send_wr& request, const char* octets) {
  std::uint64_t word;
  std::memcpy(&word, octets, sizeof word);
  side.qp->begin_batch();
  side.qp->next_is_atomic_write(word);
  side.qp->add(request);
  return side.qp->end_batch();
}

int flush(Side& side, const ibv_send_wr& request, const rdmap::Flush& what) {
  side.qp->begin_batch();
  side.qp->next_is_flush(what);
  side.qp->add(request);
  return side.qp->end_batch();
}

std::string text(const Bytes& octets) { return {reinterpret_cast<const char*>(octets.data()), octets.size()}; }

}  // namespace

TEST_CASE_METHOD(Loopback, "atomic_write: the octets are there once it has completed, and a flush succeeds",
                 "[atomic_write]") {
  Pair pair(context, {}, {});
  pair.connect({.crc = GENERATE(false, true), .peer = GENERATE(mpa::PeerKind::uiw, mpa::PeerKind::not_known)});
  const Registered target(pair.b, Bytes(32, std::byte{'.'}), kTarget);
  REQUIRE(write(pair.a, on(1, target.key(), target.address() + 8), "01234567") == 0);
  REQUIRE(flush(pair.a, on(2, target.key(), target.address() + 3), {9, true, false, false}) == 0);
  REQUIRE(flush(pair.a, on(3, target.key(), 0), {~std::uint64_t{0}, true, false, true}) == 0);
  CHECK(check_next(*pair.a.send_cq, 1).opcode == kWcAtomicWrite);
  CHECK(text(target) == "........01234567................");
  CHECK(check_next(*pair.a.send_cq, 2).opcode == kWcFlush);
  CHECK(check_next(*pair.a.send_cq, 3).opcode == kWcFlush);
  CHECK(none(*pair.b.receive_cq));
}

TEST_CASE_METHOD(Loopback, "atomic_write: what the peer refuses", "[atomic_write]") {
  Pair pair(context, {}, {});
  pair.connect({.peer = mpa::PeerKind::uiw});
  const Registered target(pair.b, Bytes(32), kTarget), plain(pair.b, Bytes(32), kLocal | IBV_ACCESS_REMOTE_READ);
  ibv_wc_status status = IBV_WC_REM_ACCESS_ERR;
  SECTION("a write without its right") { REQUIRE(write(pair.a, on(1, plain.key(), plain.address()), "01234567") == 0); }
  SECTION("a write that is not aligned") {
    REQUIRE(write(pair.a, on(1, target.key(), target.address() + 4), "01234567") == 0);
    status = IBV_WC_REM_INV_REQ_ERR;
  }
  SECTION("a flush without its right") {
    REQUIRE(flush(pair.a, on(1, plain.key(), plain.address()), {8, true, false, false}) == 0);
  }
  SECTION("a flush of a kind that the region has not") {
    REQUIRE(flush(pair.a, on(1, target.key(), target.address()), {8, false, true, false}) == 0);
  }
  SECTION("a flush beyond the region") {
    REQUIRE(flush(pair.a, on(1, target.key(), target.address() + 8), {32, true, false, false}) == 0);
  }
  check_next(*pair.a.send_cq, 1, status);
  CHECK(target == Bytes(32));
}

TEST_CASE_METHOD(ConnectedPair, "atomic_write: refused where the peer is not uiw", "[atomic_write]") {
  const Registered target(b, Bytes(32), kTarget);
  CHECK(write(a, on(1, target.key(), target.address()), "01234567") == EOPNOTSUPP);
  CHECK(flush(a, on(1, target.key(), target.address()), {8, true, false, false}) == EOPNOTSUPP);
  CHECK(a.qp->sends_outstanding() == 0);
  CHECK(a.qp->state() == IBV_QPS_RTS);
}

TEST_CASE_METHOD(Single, "atomic_write: memory that is not of files with MAP_SYNC cannot be flushed to a medium",
                 "[atomic_write]") {
  Bytes memory(64);
  errno = 0;
  CHECK(provider::Mr::create(a.pd, memory.data(), memory.size(), 0, kLocal | kAccessFlushPersistent) == nullptr);
  CHECK(errno == EOPNOTSUPP);
  CHECK(provider::Mr::create(a.pd, memory.data(), memory.size(), 0, kAccessFlushGlobal) != nullptr);
}

// Takes a directory of a file system that is mounted with dax, which tests/kernel has.
TEST_CASE_METHOD(Loopback, "atomic_write: a file that is mapped with MAP_SYNC is flushed to its medium", "[.medium]") {
  constexpr std::size_t kSize = 3 * 4096;
  const char* const directory = std::getenv("DAX_DIRECTORY");
  REQUIRE(directory != nullptr);
  const int file = ::open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  REQUIRE(file >= 0);
  REQUIRE(::posix_fallocate(file, 0, kSize) == 0);
  const auto map = [&](int flags) {
    void* const mapped = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, flags, file, 0);
    REQUIRE(mapped != MAP_FAILED);
    return static_cast<std::byte*>(mapped);
  };
  std::byte* const synchronous = map(MAP_SHARED_VALIDATE | MAP_SYNC);
  std::byte* const plain = map(MAP_SHARED);
  constexpr unsigned kAccess = kTarget | kAccessFlushPersistent;
  Pair pair(context, {}, {});
  pair.connect({.peer = mpa::PeerKind::uiw});

  errno = 0;
  CHECK(provider::Mr::create(pair.b.pd, plain, kSize, 0, kAccess) == nullptr);
  CHECK(errno == EOPNOTSUPP);
  {
    const auto target = provider::Mr::create(pair.b.pd, synchronous, kSize, 0, kAccess);
    REQUIRE(target != nullptr);
    REQUIRE(write(pair.a, on(1, target->key(), 4096), "01234567") == 0);
    REQUIRE(flush(pair.a, on(2, target->key(), 4096 + 3), {9, false, true, false}) == 0);
    REQUIRE(flush(pair.a, on(3, target->key(), 0), {~std::uint64_t{0}, true, true, true}) == 0);
    check_next(*pair.a.send_cq, 1);
    CHECK(check_next(*pair.a.send_cq, 2).opcode == kWcFlush);
    CHECK(check_next(*pair.a.send_cq, 3).opcode == kWcFlush);
    std::string there(8, '.');
    REQUIRE(::pread(file, there.data(), there.size(), 4096) == 8);
    CHECK(there == "01234567");
  }
  ::munmap(synchronous, kSize);
  ::munmap(plain, kSize);
  ::close(file);
}
