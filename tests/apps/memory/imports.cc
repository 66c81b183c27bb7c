// SPDX-License-Identifier: MIT
// Contexts on one open file of a device, and the objects that they share: ibv_import_device(3), ibv_import_pd(3),
// ibv_import_mr(3) and ibv_import_dm(3).
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "tests/apps/memory/memory.h"
#include "tests/apps/support/manual.h"

namespace apps::memory {

namespace {

// Those of the program; the library's own, far above, last as long as the process.
std::size_t descriptors() {
  constexpr int kMost = 512;
  std::size_t count = 0;
  for (int fd = 0; fd < kMost; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

int copy_of(int fd) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) die("F_DUPFD_CLOEXEC: %s", std::strerror(errno));
  return copy;
}

// A context on the file of another one.
class Imported {
 public:
  explicit Imported(ibv_context* original)
      : context_(made("ibv_import_device", ibv_import_device(copy_of(original->cmd_fd)))) {}
  Imported(const Imported&) = delete;
  Imported& operator=(const Imported&) = delete;
  ~Imported() { expect_error("ibv_close_device", ibv_close_device(context_), 0); }

  ibv_context* get() const { return context_; }
  ibv_pd* pd(std::uint32_t handle) const { return made("ibv_import_pd", ibv_import_pd(context_, handle)); }

 private:
  ibv_context* context_;
};

ibv_mr* import_mr(ibv_pd* pd, std::uint32_t handle) { return made("ibv_import_mr", ibv_import_mr(pd, handle)); }

ibv_cq* queue(ibv_context* context, int size = 16) {
  return made("ibv_create_cq", ibv_create_cq(context, size, nullptr, nullptr, 0));
}

ibv_qp* queue_pair(ibv_pd* pd, ibv_cq* cq) {
  ibv_qp_init_attr attributes = qp_attributes({});
  attributes.send_cq = attributes.recv_cq = cq;
  return made("ibv_create_qp", ibv_create_qp(pd, &attributes));
}

void expect_done(ibv_cq* cq, const char* what) {
  ibv_wc wc{};
  expect(Endpoint::completion(cq, nullptr, false, wc), what);
  expect_status(what, wc, IBV_WC_SUCCESS);
}

void write(ibv_qp* qp, ibv_sge from, std::uint64_t to, std::uint32_t rkey) {
  SendRequest(IBV_WR_RDMA_WRITE, from).at(to, rkey).post(qp);
  expect_done(qp->send_cq, "a Write");
  SendRequest(IBV_WR_RDMA_READ).post(qp);  // its answer tells that the Write has arrived
  expect_done(qp->send_cq, "a Read of no octets");
}

// Two queue pairs of one process, one in the domain of `pd`, the other in the device's own; connected.
struct ImportedPair {
  ImportedPair(const Rnic& rnic, ibv_pd* pd)
      : near_cq(pd->context, 16),
        far_cq(rnic, 16),
        near(rnic, queue_pair(pd, near_cq.get())),
        far(rnic, queue_pair(rnic.pd(), far_cq.get())) {
    connect(near, far);
  }

  const Cq near_cq, far_cq;
  const ManualQp near, far;
};

// One end works with what it has imported only, as another part of the program would that was handed the descriptor.
void import_traffic() {
  const std::size_t before = descriptors();
  {
    const Rnic rnic(g_host);
    std::vector<std::uint8_t> ours(kSize, 1), shared(kSize, 2);
    ibv_mr* const own_mr = reg(rnic.pd(), ours.data(), kSize, kAll);
    ibv_mr* const original = reg(rnic.pd(), shared.data(), kSize, kAll);
    {
      const Imported imported(rnic.context());
      ibv_pd* const pd = imported.pd(rnic.pd()->handle);
      expect(pd->context == imported.get(), "the context of an imported domain");
      ibv_mr* const mr = import_mr(pd, original->handle);
      expect(mr->lkey == original->lkey && mr->rkey == original->rkey && mr->length == kSize, "an imported region");
      expect(mr->addr == nullptr && mr->pd == pd && mr->context == imported.get(), "where an imported region is");
      {
        const ImportedPair pair(rnic, pd);
        write(pair.far.get(), {number(ours.data()), kSize, own_mr->lkey}, number(shared.data()), mr->rkey);
        expect(shared == ours, "what came through the imported region's key");
        std::fill(shared.begin(), shared.end(), 3);
        write(pair.near.get(), {number(shared.data()), kSize, mr->lkey}, number(ours.data()), own_mr->rkey);
        expect(shared == ours, "what was sent from the imported region");
        ibv_unimport_mr(mr);
        ibv_unimport_pd(pd);  // queue pairs in it may be left
        expect_error("ibv_dealloc_pd with a queue pair left", ibv_dealloc_pd(rnic.pd()), EBUSY);
        write(pair.near.get(), {number(ours.data()), kSize, own_mr->lkey}, number(shared.data()), original->rkey);
      }
    }
    expect_error("ibv_dereg_mr", ibv_dereg_mr(own_mr), 0);
    expect_error("ibv_dereg_mr", ibv_dereg_mr(original), 0);
  }
  expect(descriptors() == before, "descriptors are left behind");
}

// The import is of the device whose descriptor it was, and says so.
void import_device() {
  ibv_device** list = ibv_get_device_list(nullptr);
  expect(list != nullptr && list[0] != nullptr, "no device");
  std::vector<ibv_context*> opened;
  for (ibv_device** device = list; *device != nullptr; ++device) opened.push_back(ibv_open_device(*device));
  for (std::size_t i = 0; i < opened.size(); ++i) {
    expect(opened[i] != nullptr, "ibv_open_device");
    const Imported imported(opened[i]);
    expect(std::string(ibv_get_device_name(imported.get()->device)) == ibv_get_device_name(list[i]),
           "the import is of another device");
    ibv_device_attr attributes{};
    expect_error("ibv_query_device", ibv_query_device(imported.get(), &attributes), 0);
    struct stat status {};
    expect(fstat(opened[i]->cmd_fd, &status) == 0, "fstat");
    const std::string node = std::string("/dev/infiniband/") + list[i]->dev_name;
    struct stat by_name {};
    expect(stat(node.c_str(), &by_name) == 0, "stat");
    expect(status.st_rdev == by_name.st_rdev, "the number of a node is not that of its descriptor");
    for (std::size_t j = 0; j < i; ++j) {
      struct stat other {};
      expect(fstat(opened[j]->cmd_fd, &other) == 0 && other.st_rdev != status.st_rdev, "two devices have one number");
    }
  }
  for (ibv_context* context : opened) ibv_close_device(context);
  ibv_free_device_list(list);
}

void import_errors() {
  const Rnic rnic(g_host);
  const Rnic stranger(g_host);  // the same device, opened once more
  const std::size_t before = descriptors();

  int ends[2];
  expect(pipe(ends) == 0, "pipe");
  expect_error("the import of a pipe", error_of(ibv_import_device(ends[0])), EINVAL);
  close(ends[0]);
  close(ends[1]);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  expect_error("the import of /dev/null", error_of(ibv_import_device(null)), ENODEV);
  close(null);
  // A file that no context was made on. The call closes it.
  const std::string node = std::string("/dev/infiniband/") + rnic.context()->device->dev_name;
  expect_error("the import of a node", error_of(ibv_import_device(open(node.c_str(), O_RDWR | O_CLOEXEC))), EINVAL);
  expect(descriptors() == before, "descriptors are left behind");

  std::vector<std::uint8_t> memory(kSize);
  ibv_mr* mr = reg(rnic.pd(), memory.data(), kSize, kAll);
  ibv_alloc_dm_attr wanted{};
  wanted.length = 4096;
  ibv_dm* dm = ibv_alloc_dm(rnic.context(), &wanted);
  expect(dm != nullptr, "ibv_alloc_dm");
  const Imported imported(rnic.context());
  ibv_pd* const pd = imported.pd(rnic.pd()->handle);
  expect_error("a domain of another file", error_of(ibv_import_pd(imported.get(), stranger.pd()->handle)), ENOENT);
  expect_error("a region of another file", error_of(ibv_import_mr(stranger.pd(), mr->handle)), ENOENT);
  expect_error("device memory of another file", error_of(ibv_import_dm(stranger.context(), dm->handle)), ENOENT);
  const std::uint32_t gone = mr->handle;
  expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  expect_error("a region that was deregistered", error_of(ibv_import_mr(pd, gone)), ENOENT);
  ibv_unimport_pd(pd);
  expect_error("ibv_free_dm", ibv_free_dm(dm), 0);
  errno = 0;
  expect(ioctl(rnic.context()->cmd_fd, TIOCGWINSZ, ends) == -1 && errno == ENOTTY, "an ioctl that nobody knows");
}

void import_dm() {
  const Rnic rnic(g_host);
  ibv_alloc_dm_attr wanted{};
  wanted.length = 4096;
  ibv_dm* original = ibv_alloc_dm(rnic.context(), &wanted);
  expect(original != nullptr, "ibv_alloc_dm");
  const Imported imported(rnic.context());
  ibv_dm* dm = made("ibv_import_dm", ibv_import_dm(imported.get(), original->handle));
  const std::vector<std::uint8_t> sent(4096, 7);
  std::vector<std::uint8_t> back(4096);
  expect_error("ibv_memcpy_to_dm", ibv_memcpy_to_dm(original, 0, sent.data(), sent.size()), 0);
  expect_error("ibv_memcpy_from_dm", ibv_memcpy_from_dm(back.data(), dm, 0, back.size()), 0);
  expect(back == sent, "what the imported device memory has");
  ibv_pd* pd = imported.pd(rnic.pd()->handle);
  ibv_mr* mr = ibv_reg_dm_mr(pd, dm, 0, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED);
  expect(mr != nullptr, "ibv_reg_dm_mr");
  expect_error("ibv_free_dm with a region left", ibv_free_dm(original), EBUSY);
  expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  ibv_unimport_pd(pd);
  ibv_unimport_dm(dm);
  expect_error("ibv_free_dm", ibv_free_dm(original), 0);
}

// What one context destroys is gone for both; the other's object may only be unimported.
void import_destroys() {
  const Rnic rnic(g_host);
  std::vector<std::uint8_t> memory(kSize);
  ibv_pd* const original = ibv_alloc_pd(rnic.context());
  expect(original != nullptr, "ibv_alloc_pd");
  const Imported imported(rnic.context());
  ibv_pd* const pd = imported.pd(original->handle);

  ibv_mr* mr = reg(original, memory.data(), kSize, kAll);
  ibv_mr* same = import_mr(pd, mr->handle);
  const std::uint32_t handle = mr->handle;
  expect_error("ibv_dealloc_pd with a region left", ibv_dealloc_pd(pd), EBUSY);
  expect_error("ibv_dereg_mr of the import", ibv_dereg_mr(same), 0);
  expect_error("a region that was deregistered", error_of(ibv_import_mr(pd, handle)), ENOENT);
  ibv_unimport_mr(mr);

  mr = reg(pd, memory.data(), kSize, kAll);  // made in the import, imported by the original
  same = import_mr(original, mr->handle);
  expect(same->rkey == mr->rkey, "a region of the import");
  expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  ibv_unimport_mr(same);
  expect_error("ibv_dealloc_pd", ibv_dealloc_pd(original), 0);
  ibv_unimport_pd(pd);
}

// The original is closed first: its file lives on, and what the import has made.
void import_outlives() {
  auto rnic = std::make_unique<Rnic>(g_host);
  const Rnic other(g_host);
  std::vector<std::uint8_t> ours(kSize, 1), target(kSize, 2);
  const Imported imported(rnic->context());
  ibv_pd* const pd = ibv_alloc_pd(imported.get());
  expect(pd != nullptr, "ibv_alloc_pd");
  ibv_mr* const mr = reg(pd, ours.data(), kSize, kAll);
  ibv_mr* const target_mr = reg(other.pd(), target.data(), kSize, kAll);
  rnic.reset();
  {
    const ImportedPair pair(other, pd);
    write(pair.near.get(), {number(ours.data()), kSize, mr->lkey}, number(target.data()), target_mr->rkey);
    expect(target == ours, "what was written");
  }
  const Imported again(imported.get());
  expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  expect_error("ibv_dereg_mr", ibv_dereg_mr(target_mr), 0);
  expect_error("ibv_dealloc_pd", ibv_dealloc_pd(pd), 0);
}

// Each context has async events of its own.
void import_events() {
  const Rnic rnic(g_host);
  const Imported imported(rnic.context());
  expect(imported.get()->async_fd >= 0 && imported.get()->async_fd != rnic.context()->async_fd, "async_fd");
  ibv_pd* const pd = imported.pd(rnic.pd()->handle);
  ibv_cq* const cq = queue(imported.get(), 2);
  ManualQp qp(rnic, queue_pair(pd, cq));
  std::vector<std::uint8_t> memory(kSize);
  ibv_mr* const mr = reg(pd, memory.data(), kSize, kAll);
  qp.to_init();
  for (std::uint64_t id = 0; id < 4; ++id) qp.receive(memory.data(), 16, mr, id);
  to_state(qp.get(), IBV_QPS_ERR);  // more completions than the queue has room for
  ibv_async_event event{};
  expect_error("ibv_get_async_event", ibv_get_async_event(imported.get(), &event), 0);
  expect(event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == cq, "the event of a queue that was overrun");
  ibv_ack_async_event(&event);
  pollfd original{rnic.context()->async_fd, POLLIN, 0};
  expect(poll(&original, 1, 0) == 0, "an event of the import's queue on the original");
  ibv_dereg_mr(mr);
  qp.destroy();
  expect_error("ibv_destroy_cq", ibv_destroy_cq(cq), 0);
  ibv_unimport_pd(pd);
}

}  // namespace

void import_cases(Cases& cases) {
  cases.insert({
      {"import_traffic", import_traffic},
      {"import_device", import_device},
      {"import_errors", import_errors},
      {"import_dm", import_dm},
      {"import_destroys", import_destroys},
      {"import_outlives", import_outlives},
      {"import_events", import_events},
  });
}

}  // namespace apps::memory
