// SPDX-License-Identifier: MIT
// Memory regions of every kind, advice, device memory: what works, and each errno of the manual pages.
#include "provider/memory/memory.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <string>

#include "provider/process/limits.h"
#include "tests/unit/provider/memory/window_pair.h"

using namespace uiw;
using namespace uiw::test;

TEST_CASE_METHOD(Loopback, "memory: what the device says", "[memory]") {
  ibv_device_attr_ex device{};
  context->query_device(device);
  CHECK(device.orig_attr.max_mw == provider::kMaxMw);
  CHECK((device.orig_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW) != 0);
  CHECK((device.orig_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0);
  CHECK((device.orig_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A) == 0);
  CHECK(device.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
  CHECK((device.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_ATOMIC) != 0);
  CHECK(device.odp_caps.per_transport_caps.ud_odp_caps == 0);
  CHECK(device.max_dm_size == provider::kMaxDmSize);
}

// ---- Re-registration -----------------------------------------------------------------------------------------------

TEST_CASE_METHOD(Loopback, "memory: rereg_mr, each combination of flags", "[memory]") {
  for (int flags = 0; flags <= IBV_REREG_MR_FLAGS_SUPPORTED; ++flags) {
    Pd pd(context), other(context);
    Bytes memory(100), second(300);
    auto mr = Mr::create(pd, memory.data(), 100, address_of(memory), kLocal);
    REQUIRE(mr);
    const std::uint32_t key = mr->key();
    const bool translation = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
    const bool domain = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
    const bool access = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
    CHECK(mr->reregister(flags, &other, second.data(), second.size(), kAll) == (flags == 0 ? EINVAL : 0));
    CHECK(mr->key() == key);
    const ddp::Region now = region_of(*mr);
    CHECK(now.memory == (translation ? second.data() : memory.data()));
    CHECK(now.base == (translation ? address_of(second) : address_of(memory)));
    CHECK(now.length == (translation ? 300 : 100));
    CHECK(now.domain == (domain ? &other : &pd));
    CHECK(now.rights == (access ? 31 : ddp::kLocalRead | ddp::kLocalWrite));
    CHECK(pd.in_use() != domain);
    CHECK(other.in_use() == domain);
    mr.reset();
    CHECK_FALSE(pd.in_use());
    CHECK_FALSE(other.in_use());
  }
}

TEST_CASE_METHOD(Loopback, "memory: rereg_mr and zero-based addressing, and a chosen iova", "[memory]") {
  Pd pd(context);
  Bytes memory(100);
  const auto mr = Mr::create(pd, memory.data(), 100, 0x500, 0);
  REQUIRE(mr);
  CHECK(mr->reregister(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kLocal) == 0);
  CHECK(region_of(*mr).base == 0x500);
  CHECK(mr->reregister(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kLocal | IBV_ACCESS_ZERO_BASED) == 0);
  CHECK(region_of(*mr).base == 0);
  CHECK(mr->reregister(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kLocal) == 0);
  CHECK(region_of(*mr).base == address_of(memory));
}

TEST_CASE_METHOD(Loopback, "memory: rereg_mr, errors", "[memory]") {
  const auto elsewhere = open_loopback();
  Pd pd(context), other(elsewhere);
  Bytes memory(100);
  Pages constant(1, PROT_READ);
  auto mr = Mr::create(pd, memory.data(), 100, address_of(memory), kBindable);
  REQUIRE(mr);
  // Nothing happens to the region.
  CHECK(mr->reregister(8, nullptr, nullptr, 0, 0) == EINVAL);
  CHECK(mr->reregister(IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0) == EINVAL);
  CHECK(mr->reregister(IBV_REREG_MR_CHANGE_PD, &other, nullptr, 0, 0) == EINVAL);
  CHECK(found(mr->key()));
  Window window(pd, IBV_MW_TYPE_2);
  int stream = 0;
  REQUIRE(provider::stag_table().bind({static_cast<ddp::Stag>(window.handle.rkey), static_cast<ddp::Stag>(mr->key()),
                                       address_of(memory), 10, ddp::kRemoteRead, ddp::WindowType::type2, false},
                                      &pd, &stream) == ddp::WindowError::none);
  CHECK(mr->reregister(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0) == EBUSY);
  CHECK(found(mr->key()));
  window.mw.reset();
  // The region is over (Verbs draft section 7.3.2.3) and can be destroyed only.
  SECTION("memory that is not there") {
    CHECK(mr->reregister(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, constant.memory, kPage, 0) == EFAULT);
  }
  SECTION("rights that cannot be") {
    CHECK(mr->reregister(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE) == EINVAL);
  }
  CHECK_FALSE(found(mr->key()));
  CHECK(mr->reregister(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0) == EINVAL);
  mr.reset();
  CHECK_FALSE(pd.in_use());
}

// ---- What is mapped ------------------------------------------------------------------------------------------------

namespace {

// The errno of a registration of this range, or 0.
int registers(Pd& pd, const Pages& pages, std::size_t offset, std::size_t length, unsigned access) {
  return Mr::create(pd, pages.memory + offset, length, pages.address() + offset, access) ? 0 : errno;
}

}  // namespace

TEST_CASE_METHOD(Loopback, "memory: each page of a region has to be mapped and to allow what the region allows",
                 "[memory][native]") {
  Pd pd(context);
  // Few pages, and more than are faulted in: the kernel is asked in different ways.
  const std::size_t count = GENERATE(std::size_t{3}, std::size_t{300});
  const std::size_t wrong = GENERATE(0, 1, 2) * (count - 1) / 2;  // the first, one in the middle, the last
  const Pages pages(count);
  CAPTURE(count, wrong);
  CHECK(registers(pd, pages, 0, pages.size, kAll) == 0);
  REQUIRE(::mprotect(pages.memory + wrong * kPage, kPage, PROT_READ) == 0);
  CHECK(registers(pd, pages, 0, pages.size, 0) == 0);  // several mappings, side by side
  CHECK(registers(pd, pages, 0, pages.size, IBV_ACCESS_REMOTE_READ) == 0);
  CHECK(registers(pd, pages, 0, pages.size, kAll) == EFAULT);
  pages.make_inaccessible(wrong * kPage, kPage);
  CHECK(registers(pd, pages, 0, pages.size, 0) == EFAULT);
  CHECK(registers(pd, pages, wrong * kPage + 100, 1, 0) == EFAULT);
  CHECK(registers(pd, pages, wrong * kPage + 100, 0, 0) == 0);  // of no octets
  // Next to it, up to the last octet.
  if (wrong > 0) {
    CHECK(registers(pd, pages, 0, wrong * kPage, kAll) == 0);
    CHECK(registers(pd, pages, 0, wrong * kPage + 1, kAll) == EFAULT);
  }
  if (const std::size_t behind = (wrong + 1) * kPage; behind < pages.size) {
    CHECK(registers(pd, pages, behind, pages.size - behind, kAll) == 0);
    CHECK(registers(pd, pages, behind - 1, pages.size - behind, kAll) == EFAULT);
  }
}

TEST_CASE_METHOD(Loopback, "memory: of a large region no page is touched", "[memory][native]") {
  Pd pd(context);
  const Pages pages(300);
  REQUIRE(registers(pd, pages, 0, pages.size, kAll) == 0);
  std::array<unsigned char, 300> resident{};
  REQUIRE(::mincore(pages.memory, pages.size, resident.data()) == 0);
  CHECK(std::none_of(resident.begin(), resident.end(), [](unsigned char page) { return (page & 1) != 0; }));
}

TEST_CASE_METHOD(Loopback, "memory: memory that cannot be populated is registered all the same", "[memory]") {
  Pd pd(context);
  // A mapping that is longer than its file: the second page is mapped, and nothing is behind it yet.
  const int file = ::memfd_create("short", MFD_CLOEXEC);
  REQUIRE((file >= 0 && ::ftruncate(file, kPage) == 0));
  const Pages pages(2);
  REQUIRE(::mmap(pages.memory, pages.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED);
  ::close(file);
  CHECK(registers(pd, pages, 0, pages.size, kAll) == 0);
}

TEST_CASE_METHOD(Loopback, "memory: the registration of a few pages reads no list of what is mapped",
                 "[memory][native]") {
  // What this process has read so far.
  const auto octets_read = [] {
    std::ifstream file("/proc/self/io");
    std::string name;
    unsigned long count = 0;
    REQUIRE((file >> name >> count));
    return count;
  };
  Pd pd(context);
  const Pages pages(16);
  const unsigned long before = octets_read();
  REQUIRE(registers(pd, pages, 0, kPage, kAll) == 0);
  REQUIRE(registers(pd, pages, 0, pages.size, kAll) == 0);
  CHECK(octets_read() - before < 2048);  // the list of a small program is longer, and that of /proc/self/io is not
}

// ---- On-demand paging, advice --------------------------------------------------------------------------------------

TEST_CASE_METHOD(Loopback, "memory: on-demand regions are not looked at before they are used", "[memory]") {
  Pd pd(context);
  Pages pages(4);
  pages.make_inaccessible(kPage, kPage);
  const auto mr = Mr::create(pd, pages.memory, pages.size, pages.address(), kLocal | IBV_ACCESS_ON_DEMAND);
  REQUIRE(mr);
  CHECK(region_of(*mr).length == pages.size);
  const auto all = Mr::create(pd, nullptr, SIZE_MAX, 0, kAll | IBV_ACCESS_ON_DEMAND);
  REQUIRE(all);
  CHECK(region_of(*all).length == SIZE_MAX);
  CHECK(Mr::create(pd, nullptr, SIZE_MAX, 0, kLocal) == nullptr);
  CHECK(Mr::create(pd, nullptr, SIZE_MAX, 0, kLocal | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB) == nullptr);
  CHECK(errno == EINVAL);
}

TEST_CASE_METHOD(WindowPair, "memory: an implicit on-demand region serves any memory, at both ends", "[memory]") {
  const auto here = Mr::create(near.pd, nullptr, SIZE_MAX, 0, kAll | IBV_ACCESS_ON_DEMAND);
  const auto there = Mr::create(far.pd, nullptr, SIZE_MAX, 0, kAll | IBV_ACCESS_ON_DEMAND);
  REQUIRE((here && there));
  Pages later(2);  // registered by the regions before it was there
  std::memset(later.memory, 5, 1000);
  const ibv_sge source{later.address(), 1000, here->key()};
  REQUIRE(near.post(IBV_WR_RDMA_WRITE, 1, {source}, 0, there->key(), later.address() + kPage) == 0);
  REQUIRE(near.post(IBV_WR_RDMA_READ, 2, {}, 0, 0, 0) == 0);
  CHECK(next(*near.send_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*near.send_cq).status == IBV_WC_SUCCESS);
  CHECK(later.memory[kPage + 999] == std::byte{5});
  SECTION("what is not there at the peer ends the stream") {
    REQUIRE(near.post(IBV_WR_RDMA_READ, 3, {source}, 0, there->key(), 16) == 0);
    CHECK(next(*near.send_cq).status != IBV_WC_SUCCESS);
  }
  SECTION("what is not there here ends the work") {
    const ibv_sge nothing{16, 8, here->key()};
    REQUIRE(near.post(IBV_WR_SEND, 3, {nothing}) == 0);
    CHECK(next(*near.send_cq).status == IBV_WC_LOC_PROT_ERR);
  }
}

TEST_CASE_METHOD(Loopback, "memory: advise_mr", "[memory][native]") {
  Pd pd(context), other(context);
  Pages pages(4);
  const auto mr = Mr::create(pd, pages.memory, pages.size, pages.address(), kLocal | IBV_ACCESS_ON_DEMAND);
  const auto constant = Mr::create(pd, pages.memory, pages.size, pages.address(), IBV_ACCESS_ON_DEMAND);
  REQUIRE((mr && constant));
  const auto advise = [&](Pd& by, ibv_advise_mr_advice advice, const ibv_sge& sge, std::uint32_t flags = 0) {
    return provider::advise_mr(by, advice, flags, &sge, 1);
  };
  const ibv_sge all{pages.address(), static_cast<std::uint32_t>(pages.size), mr->key()};
  const auto with = [&](std::uint32_t lkey) { return ibv_sge{all.addr, all.length, lkey}; };
  const auto resident = [&] {
    unsigned char pages_in[4];
    REQUIRE(::mincore(pages.memory, pages.size, pages_in) == 0);
    return std::count_if(pages_in, pages_in + 4, [](unsigned char page) { return (page & 1) != 0; });
  };
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, all) == 0);
  CHECK(resident() == 0);  // registration on demand has not touched them, either
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, all) == 0);
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, all, IBV_ADVISE_MR_FLAG_FLUSH) == 0);
  CHECK(resident() == 4);
  const auto plain = Mr::create(pd, pages.memory, pages.size, pages.address(), kLocal);
  REQUIRE(plain);
  // Manual page of ibv_advise_mr, RETURN VALUE.
  CHECK(advise(pd, static_cast<ibv_advise_mr_advice>(3), all) == ENOTSUP);
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, all, 2) == EINVAL);
  CHECK(provider::advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &all, 0) == EINVAL);
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, with(mr->key() ^ 0x5A5A5A00)) == EFAULT);
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, {all.addr + 1, all.length, all.lkey}) == EFAULT);
  CHECK(advise(other, IBV_ADVISE_MR_ADVICE_PREFETCH, all) == EPERM);
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, with(constant->key())) == EPERM);
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, with(constant->key())) == 0);
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, with(plain->key())) == EINVAL);
  pages.make_inaccessible(kPage, kPage);
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, all) == EFAULT);
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, {all.addr, 100, all.lkey}) == 0);
}

// ---- Null regions, dma-buf, device memory --------------------------------------------------------------------------

TEST_CASE_METHOD(WindowPair, "memory: a null region reads zeros and drops what is written", "[memory]") {
  const auto null = Mr::create_null(near.pd);
  const auto far_null = Mr::create_null(far.pd);
  REQUIRE((null && far_null));
  const auto exposed = far.expose(target, kAll);
  std::fill(target.begin(), target.end(), std::byte{7});
  const ibv_sge anywhere{0x123456789, 1000, null->key()};
  // Into it: a Read's data go nowhere, and the ones after it to their place.
  ibv_sge half = anywhere, rest = own.sge();
  half.length = 500;
  rest.length = 500;
  const Bytes before = own;
  REQUIRE(near.post(IBV_WR_RDMA_READ, 1, {half, rest}, 0, exposed->key(), target.address()) == 0);
  CHECK(next(*near.send_cq).status == IBV_WC_SUCCESS);
  CHECK(own[0] == std::byte{7});
  CHECK(own[500] == before[500]);
  // Out of it: zeros.
  REQUIRE(near.post(IBV_WR_RDMA_WRITE, 2, {anywhere}, 0, exposed->key(), target.address()) == 0);
  REQUIRE(near.post(IBV_WR_RDMA_READ, 3, {}, 0, 0, 0) == 0);
  next(*near.send_cq), next(*near.send_cq);
  CHECK(target == Bytes(1000));
  // A receive: dropped, and counted.
  REQUIRE(far.post_receive(4, {{0, 1000, far_null->key()}}) == 0);
  REQUIRE(near.post(IBV_WR_SEND, 5, {own.sge()}) == 0);
  const ibv_wc received = next(*far.receive_cq);
  CHECK(received.status == IBV_WC_SUCCESS);
  CHECK(received.byte_len == 1000);
  next(*near.send_cq);
  // Nobody reaches it from afar, and no window is bound to
  CHECK(write(far_null->key(), 0, 10) != IBV_WC_SUCCESS);
}

TEST_CASE_METHOD(WindowPair, "memory: the result of an atomic operation may be dropped", "[memory]") {
  const auto null = Mr::create_null(near.pd);
  const auto exposed = far.expose(target, kAll);
  ibv_sge sink{8, 8, null->key()};
  const std::uint64_t to = (target.address() + 7) & ~std::uint64_t{7};
  REQUIRE(near.post_atomic(0, sink, exposed->key(), to, 1) == 0);
  CHECK(next(*near.send_cq).status == IBV_WC_SUCCESS);
}

TEST_CASE_METHOD(WindowPair, "memory: regions of a descriptor that can be mapped", "[memory]") {
  // What an exporter of system memory gives; any descriptor that maps will do.
  const int fd = ::memfd_create("buffer", MFD_CLOEXEC);
  REQUIRE(fd >= 0);
  REQUIRE(::ftruncate(fd, 3 * kPage) == 0);
  const auto mr = Mr::create_dmabuf(far.pd, kPage + 100, kPage, 0x70000 + 100, fd, kAll);
  REQUIRE(mr);
  CHECK(write(mr->key(), 0x70000 + 100) == IBV_WC_SUCCESS);
  Bytes out(1000);
  CHECK(::pread(fd, out.data(), out.size(), kPage + 100) == 1000);
  CHECK(out == own);
  const auto error = [&](std::uint64_t offset, std::size_t length, std::uint64_t iova, int from, unsigned access) {
    errno = 0;
    return Mr::create_dmabuf(far.pd, offset, length, iova, from, access) ? 0 : errno;
  };
  CHECK(error(0, kPage, 0, fd, IBV_ACCESS_RELAXED_ORDERING) == 0);
  CHECK(error(0, kPage, 1, fd, kAll) == EINVAL);  // another page offset
  CHECK(error(0, 0, 0, fd, kAll) == EINVAL);
  CHECK(error(0, 3 * kPage + 1, 0, fd, kAll) == EINVAL);
  CHECK(error(3 * kPage, 1, 0, fd, kAll) == EINVAL);
  CHECK(error(~std::uint64_t{0} - kPage + 1, kPage, 0, fd, kAll) == EINVAL);
  CHECK(error(0, kPage, 0, fd, IBV_ACCESS_REMOTE_WRITE) == EINVAL);
  CHECK(error(0, kPage, 0, fd, kLocal | IBV_ACCESS_MW_BIND) == EINVAL);
  CHECK(error(0, kPage, 0, fd, kLocal | IBV_ACCESS_ON_DEMAND) == EINVAL);
  CHECK(error(0, kPage, 0, fd, kLocal | IBV_ACCESS_ZERO_BASED) == EINVAL);
  CHECK(error(0, kPage, 0, -1, kAll) == EBADF);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  CHECK(error(0, kPage, 0, ends[0], 0) == EINVAL);  // nothing behind it
  ::close(ends[0]);
  ::close(ends[1]);
  CHECK(mr->reregister(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0) == EINVAL);
  ::close(fd);
}

TEST_CASE_METHOD(WindowPair, "memory: device memory", "[memory]") {
  const auto dm = Dm::create(1000, 6);
  REQUIRE(dm);
  Bytes out(1000, std::byte{9});
  CHECK(dm->copy_out(out.data(), 0, 1000) == 0);
  CHECK(out == Bytes(1000));
  const Bytes in = pattern(100);
  CHECK(dm->copy_in(900, in.data(), 100) == 0);
  CHECK(dm->copy_in(901, in.data(), 100) == EFAULT);
  CHECK(dm->copy_in(~std::uint64_t{0}, in.data(), 2) == EFAULT);
  CHECK(dm->copy_in(898, in.data(), 100) == EINVAL);  // words, as adapters have it
  CHECK(dm->copy_in(896, in.data(), 99) == EINVAL);
  CHECK(dm->copy_out(out.data(), 1, 4) == EINVAL);
  CHECK(dm->copy_out(out.data(), 4, 1) == EINVAL);
  CHECK(dm->copy_out(out.data(), 1001, 0) == EFAULT);
  CHECK(dm->copy_out(out.data(), 0, 1001) == EFAULT);
  const auto error = [&](std::uint64_t offset, std::size_t length, unsigned access) {
    errno = 0;
    return Mr::create_dm(far.pd, *dm, offset, length, access) ? 0 : errno;
  };
  CHECK(error(0, 1000, kAll) == EINVAL);  // not zero-based
  CHECK(error(0, 1001, kAll | IBV_ACCESS_ZERO_BASED) == EINVAL);
  CHECK(error(1000, 1, kAll | IBV_ACCESS_ZERO_BASED) == EINVAL);
  CHECK(error(~std::uint64_t{0}, 2, kAll | IBV_ACCESS_ZERO_BASED) == EINVAL);
  CHECK(error(0, 1000, kAll | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_MW_BIND) == EINVAL);
  CHECK(error(0, 1000, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED) == EINVAL);
  {
    const auto mr = Mr::create_dm(far.pd, *dm, 64, 936, kAll | IBV_ACCESS_ZERO_BASED);
    REQUIRE(mr);
    CHECK(dm->in_use());
    CHECK(write(mr->key(), 100, 500) == IBV_WC_SUCCESS);
    CHECK(dm->copy_out(out.data(), 164, 500) == 0);
    CHECK(std::equal(out.begin(), out.begin() + 500, own.begin()));
    // Atomic operations, on memory that is aligned as was asked.
    CHECK(fetch_add(mr->key(), 8, 77) == IBV_WC_SUCCESS);
    std::uint64_t value = 0;
    CHECK(dm->copy_out(&value, 72, 8) == 0);
    CHECK(value == 77);
  }
  CHECK_FALSE(dm->in_use());
}

TEST_CASE("memory: device memory has its limits", "[memory]") {
  const auto refused = [](std::size_t length, std::uint32_t alignment) {
    errno = 0;
    return Dm::create(length, alignment) ? 0 : errno;
  };
  CHECK(refused(0, 0) == EINVAL);
  CHECK(refused(100, 22) == EINVAL);
  CHECK(refused(100, 21) == 0);
  CHECK(refused(provider::kMaxDmSize + 1, 0) == ENOMEM);
  CHECK(refused(~std::size_t{0}, 0) == ENOMEM);
  {
    const auto all = Dm::create(provider::kMaxDmSize, 0);
    REQUIRE(all);
    CHECK(refused(1, 0) == ENOMEM);
  }
  CHECK(refused(1, 0) == 0);
}

// ---- Registered memory that is not there ---------------------------------------------------------------------------

// By the local rule nothing but the first one's own octets decides about it.
TEST_CASE_METHOD(Pair, "memory: of writes that are sent together the one whose memory is gone fails",
                 "[memory][native]") {
  Registered own(a, pattern(3000), kLocal), target(b, Bytes(3000), kAll);
  Pages pages(1);
  const auto gone = Mr::create(a.pd, pages.memory, pages.size, pages.address(), kLocal);
  REQUIRE(gone);
  connect();
  pages.make_inaccessible(0, pages.size);
  ibv_sge sges[] = {own.sge(), {pages.address(), 3000, gone->key()}};
  ibv_send_wr writes[2]{};
  for (const std::size_t i : {0, 1}) {
    writes[i].wr_id = i;
    writes[i].opcode = IBV_WR_RDMA_WRITE;
    writes[i].sg_list = &sges[i];
    writes[i].num_sge = 1;
    writes[i].wr.rdma.rkey = target.key();
    writes[i].wr.rdma.remote_addr = target.address();
  }
  writes[0].next = &writes[1];
  ibv_send_wr* bad = nullptr;
  REQUIRE(a.qp->post_send(writes, &bad) == 0);
  check_next(*a.send_cq, 0);
  check_next(*a.send_cq, 1, IBV_WC_LOC_PROT_ERR);
  REQUIRE(eventually([&] { return none(*b.receive_cq) && b.qp->state() == IBV_QPS_ERR; }));
  const bool placed = target == own;
  CHECK(placed);
}
