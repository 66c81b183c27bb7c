// SPDX-License-Identifier: MIT
// Regions of what the kernel's exporters of dma-buf give: the heap of system memory (/dev/dma_heap/system) and memfds
// (/dev/udmabuf). Their mappings differ from those of files: calls that pin pages (process_vm_writev(2), vmsplice(2),
// MSG_ZEROCOPY) refuse them.
//
//   uiw_dma_buffers HOST PORT CASE     runs one case; --list names them
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>

#include <algorithm>

#include "tests/apps/memory/memory.h"

namespace apps::memory {

namespace {

constexpr std::size_t kPage = 4096, kBufferSize = 3 * kSize;

int of_heap() {
  const int heap = open("/dev/dma_heap/system", O_RDWR | O_CLOEXEC);
  if (heap < 0) die("/dev/dma_heap/system: %s", std::strerror(errno));
  dma_heap_allocation_data wanted{};
  wanted.len = kBufferSize;
  wanted.fd_flags = O_RDWR | O_CLOEXEC;
  good("DMA_HEAP_IOCTL_ALLOC", ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &wanted));
  close(heap);
  return static_cast<int>(wanted.fd);
}

int of_memfd() {
  const int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
  if (device < 0) die("/dev/udmabuf: %s", std::strerror(errno));
  const int memory = memfd_create("buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  expect(memory >= 0, "memfd_create");
  good("ftruncate", ftruncate(memory, kBufferSize));
  good("F_SEAL_SHRINK", fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK));
  udmabuf_create wanted{};
  wanted.memfd = static_cast<unsigned>(memory);
  wanted.flags = UDMABUF_FLAGS_CLOEXEC;
  wanted.size = kBufferSize;
  const int buffer = ioctl(device, UDMABUF_CREATE, &wanted);
  if (buffer < 0) die("UDMABUF_CREATE: %s", std::strerror(errno));
  close(memory);
  close(device);
  return buffer;
}

// What the program sees of a buffer.
class View {
 public:
  explicit View(int buffer) : buffer_(dup(buffer)) {
    void* const mapped = mmap(nullptr, kBufferSize, PROT_READ | PROT_WRITE, MAP_SHARED, buffer, 0);
    if (mapped == MAP_FAILED) die("mmap of the buffer: %s", std::strerror(errno));
    octets_ = static_cast<std::uint8_t*>(mapped);
  }
  ~View() {
    munmap(octets_, kBufferSize);
    close(buffer_);
  }
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  std::vector<std::uint8_t> read(std::size_t offset, std::size_t length) const {
    sync(DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ);
    std::vector<std::uint8_t> result(octets_ + offset, octets_ + offset + length);
    sync(DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ);
    return result;
  }
  void write(std::size_t offset, const std::vector<std::uint8_t>& what) {
    sync(DMA_BUF_SYNC_START | DMA_BUF_SYNC_WRITE);
    std::copy(what.begin(), what.end(), octets_ + offset);
    sync(DMA_BUF_SYNC_END | DMA_BUF_SYNC_WRITE);
  }

 private:
  void sync(std::uint64_t flags) const {
    dma_buf_sync wanted{flags};
    good("DMA_BUF_IOCTL_SYNC", ioctl(buffer_, DMA_BUF_IOCTL_SYNC, &wanted));
  }

  const int buffer_;
  std::uint8_t* octets_;
};

void post_well(Endpoint& end, const char* what, SendRequest request) {
  request.post(end.qp());
  expect_status(what, sent(end), IBV_WC_SUCCESS);
}

// All operations, with the buffer at the target.
void as_target(Pair& pair, int buffer) {
  constexpr std::uint64_t kIova = 0x10000;
  ibv_mr* region = made("ibv_reg_dmabuf_mr", ibv_reg_dmabuf_mr(pair.far.pd(), kPage, kSize, kIova, buffer, kAll));
  View view(buffer);
  write_well(pair, region->rkey, kIova);
  expect(view.read(kPage, kSize) == pair.own, "what a Write left");
  expect(view.read(0, kPage) == std::vector<std::uint8_t>(kPage), "what is in front of the region");

  std::vector<std::uint8_t> changed(kSize, 0x5a);
  view.write(kPage, changed);
  post_well(pair.near, "a Read", SendRequest(IBV_WR_RDMA_READ, own(pair)).at(kIova, region->rkey));
  expect(pair.own == changed, "what a Read brought");

  post_well(pair.near, "Fetch and Add",
            SendRequest(IBV_WR_ATOMIC_FETCH_AND_ADD, own(pair, 8)).add(kIova + 8, region->rkey, 1));
  changed[8] = 0x5b;
  expect(view.read(kPage, kSize) == changed, "what Fetch and Add left");

  std::generate(pair.own.begin(), pair.own.end(),
                [next = 0]() mutable { return static_cast<std::uint8_t>(next += 3); });
  post_receive(pair.far.qp(), {{kIova, kSize, region->lkey}});
  post_well(pair.near, "a Send", SendRequest(IBV_WR_SEND, own(pair)));
  expect_status("a receive", received(pair.far), IBV_WC_SUCCESS);
  expect(view.read(kPage, kSize) == pair.own, "what a Send left");
  write_refused(pair, region->rkey, kIova + 1);  // one octet beyond the region
  ibv_dereg_mr(region);
}

// As the source of Sends and Writes, and as the sink of Reads. The region stays when the program closes the descriptor.
void as_source(Pair& pair, int buffer) {
  ibv_mr* region = made("ibv_reg_dmabuf_mr", ibv_reg_dmabuf_mr(pair.near.pd(), 0, kSize, 0, buffer, kAll));
  View view(buffer);
  close(buffer);
  view.write(0, pair.own);
  ibv_mr* target = reg(pair.far.pd(), pair.target.data(), kSize, kAll);
  const ibv_sge whole{0, kSize, region->lkey};
  const std::uint64_t there = number(pair.target.data());
  SendRequest(IBV_WR_RDMA_WRITE, whole).at(there, target->rkey).post(pair.near.qp());
  std::vector<std::uint8_t> back(kSize);
  ibv_mr* sink = reg(pair.near.pd(), back.data(), kSize, kAll);
  SendRequest(IBV_WR_RDMA_READ, {number(back.data()), kSize, sink->lkey}).at(there, target->rkey).post(pair.near.qp());
  for (const char* what : {"a Write", "a Read"}) expect_status(what, sent(pair.near), IBV_WC_SUCCESS);
  expect(back == pair.own, "what was written from the buffer");

  std::fill(pair.target.begin(), pair.target.end(), 0);
  post_receive(pair.far.qp(), {{there, kSize, target->lkey}});
  post_well(pair.near, "a Send", SendRequest(IBV_WR_SEND, whole));
  expect_status("a receive", received(pair.far), IBV_WC_SUCCESS);
  expect(pair.target == pair.own, "what was sent from the buffer");

  std::fill(pair.target.begin(), pair.target.end(), 0x17);
  post_well(pair.near, "a Read", SendRequest(IBV_WR_RDMA_READ, whole).at(there, target->rkey));
  expect(view.read(0, kSize) == pair.target, "what a Read brought into the buffer");
  ibv_dereg_mr(sink);
  ibv_dereg_mr(target);
  ibv_dereg_mr(region);
}

// As on adapters: ib_umem_dmabuf_get() of the kernel.
void refused(Pair& pair, int buffer) {
  const auto error = [&](std::uint64_t offset, std::size_t length, std::uint64_t iova, int access) {
    errno = 0;
    ibv_mr* region = ibv_reg_dmabuf_mr(pair.far.pd(), offset, length, iova, buffer, access);
    const int result = error_of(region);
    if (region != nullptr) ibv_dereg_mr(region);
    return result;
  };
  expect_error("all of it", error(0, kBufferSize, 0, kAll), 0);
  expect_error("one octet beyond it", error(0, kBufferSize + 1, 0, kAll), EINVAL);
  expect_error("a page beyond it", error(kBufferSize, kPage, 0, kAll), EINVAL);
  expect_error("an offset that overflows", error(~std::uint64_t{kPage - 1}, 2 * kPage, 0, kAll), EINVAL);
  expect_error("another page offset", error(0, 100, 1, kAll), EINVAL);
  expect_error("remote write without local write", error(0, 100, 0, IBV_ACCESS_REMOTE_WRITE), EINVAL);
}

void all(int (*make)()) {
  {
    Pair pair;
    const int buffer = make();
    refused(pair, buffer);
    close(buffer);
    as_source(pair, make());
  }
  Pair pair;
  const int buffer = make();
  as_target(pair, buffer);
  close(buffer);
}

}  // namespace

}  // namespace apps::memory

int main(int argc, char** argv) {
  using namespace apps::memory;
  return apps::run_case(argc, argv, {{"heap", [] { all(of_heap); }}, {"udmabuf", [] { all(of_memfd); }}});
}
