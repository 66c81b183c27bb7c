// SPDX-License-Identifier: MIT
// Memory regions of every kind, device memory, and the read fence.
#include "tests/apps/memory/memory.h"

namespace apps::memory {

namespace {

void rereg() {
  Pair pair;
  const std::uint32_t rkey = pair.target_mr->rkey;
  const std::uint64_t at = number(pair.target.data());
  expect(ibv_rereg_mr(pair.target_mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAll) == 0, "access");
  expect(pair.target_mr->rkey == rkey, "the rkey changes");
  write_well(pair, pair.target_mr->rkey, at);
  expect(pair.target == pair.own, "what was written");
  std::vector<std::uint8_t> second(1000);
  expect(ibv_rereg_mr(pair.target_mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, second.data(), second.size(), 0) == 0,
         "translation");
  expect(pair.target_mr->addr == second.data() && pair.target_mr->length == 1000, "address and length");
  write_well(pair, pair.target_mr->rkey, number(second.data()), 1000);
  expect(std::equal(second.begin(), second.end(), pair.own.begin()), "what was written to the new place");
  ibv_pd* pd = new_pd(pair.far);
  expect(ibv_rereg_mr(pair.target_mr,
                      IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, pd,
                      pair.target.data(), kSize, kAll) == 0,
         "all");
  expect(pair.target_mr->pd == pd, "pd");
  expect_error("ibv_dealloc_pd", ibv_dealloc_pd(pd), EBUSY);
  write_refused(pair, pair.target_mr->rkey, at);  // the stream is not of that domain
  expect_error("ibv_dereg_mr", ibv_dereg_mr(pair.target_mr), 0);
  expect_error("ibv_dealloc_pd", ibv_dealloc_pd(pd), 0);
}

void rereg_errors() {
  Pair pair;
  ibv_mr* mr = pair.target_mr;
  const auto rereg = [&](int flags, void* address, std::size_t length, int access) {
    return ibv_rereg_mr(mr, flags, nullptr, address, length, access);
  };
  expect(rereg(8, nullptr, 0, 0) == IBV_REREG_MR_ERR_INPUT, "unknown flags");
  expect(rereg(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, 0, 0) == IBV_REREG_MR_ERR_INPUT, "no address");
  expect(rereg(IBV_REREG_MR_CHANGE_TRANSLATION, pair.own.data(), 10, kAll) == IBV_REREG_MR_ERR_INPUT, "stray access");
  expect(rereg(IBV_REREG_MR_CHANGE_PD, nullptr, 0, 0) == IBV_REREG_MR_ERR_CMD, "no PD");
  ibv_mw* mw = window(pair.far.pd());
  expect_error("a bind after errors of input", post_bind(pair.far, mw, 0, all_of(pair)), 0);
  expect_status("a bind after errors of input", sent(pair.far), IBV_WC_SUCCESS);
  expect_error("ibv_dealloc_mw", ibv_dealloc_mw(mw), 0);
  void* hole = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(rereg(IBV_REREG_MR_CHANGE_TRANSLATION, hole, 4096, 0) == IBV_REREG_MR_ERR_CMD, "memory that is not there");
  expect(errno == EFAULT, "errno of memory that is not there");
  munmap(hole, 4096);
  expect_error("ibv_dereg_mr of what failed", ibv_dereg_mr(mr), 0);
  ibv_mr* null = ibv_alloc_null_mr(pair.far.pd());
  mr = null;
  expect(rereg(IBV_REREG_MR_CHANGE_ACCESS, nullptr, 0, 0) == IBV_REREG_MR_ERR_INPUT, "of a null region");
  ibv_dereg_mr(null);
}

void zero_based() {
  Pair pair;
  ibv_mr* mr = reg(pair.far.pd(), pair.target.data(), kSize, kAll | IBV_ACCESS_ZERO_BASED);
  write_well(pair, mr->rkey, 0);
  expect(pair.target == pair.own, "what was written to offset 0");
  write_refused(pair, mr->rkey, number(pair.target.data()), 10);
  ibv_dereg_mr(mr);
}

void odp_explicit() {
  Pair pair;
  void* place = mmap(nullptr, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ibv_mr* mr = made("ibv_reg_mr on demand", ibv_reg_mr(pair.far.pd(), place, kSize, kAll | IBV_ACCESS_ON_DEMAND));
  mprotect(place, kSize, PROT_READ | PROT_WRITE);
  write_well(pair, mr->rkey, number(place));
  expect(std::memcmp(place, pair.own.data(), kSize) == 0, "what was written");
  mprotect(place, kSize, PROT_NONE);
  expect_error("ibv_post_send", post_data(pair.near, IBV_WR_RDMA_READ, own(pair, 10), number(place), mr->rkey), 0);
  expect(sent(pair.near).status != IBV_WC_SUCCESS, "a Read of memory that is not there");
  munmap(place, kSize);
  ibv_dereg_mr(mr);
}

void odp_implicit() {
  Pair pair;
  ibv_device_attr_ex device{};
  expect(ibv_query_device_ex(pair.near.id()->verbs, nullptr, &device) == 0, "ibv_query_device_ex");
  expect((device.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) != 0, "no implicit on-demand paging");
  ibv_mr* near = ibv_reg_mr(pair.near.pd(), nullptr, SIZE_MAX, kAll | IBV_ACCESS_ON_DEMAND);
  ibv_mr* far = ibv_reg_mr(pair.far.pd(), nullptr, SIZE_MAX, kAll | IBV_ACCESS_ON_DEMAND);
  if (near == nullptr || far == nullptr) die("implicit on-demand region: %s", std::strerror(errno));
  const ibv_sge sge{number(pair.own.data()), kSize, near->lkey};
  const std::uint64_t at = number(pair.target.data());
  expect_error("Write", post_data(pair.near, IBV_WR_RDMA_WRITE, sge, at, far->rkey), 0);
  expect_error("Read", post_data(pair.near, IBV_WR_RDMA_READ, sge, at, far->rkey), 0);
  expect_status("Write", sent(pair.near), IBV_WC_SUCCESS);
  expect_status("Read", sent(pair.near), IBV_WC_SUCCESS);
  expect(pair.target == pair.own, "what was written");
  expect_error("Send", post_data(pair.near, IBV_WR_SEND, {8, 100, near->lkey}, 0, 0), 0);
  expect_status("a Send of memory that is not there", sent(pair.near), IBV_WC_LOC_PROT_ERR);
  ibv_dereg_mr(near);
  ibv_dereg_mr(far);
}

void advise() {
  Pair pair;
  const std::size_t size = 16 * 4096;
  void* place = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ibv_mr* mr = ibv_reg_mr(pair.far.pd(), place, size, kAll | IBV_ACCESS_ON_DEMAND);
  ibv_mr* constant = ibv_reg_mr(pair.far.pd(), place, size, int{IBV_ACCESS_ON_DEMAND});
  if (mr == nullptr || constant == nullptr) die("ibv_reg_mr on demand: %s", std::strerror(errno));
  ibv_pd* other = new_pd(pair.far);
  ibv_mw* mw = window(pair.far.pd(), IBV_MW_TYPE_1);
  bind1(pair.far, mw, all_of(pair));
  const auto advise = [&](ibv_pd* pd, int advice, std::uint32_t flags, ibv_sge sge) {
    return ibv_advise_mr(pd, static_cast<ibv_advise_mr_advice>(advice), flags, &sge, 1);
  };
  ibv_pd* pd = pair.far.pd();
  const ibv_sge all{number(place), static_cast<std::uint32_t>(size), mr->lkey};
  for (int advice : {0, 1, 2}) {
    expect_error("ibv_advise_mr", advise(pd, advice, 0, all), 0);
    expect_error("ibv_advise_mr, flush", advise(pd, advice, IBV_ADVISE_MR_FLAG_FLUSH, all), 0);
  }
  expect_error("an unknown advice", advise(pd, 3, 0, all), ENOTSUP);
  expect_error("unknown flags", advise(pd, 0, 8, all), EINVAL);
  expect_error("an unknown lkey", advise(pd, 0, 0, {all.addr, all.length, mr->lkey ^ 0x5A5A5A00}), EFAULT);
  expect_error("out of bounds", advise(pd, 0, 0, {all.addr + 1, all.length, mr->lkey}), EFAULT);
  expect_error("a window", advise(pd, 0, 0, {all.addr, 1, mw->rkey}), EINVAL);
  expect_error("another PD", advise(other, 0, 0, all), EPERM);
  expect_error("to write what is not writable", advise(pd, 1, 0, {all.addr, 1, constant->lkey}), EPERM);
  expect_error("not on demand", advise(pd, 0, 0, {number(pair.target.data()), 1, pair.target_mr->lkey}), EINVAL);
  munmap(place, 4096);
  expect_error("not in the address space", advise(pd, 0, 0, all), EFAULT);
  ibv_dealloc_mw(mw);
  ibv_dealloc_pd(other);
  ibv_dereg_mr(mr);
  ibv_dereg_mr(constant);
}

void null_mr() {
  Pair pair;
  ibv_mr* null = made("ibv_alloc_null_mr", ibv_alloc_null_mr(pair.near.pd()));
  ibv_mr* exposed = reg(pair.far.pd(), pair.target.data(), kSize, kAll);
  std::memset(pair.target.data(), 9, kSize);
  const std::uint64_t at = number(pair.target.data());
  expect_error("Read", post_data(pair.near, IBV_WR_RDMA_READ, {123, kSize, null->lkey}, at, exposed->rkey), 0);
  expect_status("a Read into a null region", sent(pair.near), IBV_WC_SUCCESS);
  expect_error("Write", post_data(pair.near, IBV_WR_RDMA_WRITE, {123, kSize, null->lkey}, at, exposed->rkey), 0);
  expect_error("Read", post_data(pair.near, IBV_WR_RDMA_READ, {}, 0, 0), 0);
  sent(pair.near), sent(pair.near);
  expect(pair.target == std::vector<std::uint8_t>(kSize), "what a null region reads");
  post_receive(pair.near.qp(), {{0, kSize, null->lkey}});
  expect_error("Send", post_data(pair.far, IBV_WR_SEND, {at, kSize, exposed->lkey}, 0, 0), 0);
  const ibv_wc wc = received(pair.near);
  expect_status("a receive into a null region", wc, IBV_WC_SUCCESS);
  expect(wc.byte_len == kSize, "its length");
  expect_error("ibv_dereg_mr", ibv_dereg_mr(null), 0);
  ibv_dereg_mr(exposed);
}

void dmabuf() {
  Pair pair;
  const int fd = memfd_create("buffer", MFD_CLOEXEC);  // what an exporter of system memory gives
  expect(fd >= 0 && ftruncate(fd, 2 * kSize) == 0, "memfd_create");
  const auto error = [&](std::uint64_t offset, std::size_t length, std::uint64_t iova, int from, int access) {
    errno = 0;
    ibv_mr* mr = ibv_reg_dmabuf_mr(pair.far.pd(), offset, length, iova, from, access);
    const int result = error_of(mr);
    if (mr != nullptr) ibv_dereg_mr(mr);
    return result;
  };
  ibv_mr* mr = made("ibv_reg_dmabuf_mr", ibv_reg_dmabuf_mr(pair.far.pd(), 4096, kSize, 0x10000, fd, kAll));
  write_well(pair, mr->rkey, 0x10000);
  std::vector<std::uint8_t> out(kSize);
  expect(pread(fd, out.data(), kSize, 4096) == kSize && out == pair.own, "what was written");
  expect_error("another page offset", error(0, 100, 1, fd, kAll), EINVAL);
  expect_error("beyond the buffer", error(kSize, kSize + 1, 0, fd, kAll), EINVAL);
  expect_error("flags that it does not have", error(0, 100, 0, fd, kAll | IBV_ACCESS_ON_DEMAND), EINVAL);
  expect_error("remote write without local write", error(0, 100, 0, fd, IBV_ACCESS_REMOTE_WRITE), EINVAL);
  for (const std::size_t length : {0, 100}) expect_error("no descriptor", error(0, length, 0, -1, kAll), EBADF);
  ibv_dereg_mr(mr);
  close(fd);
}

void dm() {
  Pair pair;
  ibv_device_attr_ex device{};
  expect(ibv_query_device_ex(pair.far.id()->verbs, nullptr, &device) == 0, "ibv_query_device_ex");
  expect(device.max_dm_size > kSize, "max_dm_size");
  ibv_alloc_dm_attr wanted{kSize, 6, 0};
  ibv_dm* dm = made("ibv_alloc_dm", ibv_alloc_dm(pair.far.id()->verbs, &wanted));
  const auto error = [&](std::uint64_t offset, std::size_t length, unsigned access) {
    errno = 0;
    ibv_mr* mr = ibv_reg_dm_mr(pair.far.pd(), dm, offset, length, access);
    const int result = error_of(mr);
    if (mr != nullptr) ibv_dereg_mr(mr);
    return result;
  };
  expect_error("not zero-based", error(0, 100, kAll), EINVAL);
  expect_error("beyond it", error(1, kSize, kAll | IBV_ACCESS_ZERO_BASED), EINVAL);
  ibv_mr* mr = made("ibv_reg_dm_mr", ibv_reg_dm_mr(pair.far.pd(), dm, 0, kSize, kAll | IBV_ACCESS_ZERO_BASED));
  expect_error("ibv_free_dm while registered", ibv_free_dm(dm), EBUSY);
  write_well(pair, mr->rkey, 0);
  std::vector<std::uint8_t> out(kSize);
  expect_error("ibv_memcpy_from_dm", ibv_memcpy_from_dm(out.data(), dm, 0, kSize), 0);
  expect(out == pair.own, "what was written to device memory");
  expect_error("ibv_memcpy_to_dm beyond it", ibv_memcpy_to_dm(dm, 1, out.data(), kSize), EFAULT);
  expect_error("ibv_memcpy_from_dm beyond it", ibv_memcpy_from_dm(out.data(), dm, kSize, 1), EFAULT);
  const std::uint64_t start = 40;
  expect_error("ibv_memcpy_to_dm", ibv_memcpy_to_dm(dm, 64, &start, 8), 0);
  expect_error("fetch-and-add",
               SendRequest(IBV_WR_ATOMIC_FETCH_AND_ADD, own(pair, 8)).add(64, mr->rkey, 2).try_post(pair.near.qp()), 0);
  expect_status("fetch-and-add", sent(pair.near), IBV_WC_SUCCESS);
  std::uint64_t value = 0;
  ibv_memcpy_from_dm(&value, dm, 64, 8);
  expect(value == 42, "the sum");
  ibv_dereg_mr(mr);
  expect_error("ibv_free_dm", ibv_free_dm(dm), 0);
  wanted.length = device.max_dm_size + 1;
  errno = 0;
  expect_error("more than max_dm_size", error_of(ibv_alloc_dm(pair.far.id()->verbs, &wanted)), ENOMEM);
  wanted = {0, 0, 0};
  expect_error("nothing", error_of(ibv_alloc_dm(pair.far.id()->verbs, &wanted)), EINVAL);
  wanted = {64, 60, 0};
  expect_error("an alignment that cannot be", error_of(ibv_alloc_dm(pair.far.id()->verbs, &wanted)), EINVAL);
}

void fence() {
  // A Read into a buffer, and a fenced Send out of it, which must carry what was read.
  Pair pair;
  ibv_mr* exposed = reg(pair.far.pd(), pair.target.data(), kSize, kAll);
  std::vector<std::uint8_t> inbox(kSize), buffer(kSize);
  ibv_mr* in = reg(pair.far.pd(), inbox.data(), kSize, kAll);
  ibv_mr* through = reg(pair.near.pd(), buffer.data(), kSize, kAll);
  for (int round = 0; round < 50; ++round) {
    std::memset(pair.target.data(), round + 1, kSize);
    post_receive(pair.far.qp(), {{number(inbox.data()), kSize, in->lkey}});
    const ibv_sge sge{number(buffer.data()), kSize, through->lkey};
    expect_error("Read", post_data(pair.near, IBV_WR_RDMA_READ, sge, number(pair.target.data()), exposed->rkey), 0);
    expect_error("Send", post_data(pair.near, IBV_WR_SEND, sge, 0, 0, IBV_SEND_FENCE), 0);
    expect_status("the receive", received(pair.far), IBV_WC_SUCCESS);
    expect(inbox == pair.target, "a fenced Send overtakes the Read in front of it");
    sent(pair.near), sent(pair.near);
  }
  ibv_dereg_mr(exposed);
  ibv_dereg_mr(in);
  ibv_dereg_mr(through);
}

}  // namespace

void region_cases(Cases& cases) {
  cases.insert({
      {"rereg", rereg},
      {"rereg_errors", rereg_errors},
      {"zero_based", zero_based},
      {"odp_explicit", odp_explicit},
      {"odp_implicit", odp_implicit},
      {"advise", advise},
      {"null_mr", null_mr},
      {"dmabuf", dmabuf},
      {"dm", dm},
      {"fence", fence},
  });
}

}  // namespace apps::memory
