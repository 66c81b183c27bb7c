// SPDX-License-Identifier: MIT
// Sources: provider/plugin (libuiw-rdmav<PABI>.so)
//
// Each plugin against the private ABI of the releases of rdma-core that it is for, whatever release uiw is built with.
// A libibverbs of the test's own takes the place of the release's; the numbers are those of the release's headers.
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#define UIW_PABI 34  // what is used of the header here is the same for all
#include "provider/plugin/abi/rdmav_abi.h"
#include "tests/unit/plugin/libibverbs_double.h"

namespace {

struct Release {
  int number;
  int pabi;                   // with `number`, no padding: two releases are compared as octets
  std::size_t verbs_context;  // octets
  std::size_t comp_mask;      // its offset in verbs_qp
  std::size_t port_attr;      // octets of ibv_port_attr
  std::size_t ops;            // the length of the table of operations, and places in it
  std::size_t alloc_pd, create_cq, create_qp, dealloc_pd, dereg_mr, destroy_cq, destroy_qp, free_context, query_port,
      reg_mr, resize_cq;
};

// Read by hand from the releases' headers, in octets of x86-64, whose mutex has 40.
constexpr Release kReadByHand[] = {
    {39, 34, 648, 344, 52, 76, 5, 15, 19, 26, 28, 31, 34, 39, 60, 68, 71},
    {44, 34, 648, 352, 52, 76, 5, 15, 19, 26, 28, 31, 34, 39, 60, 68, 71},
    {45, 34, 648, 360, 52, 76, 5, 15, 19, 26, 28, 31, 34, 39, 60, 68, 71},
    {57, 57, 648, 360, 56, 76, 5, 15, 19, 26, 28, 31, 34, 39, 60, 68, 71},
    {59, 59, 672, 360, 56, 79, 6, 16, 20, 28, 30, 33, 36, 41, 62, 70, 74},
    {62, 59, 680, 360, 56, 81, 6, 16, 20, 28, 30, 33, 36, 42, 63, 72, 76},
    {64, 64, 696, 360, 56, 83, 7, 17, 21, 29, 31, 34, 37, 44, 65, 74, 78},
    {65, 65, 696, 360, 56, 93, 7, 18, 22, 30, 32, 36, 39, 46, 71, 82, 86},
};

struct ListedOperation {
  const char* name;
  int since;
};
constexpr ListedOperation kListedOperations[] = {
#define UIW_OPERATION(name, since) {#name, since},
#include "provider/plugin/abi/releases.def"
#undef UIW_OPERATION
};

// The place of an operation in the table of a release by releases.def; the length of the table for "".
std::size_t place(int release, const std::string& name) {
  std::size_t before = 0;
  for (const ListedOperation& listed : kListedOperations) {
    if (listed.name == name) break;
    if (listed.since <= release) ++before;
  }
  return before;
}

Release listed_release(int number, int pabi) {
  constexpr std::size_t kQpEx45 = offsetof(ibv_qp_ex, wr_abort) + 3 * sizeof(void*);
  const auto at = [number](const char* name) { return place(number, name); };
  return {number,
          pabi,
          kVerbsContext39 + verbs_context_growth(number) * sizeof(void*),
          number < 44 ? kQpEx45 - 2 * sizeof(void*) : kQpEx45,
          number < 49 ? 52U : 56U,
          at(""),
          at("alloc_pd"),
          at("create_cq"),
          at("create_qp"),
          at("dealloc_pd"),
          at("dereg_mr"),
          at("destroy_cq"),
          at("destroy_qp"),
          at("free_context"),
          at("query_port"),
          at("reg_mr"),
          at("resize_cq")};
}

// Those that were read by hand, and those that releases.def has beyond them, so that a new one is tested at once.
std::vector<Release> all_releases() {
  std::vector<Release> all;
  for (Release release : kReadByHand) {
    release.verbs_context += sizeof(pthread_mutex_t) - 40;
    release.comp_mask += sizeof(pthread_mutex_t) - 40;
    all.push_back(release);
  }
  const auto add = [&all](int number, int pabi) {
    const auto same = [number](const Release& release) { return release.number == number; };
    if (std::none_of(all.begin(), all.end(), same)) all.push_back(listed_release(number, pabi));
  };
#define UIW_PRIVATE_ABI(abi, release) add(release, abi);
#define UIW_RELEASE_WITHIN_ABI(abi, release, function) add(release, abi);
#include "provider/plugin/abi/releases.def"
#undef UIW_PRIVATE_ABI
#undef UIW_RELEASE_WITHIN_ABI
  return all;
}

// What libibverbs_double tells of the plugin.
struct Calls {
  std::size_t context_size = 0;  // of the verbs_context that it makes
  const verbs_device_ops* driver = nullptr;
  char* context = nullptr;
  std::size_t uninits = 0;
  std::vector<uiw_op> table;
  std::vector<std::string> complaints;

  void check(bool good, const std::string& complaint) {
    if (!good) complaints.push_back(complaint);
  }
  ibv_context* for_programs() const {
    return reinterpret_cast<ibv_context*>(context + context_size - sizeof(ibv_context));
  }
};
Calls g_calls;
std::size_t g_table_length, g_comp_mask;

void register_driver(const void* driver) { g_calls.driver = static_cast<const verbs_device_ops*>(driver); }

void* alloc_context(void* device, int, std::size_t size, std::uintptr_t offset) {
  if (offset + g_calls.context_size > size) {
    g_calls.check(false, "the context has " + std::to_string(size) + " octets, and libibverbs wants " +
                             std::to_string(g_calls.context_size) + " from " + std::to_string(offset) + " on");
    errno = ENOMEM;
    return nullptr;
  }
  auto* memory = static_cast<char*>(std::calloc(1, size));
  g_calls.context = memory + offset;
  ibv_context& base = *g_calls.for_programs();
  std::memcpy(reinterpret_cast<char*>(&base) - sizeof(std::size_t), &g_calls.context_size, sizeof(std::size_t));
  base.device = static_cast<ibv_device*>(device);
  base.async_fd = -1;
  return memory;
}

void uninit_context(void* context) {
  g_calls.check(context == g_calls.context, "another context is ended than was begun");
  ++g_calls.uninits;
}

void set_ops(void* context, const void* table) {
  g_calls.check(context == g_calls.context, "another context gets the operations");
  const auto* first = static_cast<const uiw_op*>(table);
  g_calls.table.assign(first, first + g_table_length);
}

// As libibverbs does; it knows where its mask is.
void* qp_to_qp_ex(void* qp) {
  std::uint32_t mask = 0;
  std::memcpy(&mask, static_cast<char*>(qp) + g_comp_mask, sizeof mask);
  return (mask & VERBS_QP_EX) != 0 ? qp : nullptr;
}

// Loads libibverbs_double and the plugin, and opens the loopback's device.
verbs_context* open_device(const Release& release) {
  const std::string number = std::to_string(release.number < 57 ? 39 : release.number);
  void* libibverbs = dlopen((UIW_DOUBLES "/libibverbs" + number + "/libibverbs.so.1").c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (libibverbs == nullptr) return g_calls.check(false, dlerror()), nullptr;
  *static_cast<LibibverbsHooks*>(dlsym(libibverbs, "libibverbs_hooks")) = {register_driver, alloc_context,
                                                                           uninit_context, set_ops, qp_to_qp_ex};
  g_table_length = release.ops;
  g_comp_mask = release.comp_mask;
  const std::string plugin = UIW_PLUGINS "/libuiw-rdmav" + std::to_string(release.pabi) + ".so";
  if (dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) return g_calls.check(false, dlerror()), nullptr;
  if (g_calls.driver == nullptr) return g_calls.check(false, "no driver is registered"), nullptr;
  verbs_device* device = g_calls.driver->alloc_device(nullptr);
  std::strcpy(device->device.name, "uiw_lo");
  return g_calls.driver->alloc_context(&device->device, -1, nullptr);
}

template <typename Function>
Function* op(std::size_t place) {
  return reinterpret_cast<Function*>(g_calls.table[place]);
}

// The pointers between wr_abort and the mask.
std::vector<const void*> late_operations(const Release& release, const ibv_qp* qp) {
  const std::size_t begin = offsetof(ibv_qp_ex, wr_abort) + sizeof(void*);
  std::vector<const void*> all((release.comp_mask - begin) / sizeof(void*));
  if (!all.empty()) std::memcpy(all.data(), reinterpret_cast<const char*>(qp) + begin, all.size() * sizeof(void*));
  return all;
}

// ibv_wr_atomic_write(), since release 44, and ibv_wr_flush(), since 45: there if they are asked for.
void use_late_operations(const Release& release, ibv_pd* pd, const ibv_qp_init_attr& plain) {
  struct Late {
    int since;
    std::uint64_t operation;
  };
  constexpr Late kLate[] = {{44, UIW_QP_EX_WITH_ATOMIC_WRITE}, {45, UIW_QP_EX_WITH_FLUSH}};
  for (std::size_t i = 0; i < std::size(kLate); ++i) {
    ibv_qp_init_attr_ex wanted = {};
    wanted.send_cq = wanted.recv_cq = plain.send_cq;
    wanted.cap = plain.cap;
    wanted.qp_type = IBV_QPT_RC;
    wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    wanted.pd = pd;
    wanted.send_ops_flags = kLate[i].operation | IBV_QP_EX_WITH_SEND;
    errno = 0;
    ibv_qp* const qp =
        op<ibv_qp*(ibv_context*, ibv_qp_init_attr_ex*)>(place(release.number, "create_qp_ex"))(pd->context, &wanted);
    if (release.number < kLate[i].since) {
      g_calls.check(qp == nullptr && errno == EOPNOTSUPP, "an operation that libibverbs has not is given");
      continue;
    }
    if (qp == nullptr) return g_calls.check(false, "create_qp_ex");
    g_calls.check(qp_to_qp_ex(qp) != nullptr, "libibverbs sees no ibv_qp_ex");
    const std::vector<const void*> late = late_operations(release, qp);
    for (std::size_t k = 0; k < late.size(); ++k)
      g_calls.check((late[k] != nullptr) == (k == i), "the wrong late operations are there");
    g_calls.check(op<int(ibv_qp*)>(release.destroy_qp)(qp) == 0, "destroy_qp");
  }
}

// What libibverbs has from 59 on: handles with hints for an adapter's DMA, and registration by a structure.
void use_dma_handles(const Release& release, ibv_pd* pd, ibv_mr* mr) {
  ibv_context* context = pd->context;
  auto* const alloc = op<uiw_dmah*(ibv_context*, uiw_dmah_init_attr*)>(place(release.number, "alloc_dmah"));
  auto* const dealloc = op<int(uiw_dmah*)>(place(release.number, "dealloc_dmah"));
  auto* const reg = op<ibv_mr*(ibv_pd*, uiw_mr_init_attr*)>(place(release.number, "reg_mr_ex"));
  auto* const dereg = op<int(ibv_mr*)>(release.dereg_mr);
  constexpr std::uint32_t kAll = UIW_DMAH_CPU_ID | UIW_DMAH_PH | UIW_DMAH_TPH_MEM_TYPE;
  const auto cpu = static_cast<std::uint32_t>(sched_getcpu());
  struct Refused {
    uiw_dmah_init_attr attributes;
    int error;
  };
  for (Refused one : {Refused{{UIW_DMAH_CPU_ID | UIW_DMAH_TPH_MEM_TYPE, cpu, 0, 0}, EINVAL},
                      {{UIW_DMAH_PH | UIW_DMAH_CPU_ID, cpu, 0, 0}, EINVAL},
                      {{UIW_DMAH_PH | UIW_DMAH_TPH_MEM_TYPE, cpu, 0, 0}, EINVAL},
                      {{kAll, cpu, 4, 0}, EINVAL},
                      {{kAll, 0xFFFF, 3, 0}, EINVAL},
                      {{kAll, 0xFFFFFFFF, 3, 0}, EINVAL},
                      {{kAll, cpu, 3, 2}, EOPNOTSUPP},
                      {{kAll | 8, cpu, 3, 0}, EOPNOTSUPP}}) {
    errno = 0;
    g_calls.check(alloc(context, &one.attributes) == nullptr && errno == one.error,
                  "a DMA handle that should be refused with errno " + std::to_string(one.error) + ", not " +
                      std::to_string(errno));
  }
  uiw_dmah_init_attr hints{kAll, cpu, 3, 1};
  uiw_dmah* dmah = alloc(context, &hints);
  if (dmah == nullptr || dmah->context != context) return g_calls.check(false, "alloc_dmah");
  uiw_mr_init_attr wanted{};
  wanted.length = mr->length;
  wanted.access = IBV_ACCESS_LOCAL_WRITE;
  wanted.addr = mr->addr;
  wanted.dmah = dmah;
  const auto error_of = [&](std::uint64_t mask, int more_access) {
    wanted.comp_mask = mask;
    wanted.access |= more_access;
    errno = 0;
    ibv_mr* made = reg(pd, &wanted);
    const int error = made == nullptr ? errno : 0;
    if (made != nullptr) dereg(made);
    wanted.access &= ~more_access;
    return error;
  };
  g_calls.check(error_of(UIW_REG_MR_ADDR, 0) == 0, "reg_mr_ex of an address");
  g_calls.check(error_of(UIW_REG_MR_ADDR | UIW_REG_MR_IOVA | UIW_REG_MR_DMAH, 0) == 0, "reg_mr_ex with a handle");
  g_calls.check(error_of(UIW_REG_MR_IOVA, 0) == EINVAL, "reg_mr_ex without a place");
  g_calls.check(error_of(UIW_REG_MR_ADDR | UIW_REG_MR_FD_OFFSET, 0) == EINVAL, "reg_mr_ex of an address in no file");
  g_calls.check(error_of(UIW_REG_MR_FD | UIW_REG_MR_IOVA, 0) == EINVAL, "reg_mr_ex of a file without an offset");
  g_calls.check(error_of(UIW_REG_MR_ADDR | 1 << 6, 0) == EOPNOTSUPP, "reg_mr_ex with a later attribute");
  g_calls.check(error_of(UIW_REG_MR_ADDR | UIW_REG_MR_DMAH, IBV_ACCESS_ON_DEMAND) == EOPNOTSUPP,
                "reg_mr_ex with a handle and on-demand paging");
  wanted.fd = -1;
  for (const std::size_t length : {std::size_t{0}, mr->length}) {
    wanted.length = length;
    g_calls.check(error_of(UIW_REG_MR_FD | UIW_REG_MR_FD_OFFSET | UIW_REG_MR_IOVA, 0) == EBADF, "reg_mr_ex of no file");
  }
  wanted.length = mr->length;
  wanted.comp_mask = UIW_REG_MR_ADDR | UIW_REG_MR_DMAH;
  ibv_mr* user = reg(pd, &wanted);
  g_calls.check(user != nullptr && user->length == mr->length && user->lkey != mr->lkey, "reg_mr_ex");
  g_calls.check(dealloc(dmah) == EBUSY, "a DMA handle that a region has can be freed");
  g_calls.check(user != nullptr && dereg(user) == 0 && dealloc(dmah) == 0, "dealloc_dmah");
}

void use_parent_domain(const Release& release, ibv_pd* pd) {
  constexpr std::uint32_t kAllowUnprotected = 1 << 2, kUnknown = 1 << 3;
  auto* const alloc =
      op<ibv_pd*(ibv_context*, ibv_parent_domain_init_attr*)>(place(release.number, "alloc_parent_domain"));
  ibv_parent_domain_init_attr attributes{};
  attributes.pd = pd;
  attributes.comp_mask = kUnknown;
  g_calls.check(alloc(pd->context, &attributes) == nullptr && errno == EINVAL, "a parent domain of a later release");
  attributes.comp_mask = kAllowUnprotected;
  ibv_pd* parent = alloc(pd->context, &attributes);
  g_calls.check(parent != nullptr && op<int(ibv_pd*)>(release.dealloc_pd)(parent) == 0,
                "a parent domain that may have unprotected memory");
}

void query_speed(const Release& release, ibv_context* context) {
  auto* const query = op<int(ibv_context*, std::uint32_t, std::uint64_t*)>(place(release.number, "query_port_speed"));
  std::uint64_t speed = 0;
  g_calls.check(query(context, 1, &speed) == 0 && speed == 100, "query_port_speed");  // the loopback's 10 Gb/s
  g_calls.check(query(context, 2, &speed) == EINVAL, "query_port_speed of a port that there is not");
}

// Makes and uses one object of each kind by the places that the release gives to the operations.
void use_device(const Release& release) {
  ibv_context* context = g_calls.for_programs();
  g_calls.check(context->num_comp_vectors == sysconf(_SC_NPROCESSORS_CONF) && context->async_fd >= 0,
                "the program's ibv_context is elsewhere");

  std::vector<char> port(release.port_attr + 8, '\x5a');
  std::fill_n(port.begin(), release.port_attr, '\0');
  const int error = op<int(ibv_context*, std::uint8_t, ibv_port_attr*)>(release.query_port)(
      context, 1, reinterpret_cast<ibv_port_attr*>(port.data()));
  g_calls.check(error == 0 && reinterpret_cast<ibv_port_attr*>(port.data())->state == IBV_PORT_ACTIVE, "query_port");
  g_calls.check(std::all_of(port.end() - 8, port.end(), [](char octet) { return octet == '\x5a'; }),
                "query_port writes behind an ibv_port_attr");

  ibv_pd* pd = op<ibv_pd*(ibv_context*)>(release.alloc_pd)(context);
  if (pd == nullptr || pd->context != context) return g_calls.check(false, "alloc_pd");
  ibv_cq* cq = op<ibv_cq*(ibv_context*, int, ibv_comp_channel*, int)>(release.create_cq)(context, 8, nullptr, 0);
  if (cq == nullptr || cq->cqe < 8) return g_calls.check(false, "create_cq");
  cq->context = context;  // as libibverbs does
  g_calls.check(op<int(ibv_cq*, int)>(release.resize_cq)(cq, 20) == 0 && cq->cqe >= 20, "resize_cq");

  char buffer[64];
  ibv_mr* mr = op<ibv_mr*(ibv_pd*, void*, std::size_t, std::uint64_t, int)>(release.reg_mr)(
      pd, buffer, sizeof buffer, reinterpret_cast<std::uintptr_t>(buffer), IBV_ACCESS_LOCAL_WRITE);
  if (mr == nullptr) return g_calls.check(false, "reg_mr");
  use_parent_domain(release, pd);
  if (release.number >= 59) use_dma_handles(release, pd, mr);
  if (release.number >= 62) query_speed(release, context);
  g_calls.check(op<int(ibv_mr*)>(release.dereg_mr)(mr) == 0, "dereg_mr");

  ibv_qp_init_attr wanted = {};
  wanted.send_cq = wanted.recv_cq = cq;
  wanted.cap = {4, 4, 1, 1, 0};
  wanted.qp_type = IBV_QPT_RC;
  ibv_qp* qp = op<ibv_qp*(ibv_pd*, ibv_qp_init_attr*)>(release.create_qp)(pd, &wanted);
  if (qp == nullptr || qp->pd != pd) return g_calls.check(false, "create_qp");
  g_calls.check(qp_to_qp_ex(qp) != nullptr, "libibverbs sees no ibv_qp_ex");
  for (const void* const late : late_operations(release, qp))
    g_calls.check(late == nullptr, "a queue pair has an operation that nobody has asked for");
  g_calls.check(op<int(ibv_qp*)>(release.destroy_qp)(qp) == 0, "destroy_qp");
  use_late_operations(release, pd, wanted);
  g_calls.check(op<int(ibv_cq*)>(release.destroy_cq)(cq) == 0, "destroy_cq");
  g_calls.check(op<int(ibv_pd*)>(release.dealloc_pd)(pd) == 0, "dealloc_pd");
  op<void(ibv_context*)>(release.free_context)(context);
  g_calls.check(g_calls.uninits == 1, "the context is not ended");
}

// What is wrong, one complaint a line. Each release has a process of its own, since there is one libibverbs in each.
std::string in_child(const std::function<void()>& examine) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    examine();
    std::string all;
    for (const std::string& complaint : g_calls.complaints) all += complaint + "\n";
    _exit(write(ends[1], all.data(), all.size()) == static_cast<ssize_t>(all.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string said;
  char part[256];
  for (ssize_t length; (length = read(ends[0], part, sizeof part)) > 0;)
    said.append(part, static_cast<std::size_t>(length));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) said += "it ends with status " + std::to_string(status) + "\n";
  return said;
}

}  // namespace

TEST_CASE("the list of releases says what their headers say") {
  for (const Release& release : all_releases()) {
    if (release.pabi == 34 && release.number != 39) continue;  // what differs within 34 is not in the list
    const Release listed = listed_release(release.number, release.pabi);
    INFO("rdma-core " << release.number);
    CHECK(std::memcmp(&listed, &release, sizeof listed) == 0);
  }
}

TEST_CASE("the plugin keeps to the private ABI of each release") {
  for (const Release& release : all_releases()) {
    const std::string complaints = in_child([&] {
      g_calls.context_size = release.verbs_context;
      const verbs_context* context = open_device(release);
      g_calls.check(context != nullptr, "no context");
      if (context == nullptr) return;
      g_calls.check(reinterpret_cast<const char*>(context) == g_calls.context, "another context is returned");
      use_device(release);
    });
    INFO("rdma-core " << release.number);
    CHECK(complaints == "");
  }
}

TEST_CASE("a libibverbs whose context has grown within its ABI is refused") {
  for (const Release& release : all_releases()) {
    const std::string complaints = in_child([&] {
      g_calls.context_size = release.verbs_context + 2 * sizeof(void*);
      g_calls.check(open_device(release) == nullptr && errno == ENOTSUP, "it is not refused");
      g_calls.check(g_calls.uninits == 1, "the context is not ended");
      g_calls.check(g_calls.table.empty(), "it gets operations");
    });
    INFO("rdma-core " << release.number);
    CHECK(complaints == "");
  }
}
