// SPDX-License-Identifier: MIT
// What wrong use of verbs and rdma_cm must give: the documented errno or completion status, and never a
// crash.
//
//   uiw_bad_input HOST PORT CASE     runs one case; --list names them
//
// Both ends are in this process: a listener and a caller on HOST.
#include <netinet/in.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <initializer_list>
#include <vector>

#include "pair.h"

namespace {

using apps::die;
using apps::Endpoint;
using apps::expect_error;
using apps::expect_status;
using apps::g_host;
using apps::g_port;
using apps::number;
using apps::Pair;
using apps::post_recv;
using apps::received;
using apps::sent;

constexpr std::size_t kSize = 65536;
constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

struct Memory {
  std::uint8_t* base;
  std::size_t size;
  explicit Memory(std::size_t octets, int protection = PROT_READ | PROT_WRITE) : size(octets) {
    void* memory = mmap(nullptr, octets, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) die("mmap: %s", std::strerror(errno));
    base = static_cast<std::uint8_t*>(memory);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { release(); }
  void release() {
    if (size != 0) munmap(base, size);
    size = 0;
  }
};

ibv_mr* reg(ibv_pd* pd, const Memory& memory, int access = kAll) {
  return apps::reg(pd, memory.base, memory.size, access);
}

// One work request.
struct Post {
  ibv_send_wr request{};
  std::vector<ibv_sge> list;

  Post(ibv_wr_opcode opcode, std::vector<ibv_sge> sges, std::uint64_t remote = 0, std::uint32_t rkey = 0)
      : list(std::move(sges)) {
    request.wr_id = 77;
    request.opcode = opcode;
    request.wr.rdma.remote_addr = remote;
    request.wr.rdma.rkey = rkey;
  }
  int at(Endpoint& end) {
    request.sg_list = list.data();
    request.num_sge = static_cast<int>(list.size());
    return raw(end);
  }
  int raw(Endpoint& end) { return apps::post(end, request); }
};

ibv_sge sge(const ibv_mr* mr, std::uint32_t length, std::size_t offset = 0) {
  return {number(mr->addr) + offset, length, mr->lkey};
}

// Local protection: either the post refuses (EINVAL), or the work completes with IBV_WC_LOC_PROT_ERR.
void expect_local_protection(const char* what, Endpoint& end, Post post) {
  const int error = post.at(end);
  if (error != 0)
    die("%s: the post refuses with %s; a completion with an error is what adapters give", what,
        std::strerror(error));
  const ibv_wc wc = sent(end);
  expect_status(what, wc, {IBV_WC_LOC_PROT_ERR});
  if (wc.wr_id != 77) die("%s: wr_id %llu", what, static_cast<unsigned long long>(wc.wr_id));
}

// The request is refused by the peer. A Read must say so itself. A Write may complete as soon as TCP has it
// (RFC 5040 section 5.5); then the stream ends and what follows must not succeed.
void expect_remote_refusal(const char* what, Pair& pair, ibv_wr_opcode opcode, ibv_sge local,
                           std::uint64_t remote, std::uint32_t rkey) {
  Post post(opcode, {local}, remote, rkey);
  if (int error = post.at(pair.near)) die("%s: ibv_post_send: %s", what, std::strerror(error));
  ibv_wc wc = sent(pair.near);
  if (opcode == IBV_WR_RDMA_READ) {
    // Memory that has vanished is no matter of access rights: any error will do.
    if (std::string(what) == "remote_unmapped" && wc.status != IBV_WC_SUCCESS) return;
    expect_status(what, wc, {IBV_WC_REM_ACCESS_ERR});
    return;
  }
  expect_status(what, wc, {IBV_WC_SUCCESS, IBV_WC_REM_ACCESS_ERR});
  const auto end = apps::Clock::now() + apps::kPatience;
  while (wc.status == IBV_WC_SUCCESS) {
    if (apps::Clock::now() > end) die("%s: nothing tells the requester of it", what);
    // A zero-length Write: no access is checked, it only asks whether the stream lives.
    Post probe(IBV_WR_RDMA_WRITE, {}, 0, 0);
    if (probe.at(pair.near) != 0) return;
    wc = sent(pair.near);
    usleep(1000);
  }
  expect_status(what, wc, {IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR, IBV_WC_REM_OP_ERR, IBV_WC_FATAL_ERR});
}

apps::Cases make_cases() {
  apps::Cases cases;

  cases["reg_unmapped"] = [] {
    Pair pair;
    ibv_pd* pd = pair.near.pd();
    auto refused = [&](const char* what, void* base, std::size_t length, int access,
                       std::initializer_list<int> good) {
      errno = 0;
      ibv_mr* mr = ibv_reg_mr(pd, base, length, access);
      expect_error(what, mr == nullptr ? errno : 0, good);
    };
    Memory memory(16 * kSize);
    munmap(memory.base + 4 * kSize, kSize);
    refused("a hole", memory.base + 4 * kSize, 4096, kAll, {EFAULT});
    refused("a range with a hole in it", memory.base, 16 * kSize, kAll, {EFAULT});
    refused("a range that ends in a hole", memory.base, 4 * kSize + 1, kAll, {EFAULT});
    refused("a null pointer", nullptr, 4096, kAll, {EFAULT, EINVAL});
    refused("a length that wraps around", memory.base, ~std::size_t{0} - 4096, kAll,
            {EFAULT, EINVAL, ENOMEM});
    refused("the top of the address space", reinterpret_cast<void*>(~std::uintptr_t{0} - 4095), 4096, kAll,
            {EFAULT, EINVAL, ENOMEM});
    refused("half the address space", memory.base, std::size_t{1} << 62, kAll, {EFAULT, EINVAL, ENOMEM});
    Memory constant(kSize, PROT_READ);
    refused("read-only memory for writing", constant.base, kSize, kAll, {EFAULT});
    refused("remote write without local write", memory.base, kSize, IBV_ACCESS_REMOTE_WRITE, {EINVAL});
    ibv_mr* good = ibv_reg_mr(pd, constant.base, kSize, int{IBV_ACCESS_REMOTE_READ});
    if (good == nullptr) die("read-only memory for reading: %s", std::strerror(errno));
    ibv_dereg_mr(good);
    good = ibv_reg_mr(pd, memory.base, 4 * kSize, kAll);
    if (good == nullptr) die("what is mapped before the hole: %s", std::strerror(errno));
    ibv_dereg_mr(good);
  };

  cases["bad_lkey"] = [] {
    for (ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
      Pair pair;
      Memory memory(kSize);
      ibv_mr* mr = reg(pair.near.pd(), memory);
      ibv_mr* remote = reg(pair.far.pd(), memory);
      ibv_sge wrong = sge(mr, 100);
      wrong.lkey ^= 0x5a5a5a00;
      expect_local_protection("an unknown lkey", pair.near,
                              {opcode, {wrong}, number(memory.base), remote->rkey});
      ibv_dereg_mr(mr);
      ibv_dereg_mr(remote);
    }
  };

  cases["stale_lkey"] = [] {
    Pair pair;
    Memory memory(kSize);
    ibv_mr* mr = reg(pair.near.pd(), memory);
    const ibv_sge stale = sge(mr, 100);
    ibv_dereg_mr(mr);
    mr = reg(pair.near.pd(), memory);
    if (mr->lkey == stale.lkey) die("an lkey is given again at once");
    expect_local_protection("the lkey of a region that is gone", pair.near, {IBV_WR_SEND, {stale}});
    ibv_dereg_mr(mr);
  };

  cases["local_bounds"] = [] {
    for (int which = 0; which < 4; ++which) {
      Pair pair;
      Memory memory(kSize);
      ibv_mr* mr = reg(pair.near.pd(), memory);
      ibv_sge bad = sge(mr, 100);
      if (which == 0) bad = sge(mr, kSize + 1);
      if (which == 1) bad = sge(mr, 2, kSize - 1);
      if (which == 2) bad.addr -= 1;
      if (which == 3) bad.addr = ~std::uint64_t{0} - 50;  // address plus length wraps
      expect_local_protection("an SGE outside of its region", pair.near, {IBV_WR_SEND, {bad}});
      ibv_dereg_mr(mr);
    }
  };

  cases["local_other_pd"] = [] {
    Pair pair;
    Memory memory(kSize);
    ibv_pd* other = ibv_alloc_pd(pair.near.id()->verbs);
    if (other == nullptr) die("ibv_alloc_pd: %s", std::strerror(errno));
    ibv_mr* mr = reg(other, memory);
    expect_local_protection("a region of another PD", pair.near, {IBV_WR_SEND, {sge(mr, 100)}});
    ibv_dereg_mr(mr);
    ibv_dealloc_pd(other);
  };

  cases["local_access"] = [] {
    Pair pair;
    Memory memory(kSize);
    ibv_mr* sink = reg(pair.near.pd(), memory, 0);
    ibv_mr* remote = reg(pair.far.pd(), memory);
    expect_local_protection("a Read into a region without local write", pair.near,
                            {IBV_WR_RDMA_READ, {sge(sink, 100)}, number(memory.base), remote->rkey});
    ibv_dereg_mr(sink);
    ibv_dereg_mr(remote);
  };

  cases["recv_bad_lkey"] = [] {
    Pair pair;
    Memory memory(kSize);
    ibv_mr* mr = reg(pair.near.pd(), memory);
    ibv_mr* sink = reg(pair.far.pd(), memory);
    ibv_sge wrong = sge(sink, 4096);
    wrong.lkey ^= 0x5a5a5a00;
    if (post_recv(pair.far, {wrong}) == 0) {
      if (int error = Post(IBV_WR_SEND, {sge(mr, 100)}).at(pair.near))
        die("ibv_post_send: %s", std::strerror(error));
      expect_status("a receive with an unknown lkey", received(pair.far), {IBV_WC_LOC_PROT_ERR});
    }
    ibv_dereg_mr(mr);
    ibv_dereg_mr(sink);
  };

  cases["recv_too_short"] = [] {
    Pair pair;
    Memory memory(kSize);
    ibv_mr* mr = reg(pair.near.pd(), memory);
    ibv_mr* sink = reg(pair.far.pd(), memory);
    if (int error = post_recv(pair.far, {sge(sink, 100)})) die("ibv_post_recv: %s", std::strerror(error));
    if (int error = Post(IBV_WR_SEND, {sge(mr, 101)}).at(pair.near))
      die("ibv_post_send: %s", std::strerror(error));
    expect_status("a receive that is too short", received(pair.far), {IBV_WC_LOC_LEN_ERR});
    ibv_dereg_mr(mr);
    ibv_dereg_mr(sink);
  };

  cases["too_many"] = [] {
    Pair pair;
    Memory memory(kSize);
    ibv_mr* mr = reg(pair.near.pd(), memory);
    const ibv_qp_cap cap = pair.near.capacity();
    std::vector<ibv_sge> many(cap.max_send_sge + 1, sge(mr, 1));
    expect_error("more SGEs than max_send_sge", Post(IBV_WR_SEND, many).at(pair.near), {EINVAL, ENOMEM});
    many.resize(cap.max_recv_sge + 1, sge(mr, 1));
    expect_error("more SGEs than max_recv_sge", post_recv(pair.near, many), {EINVAL, ENOMEM});
    Post negative(IBV_WR_SEND, {});
    negative.request.num_sge = -1;
    expect_error("a negative number of SGEs", negative.raw(pair.near), {EINVAL});
    Post inlined(IBV_WR_SEND, {sge(mr, cap.max_inline_data + 1)});
    inlined.request.send_flags |= IBV_SEND_INLINE;
    expect_error("more inline data than max_inline_data", inlined.at(pair.near), {EINVAL, ENOMEM});
    Post opcode(static_cast<ibv_wr_opcode>(99), {sge(mr, 1)});
    expect_error("an unknown opcode", opcode.at(pair.near), {EINVAL, EOPNOTSUPP, ENOSYS});
    // The receive queue takes what it promised, then ENOMEM.
    unsigned posted = 0;
    int error = 0;
    while (posted <= 1u << 20 && (error = post_recv(pair.near, {sge(mr, 1)})) == 0) ++posted;
    expect_error("a full receive queue", error, {ENOMEM});
    if (posted < cap.max_recv_wr) die("the receive queue takes %u, not %u", posted, cap.max_recv_wr);
    ibv_dereg_mr(mr);
  };

  cases["full_send_queue"] = [] {
    Pair pair;
    Memory memory(kSize);
    ibv_mr* mr = reg(pair.near.pd(), memory);
    const ibv_qp_cap cap = pair.near.capacity();
    // Nobody receives, so the queue fills in the end; it must take what it promised, and say ENOMEM then. What TCP has taken
    // is complete, and would overrun the completion queue if it stayed there.
    unsigned posted = 0;
    int error = 0;
    while (posted < 1u << 20 && (error = Post(IBV_WR_SEND, {sge(mr, kSize)}).at(pair.near)) == 0) {
      ++posted;
      for (ibv_wc wc; ibv_poll_cq(pair.near.id()->send_cq, 1, &wc) == 1;) expect_status("a Send", wc, {IBV_WC_SUCCESS});
    }
    expect_error("a full send queue", error, {ENOMEM});
    if (posted < cap.max_send_wr) die("the send queue takes %u, not %u", posted, cap.max_send_wr);
    ibv_dereg_mr(mr);
  };

  cases["length_overflow"] = [] {
    // Two SGEs of 2^31 octets each: more than any message may have.
    Pair pair;
    Memory memory(std::size_t{1} << 31);
    ibv_mr* mr = ibv_reg_mr(pair.near.pd(), memory.base, memory.size, int{IBV_ACCESS_REMOTE_READ});
    if (mr == nullptr) die("ibv_reg_mr of 2 GiB: %s", std::strerror(errno));
    const ibv_sge half = sge(mr, 1u << 31);
    Post post(IBV_WR_SEND, {half, half});
    const int error = post.at(pair.near);
    if (error == 0)
      expect_status("a message of 2^32 octets", sent(pair.near), {IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_QP_OP_ERR});
    else
      expect_error("a message of 2^32 octets", error, {EINVAL, EMSGSIZE});
    ibv_dereg_mr(mr);
  };

  struct Target {
    std::uint64_t address;
    std::uint32_t rkey;
  };
  struct Remote {
    const char* name;
    std::function<Target(Pair&, Memory&)> spoil;
  };
  static const std::vector<Remote> remotes = {
      {"stale_rkey",
       [](Pair& pair, Memory& memory) {
         ibv_mr* mr = reg(pair.far.pd(), memory);
         const Target stale{number(memory.base), mr->rkey};
         ibv_dereg_mr(mr);
         return stale;
       }},
      {"unknown_rkey",
       [](Pair& pair, Memory& memory) {
         return Target{number(memory.base), reg(pair.far.pd(), memory)->rkey ^ 0x12345600};
       }},
      {"remote_bounds",
       [](Pair& pair, Memory& memory) {
         return Target{number(memory.base) + kSize - 99, reg(pair.far.pd(), memory)->rkey};
       }},
      {"remote_below",
       [](Pair& pair, Memory& memory) {
         return Target{number(memory.base) - 1, reg(pair.far.pd(), memory)->rkey};
       }},
      {"remote_wrap",
       [](Pair& pair, Memory& memory) {
         return Target{~std::uint64_t{0} - 50, reg(pair.far.pd(), memory)->rkey};
       }},
      {"remote_access",
       [](Pair& pair, Memory& memory) {
         return Target{number(memory.base), reg(pair.far.pd(), memory, IBV_ACCESS_LOCAL_WRITE)->rkey};
       }},
      {"remote_other_pd",
       [](Pair& pair, Memory& memory) {
         return Target{number(memory.base), reg(ibv_alloc_pd(pair.far.id()->verbs), memory)->rkey};
       }},
      {"remote_unmapped",
       [](Pair& pair, Memory& memory) {
         // Registered, then unmapped by the program: placement and gathering must not fault.
         const Target gone{number(memory.base), reg(pair.far.pd(), memory)->rkey};
         memory.release();
         return gone;
       }},
  };
  for (const Remote& remote : remotes)
    for (ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE})
      cases[std::string(remote.name) + (opcode == IBV_WR_RDMA_READ ? "_read" : "_write")] = [&remote,
                                                                                             opcode] {
        Memory own(kSize), target(kSize);
        std::memset(own.base, 1, kSize);
        Pair pair;
        ibv_mr* mr = reg(pair.near.pd(), own);
        const Target at = remote.spoil(pair, target);
        expect_remote_refusal(remote.name, pair, opcode, sge(mr, 100), at.address, at.rkey);
        if (std::string(remote.name) != "remote_unmapped")
          for (std::size_t i = 0; i < kSize; ++i)
            if (target.base[i] != 0) die("a refused Write changed octet %zu", i);
      };

  cases["port_in_use"] = [] {
    apps::Listener first(g_host, g_port, {});
    rdma_addrinfo* address = apps::resolve(g_host, g_port, RAI_PASSIVE);
    ibv_qp_init_attr attributes = apps::qp_attributes({});
    rdma_cm_id* id = nullptr;
    errno = 0;
    int error = rdma_create_ep(&id, address, nullptr, &attributes) == 0 ? 0 : errno;
    if (error == 0) error = rdma_listen(id, 1) == 0 ? 0 : errno;
    expect_error("a second listener", error, {EADDRINUSE});
    if (id != nullptr) rdma_destroy_ep(id);
    rdma_freeaddrinfo(address);
  };

  cases["cm_misuse"] = [] {
    rdma_event_channel* channel = rdma_create_event_channel();
    if (channel == nullptr) die("rdma_create_event_channel: %s", std::strerror(errno));
    rdma_cm_id* id = nullptr;
    if (rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0)
      die("rdma_create_id: %s", std::strerror(errno));
    auto failed = [](int result) { return result == 0 ? 0 : errno; };
    sockaddr_in elsewhere{};
    elsewhere.sin_family = AF_INET;
    elsewhere.sin_addr.s_addr = htonl(0xCB007107);  // 203.0.113.7, of a documentation network
    expect_error("bind to an address that is not ours",
                 failed(rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&elsewhere))),
                 {EADDRNOTAVAIL, ENODEV});
    sockaddr wrong{};
    wrong.sa_family = AF_UNIX;
    expect_error("bind to another family", failed(rdma_bind_addr(id, &wrong)),
                 {EINVAL, EAFNOSUPPORT, EADDRNOTAVAIL});
    // Stock librdmacm itself looks through a null pointer where these are called on an id without a device.
    rdma_addrinfo* address = apps::resolve(g_host, "0", RAI_PASSIVE);
    if (rdma_bind_addr(id, address->ai_src_addr) != 0) die("rdma_bind_addr: %s", std::strerror(errno));
    if (rdma_get_src_port(id) == 0) die("port 0 does not become a real one");
    expect_error("a second bind", failed(rdma_bind_addr(id, address->ai_src_addr)), {EINVAL});
    rdma_freeaddrinfo(address);
    rdma_conn_param parameters = apps::connection_parameters();
    expect_error("connect of a bound id", failed(rdma_connect(id, &parameters)), {EINVAL});
    expect_error("accept of a bound id", failed(rdma_accept(id, &parameters)), {EINVAL});
    expect_error("disconnect of a bound id", failed(rdma_disconnect(id)), {EINVAL, ENOTCONN});
    expect_error("resolve_route of a bound id", failed(rdma_resolve_route(id, 1000)), {EINVAL});
    expect_error("reject of a bound id", failed(rdma_reject(id, nullptr, 0)), {EINVAL});
    int option = 1;
    expect_error("an unknown option", failed(rdma_set_option(id, 99, 99, &option, sizeof option)),
                 {ENOSYS, EINVAL, ENOPROTOOPT});
    rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
    // No datagrams on iWARP: creating the id may work, binding it to a device must not.
    channel = rdma_create_event_channel();
    const int created = failed(rdma_create_id(channel, &id, nullptr, RDMA_PS_UDP));
    if (created == 0)
      rdma_destroy_id(id);
    else
      expect_error("an id of port space UDP", created, {EPROTONOSUPPORT, EINVAL, EOPNOTSUPP});
    rdma_destroy_event_channel(channel);
  };

  cases["object_limits"] = [] {
    Pair pair;
    ibv_context* context = pair.near.id()->verbs;
    ibv_device_attr device{};
    if (ibv_query_device(context, &device) != 0) die("ibv_query_device fails");
    errno = 0;
    ibv_cq* cq = ibv_create_cq(context, 0, nullptr, nullptr, 0);
    expect_error("a CQ of 0 entries", cq == nullptr ? errno : 0, {EINVAL});
    cq = ibv_create_cq(context, -5, nullptr, nullptr, 0);
    expect_error("a CQ of -5 entries", cq == nullptr ? errno : 0, {EINVAL});
    if (device.max_cqe < INT32_MAX) {
      cq = ibv_create_cq(context, device.max_cqe + 1, nullptr, nullptr, 0);
      expect_error("a CQ beyond max_cqe", cq == nullptr ? errno : 0, {EINVAL});
    }
    cq = ibv_create_cq(context, 10, nullptr, nullptr, 1 << 20);
    expect_error("a completion vector that is not there", cq == nullptr ? errno : 0, {EINVAL});
    cq = ibv_create_cq(context, 10, nullptr, nullptr, 0);
    if (cq == nullptr) die("ibv_create_cq: %s", std::strerror(errno));
    auto refused = [&](const char* what, auto change) {
      ibv_qp_init_attr attributes = apps::qp_attributes({});
      attributes.send_cq = attributes.recv_cq = cq;
      change(attributes);
      errno = 0;
      ibv_qp* qp = ibv_create_qp(pair.near.pd(), &attributes);
      expect_error(what, qp == nullptr ? errno : 0, {EINVAL, ENOMEM, EOPNOTSUPP});
    };
    refused("a QP beyond max_qp_wr",
            [&](auto& a) { a.cap.max_send_wr = static_cast<std::uint32_t>(device.max_qp_wr) + 1; });
    refused("a QP of 2^32-1 receives", [](auto& a) { a.cap.max_recv_wr = ~0u; });
    refused("a QP beyond max_sge",
            [&](auto& a) { a.cap.max_send_sge = static_cast<std::uint32_t>(device.max_sge) + 1; });
    refused("a QP of 2^31 octets inline", [](auto& a) { a.cap.max_inline_data = 1u << 31; });
    refused("a UD QP", [](auto& a) { a.qp_type = IBV_QPT_UD; });
    refused("a QP of an unknown type", [](auto& a) { a.qp_type = static_cast<ibv_qp_type>(77); });
    if (int error = ibv_destroy_cq(cq)) die("ibv_destroy_cq: %s", std::strerror(error));
    expect_error("destroying a CQ in use", ibv_destroy_cq(pair.near.id()->send_cq), {EBUSY});
    expect_error("deallocating a PD in use", ibv_dealloc_pd(pair.near.pd()), {EBUSY});
    ibv_port_attr port{};
    expect_error("querying port 2", ibv_query_port(context, 2, &port), {EINVAL});
  };

  cases["qp_states"] = [] {
    Pair pair;
    Memory memory(kSize);
    ibv_mr* mr = reg(pair.near.pd(), memory);
    ibv_qp_init_attr attributes = apps::qp_attributes({});
    ibv_cq* cq = ibv_create_cq(pair.near.id()->verbs, 100, nullptr, nullptr, 0);
    if (cq == nullptr) die("ibv_create_cq: %s", std::strerror(errno));
    attributes.send_cq = attributes.recv_cq = cq;
    ibv_qp* qp = ibv_create_qp(pair.near.pd(), &attributes);
    if (qp == nullptr) die("ibv_create_qp: %s", std::strerror(errno));
    ibv_sge local = sge(mr, 10);
    ibv_send_wr request{};
    request.sg_list = &local;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    expect_error("a send in RESET", ibv_post_send(qp, &request, &bad), {EINVAL, ENOTCONN});
    ibv_qp_attr change{};
    change.qp_state = IBV_QPS_RTS;
    expect_error("RESET to RTS", ibv_modify_qp(qp, &change, IBV_QP_STATE), {EINVAL});
    change.qp_state = static_cast<ibv_qp_state>(55);
    expect_error("an unknown state", ibv_modify_qp(qp, &change, IBV_QP_STATE), {EINVAL});
    change.qp_state = IBV_QPS_ERR;
    if (int error = ibv_modify_qp(qp, &change, IBV_QP_STATE)) die("RESET to ERR: %s", std::strerror(error));
    if (int error = ibv_destroy_qp(qp)) die("ibv_destroy_qp: %s", std::strerror(error));
    if (int error = ibv_destroy_cq(cq)) die("ibv_destroy_cq: %s", std::strerror(error));
    // A connected QP put into ERR flushes what it holds, in order, and takes more only to flush it.
    for (int i = 0; i < 3; ++i)
      if (int error = post_recv(pair.near, {sge(mr, 10)})) die("ibv_post_recv: %s", std::strerror(error));
    change.qp_state = IBV_QPS_ERR;
    if (int error = ibv_modify_qp(pair.near.qp(), &change, IBV_QP_STATE))
      die("RTS to ERR: %s", std::strerror(error));
    for (int i = 0; i < 3; ++i)
      expect_status("a receive of a QP in ERR", received(pair.near), {IBV_WC_WR_FLUSH_ERR});
    if (int error = Post(IBV_WR_SEND, {sge(mr, 10)}).at(pair.near))
      die("a send in ERR: %s", std::strerror(error));
    expect_status("a send of a QP in ERR", sent(pair.near), {IBV_WC_WR_FLUSH_ERR});
    if (post_recv(pair.near, {sge(mr, 10)}) != 0) die("a receive in ERR is refused");
    expect_status("a receive posted in ERR", received(pair.near), {IBV_WC_WR_FLUSH_ERR});
    // The peer hears of it.
    ibv_wc wc{};
    if (post_recv(pair.far, {sge(mr, 10)}) == 0) {
      if (!pair.far.recv_completion(wc)) die("the peer of a QP in ERR is told nothing");
      expect_status("the peer's receive", wc, {IBV_WC_WR_FLUSH_ERR, IBV_WC_LOC_PROT_ERR});
    }
    ibv_dereg_mr(mr);
  };

  return cases;
}

}  // namespace

int main(int argc, char** argv) { return apps::run_case(argc, argv, make_cases()); }
