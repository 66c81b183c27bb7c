// SPDX-License-Identifier: MIT
// Every way in which work fails on a manual connection, as programs written for InfiniBand look for it:
// the one request completes with its status, those before it succeed, those behind it flush, the queue pair
// is in ERR; the responder has its async event, or a completion of its own.
//
// The requester calls (two_programs.h).
//
// By the local rule (UIW_COMPLETION=local) a Send or Write completes once TCP has it (RFC 5040 section 5.5),
// and may have done so before the peer complains of it.
#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <tuple>

#include "two_programs.h"

namespace {

using apps::die;
using apps::Place;
using namespace apps::manual;

constexpr std::uint32_t kSize = 1U << 20;  // of the memory at either end
constexpr std::uint32_t kMessage = 500, kReceive = 600;
constexpr std::uint32_t kLong = 400'000;     // more than one batch carries
constexpr std::uint32_t kLaterAt = 600'000;  // where nothing may be written
constexpr unsigned char kUntouched = 0xEE;
constexpr std::uint64_t kCulprit = 10;
constexpr unsigned kRemote = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

bool answered(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
         opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

// What the responder shows.
struct Exposed {
  std::uint64_t address = 0;  // of kSize octets, by each of these
  std::uint32_t all = 0;      // all rights
  std::uint32_t none = 0;     // no remote rights
  std::uint32_t foreign = 0;  // of another protection domain
};

// The requester: its end, its memory, and a list of work.
struct Requester {
  Requester(const std::string& host, const Wanted& wanted) : end(host, wanted) {
    for (std::size_t i = 0; i < kSize; ++i) memory[i] = static_cast<unsigned char>(i * 7 + 1);
  }

  ibv_send_wr& add(std::uint64_t id, ibv_wr_opcode opcode, std::uint32_t length, std::uint64_t offset = 0,
                   bool signaled = true) {
    sges.push_back({reinterpret_cast<std::uint64_t>(memory.data()) + offset % kSize, length, mr->lkey});
    ibv_send_wr request{};
    request.wr_id = id;
    request.opcode = opcode;
    request.num_sge = 1;
    request.send_flags = signaled ? unsigned{IBV_SEND_SIGNALED} : 0U;
    request.imm_data = htobe32(77);
    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      request.wr.atomic.remote_addr = exposed.address + offset;
      request.wr.atomic.rkey = exposed.all;
      request.wr.atomic.compare_add = 3;
    } else if (opcode == IBV_WR_SEND_WITH_INV) {
      request.invalidate_rkey = exposed.all;  // a region, which is its owner's alone to invalidate
    } else {
      request.wr.rdma.remote_addr = exposed.address + offset;
      request.wr.rdma.rkey = exposed.all;
    }
    return work.emplace_back(request);
  }
  ibv_sge& last_sge() { return sges.back(); }

  // What the peer's queue pair allows.
  void add_earlier(unsigned access) {
    const bool writes = (access & IBV_ACCESS_REMOTE_WRITE) != 0;
    if (writes) add(1, IBV_WR_RDMA_WRITE, 4000, 0);
    if (writes) add(2, IBV_WR_RDMA_WRITE, 3000, 8192, false);
    add(3, IBV_WR_SEND, kMessage);
    if ((access & IBV_ACCESS_REMOTE_READ) != 0) add(4, IBV_WR_RDMA_READ, 1000, 65536);
    if (writes) add(5, IBV_WR_RDMA_WRITE, 5000, 16384);
  }
  void add_later() {
    add(20, IBV_WR_RDMA_WRITE, 4000, kLaterAt);
    add(21, IBV_WR_SEND, kMessage);
    add(22, IBV_WR_RDMA_READ, 1000, 65536);
    add(23, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, kLaterAt);
  }
  void post() {
    for (std::size_t i = 0; i < work.size(); ++i) {
      work[i].sg_list = &sges[i];
      work[i].next = i + 1 < work.size() ? &work[i + 1] : nullptr;
    }
    ibv_send_wr* bad = nullptr;
    good("ibv_post_send", ibv_post_send(end.qp(), work.data(), &bad));
  }

  std::vector<unsigned char> memory = std::vector<unsigned char>(kSize);
  End end;
  ibv_mr* mr = end.reg(memory.data(), kSize, IBV_ACCESS_LOCAL_WRITE);
  Exposed exposed;
  std::vector<ibv_send_wr> work;
  std::vector<ibv_sge> sges;
};

struct Responder {
  Responder(const std::string& host, const Wanted& wanted) : end(host, wanted) {
    other_pd = ibv_alloc_pd(end.context());
    other_mr = ibv_reg_mr(other_pd, memory.data(), kSize, IBV_ACCESS_LOCAL_WRITE | static_cast<int>(kRemote));
    if (other_mr == nullptr) die("ibv_reg_mr: %s", std::strerror(errno));
  }
  ~Responder() {
    good("ibv_dereg_mr", ibv_dereg_mr(other_mr));
    good("ibv_dealloc_pd", ibv_dealloc_pd(other_pd));
  }
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  Exposed exposed() const {
    return {reinterpret_cast<std::uint64_t>(memory.data()), all->rkey, none->rkey, other_mr->rkey};
  }
  void post_receive(std::uint64_t id, std::uint32_t length = kReceive) {
    end.post_receive(id, {reinterpret_cast<std::uint64_t>(inbox.data()) + id * kReceive, length, in->lkey});
  }

  std::vector<unsigned char> memory = std::vector<unsigned char>(kSize, kUntouched);
  std::vector<unsigned char> inbox = std::vector<unsigned char>(std::size_t{16} * kReceive);
  End end;
  ibv_mr* all = end.reg(memory.data(), kSize, IBV_ACCESS_LOCAL_WRITE | static_cast<int>(kRemote));
  ibv_mr* none = end.reg(memory.data(), kSize, IBV_ACCESS_LOCAL_WRITE);
  ibv_mr* in = end.reg(inbox.data(), inbox.size(), IBV_ACCESS_LOCAL_WRITE);
  ibv_pd* other_pd;
  ibv_mr* other_mr;
};

struct Failing {
  ibv_wc_status status = IBV_WC_SUCCESS;  // of the culprit
  std::function<void(Requester&)> add_culprit;
  std::optional<ibv_event_type> event;          // at the responder
  ibv_wc_status receive = IBV_WC_WR_FLUSH_ERR;  // of the receive that is there for the culprit
  bool here = false;  // the requester alone finds the error, and the peer learns nothing
  bool late = false;  // it finds it when work behind would be carried out: there is none
  Wanted peer;        // how the responder makes its queue pair
  std::function<void(Responder&)> post_receive = [](Responder& responder) { responder.post_receive(2); };
};

void check_read(const Requester& requester) {
  for (std::size_t i = 0; i < 1000; ++i)
    if (requester.memory[65536 + i] != kUntouched) die("a Read that succeeded brought nothing");
}

// The completions of the list that was posted.
void check_sent(Requester& requester, const Failing& what, bool local_rule) {
  const bool may_succeed = local_rule && !what.here;
  bool passed = false, failed = false, told = false;
  for (const ibv_send_wr& request : requester.work) {
    const bool is_culprit = request.wr_id == kCulprit;
    passed = passed || is_culprit;
    if (!passed && (request.send_flags & IBV_SEND_SIGNALED) == 0) continue;
    const ibv_wc wc = requester.end.sent();
    if (wc.wr_id != request.wr_id)
      die("request %llu completes, not %llu: %s", ull(wc.wr_id), ull(request.wr_id),
          ibv_wc_status_str(wc.status));
    if (wc.qp_num != requester.end.qp()->qp_num) die("of QP %u", wc.qp_num);
    bool right;
    if (!passed) {
      // The local rule does not wait for answers before an error that is found here.
      failed = failed || (local_rule && what.here && wc.status == IBV_WC_WR_FLUSH_ERR);
      right = failed || wc.status == IBV_WC_SUCCESS;
    } else if (is_culprit) {
      right = wc.status == what.status ||
              (may_succeed && !answered(request.opcode) && wc.status == IBV_WC_SUCCESS);
      told = wc.status == what.status;
      failed = wc.status != IBV_WC_SUCCESS;
    } else if (!failed && wc.status == IBV_WC_SUCCESS) {
      right = !answered(request.opcode);  // with TCP before the error was heard of
    } else {
      right = wc.status == IBV_WC_WR_FLUSH_ERR;
      failed = true;
    }
    if (!right) die("request %llu: %s", ull(request.wr_id), ibv_wc_status_str(wc.status));
    if (wc.wr_id == 4 && wc.status == IBV_WC_SUCCESS) check_read(requester);
  }
  if (!failed) die("nothing failed");
  // The error is told of once: here, or by an event where its request has completed before.
  ibv_event_type type{};
  if (!told && !(requester.end.event(type, apps::kPatience) && type == IBV_EVENT_QP_FATAL))
    die("no event, or another");
  check_no_event(requester.end);
}

void request(const Failing& what, const std::string& host, Line& line) {
  const char* rule = std::getenv("UIW_COMPLETION");
  Requester requester(host, {});
  requester.end.connect(line);
  requester.end.post_receive(
      50, {reinterpret_cast<std::uint64_t>(requester.memory.data()), 16, requester.mr->lkey});
  requester.exposed = line.hear<Exposed>();
  requester.add_earlier(what.peer.access);
  what.add_culprit(requester);
  if (!what.late) requester.add_later();
  requester.post();
  check_sent(requester, what, rule != nullptr && std::strcmp(rule, "local") == 0);
  check_flushed(requester.end.received(), 50);
  check_dead(requester.end,
             {reinterpret_cast<std::uint64_t>(requester.memory.data()), 16, requester.mr->lkey});
  line.meet('d');
}

void respond(const Failing& what, const std::string& host, Line& line) {
  Responder responder(host, what.peer);
  responder.end.connect(line);
  responder.post_receive(1);
  what.post_receive(responder);
  responder.post_receive(3);
  responder.post_receive(4);
  line.say(responder.exposed());

  const ibv_wc first = responder.end.received();
  if (first.wr_id != 1 || first.status != IBV_WC_SUCCESS || first.byte_len != kMessage)
    die("the receive before: %s", ibv_wc_status_str(first.status));
  if (what.here) {
    line.meet('d');
    check_no_event(responder.end, 100);
    check_state(responder.end, IBV_QPS_RTS);
    responder.end.post_send(
        1, {reinterpret_cast<std::uint64_t>(responder.inbox.data()), 16, responder.in->lkey});
    const ibv_wc wc = responder.end.sent();
    if (wc.status != IBV_WC_RETRY_EXC_ERR) die("a Send to a peer in error: %s", ibv_wc_status_str(wc.status));
  }
  const ibv_wc second = responder.end.received();
  if (second.wr_id != 2 || second.status != what.receive)
    die("receive 2: %s", ibv_wc_status_str(second.status));
  check_flushed(responder.end.received(), 3);
  check_flushed(responder.end.received(), 4);
  if (what.event) {
    ibv_event_type type{};
    if (!responder.end.event(type, apps::kPatience)) die("no event");
    if (type != *what.event) die("event %s", ibv_event_type_str(type));
  }
  if (!what.here) line.meet('d');
  check_no_event(responder.end);
  check_dead(responder.end,
             {reinterpret_cast<std::uint64_t>(responder.inbox.data()), 16, responder.in->lkey});
  const auto& memory = responder.memory;
  if ((what.peer.access & IBV_ACCESS_REMOTE_WRITE) == 0) return;
  for (const auto& [at, size] : {std::pair(0U, 4000U), {8192U, 3000U}, {16384U, 5000U}})
    for (std::uint32_t i = at; i < at + size; ++i)
      if (memory[i] != static_cast<unsigned char>(i * 7 + 1))
        die("a Write that succeeded left octet %u as it was", i);
  if (std::any_of(memory.begin() + kLaterAt, memory.begin() + kLaterAt + 4000,
                  [](auto c) { return c != kUntouched; }))
    die("work behind the error has been carried out");
}

// ---- The cases --------------------------------------------------------------------------------------------

void add_case(Cases& cases, const std::string& name, const Failing& what) {
  cases[name] = {[what](const std::string& host, Line& line) { request(what, host, line); },
                 [what](const std::string& host, Line& line) { respond(what, host, line); }};
}

// The ways to have no access, for one operation. `right` is what the peer's queue pair needs for it.
void add_access_cases(Cases& cases, const std::string& name, ibv_wr_opcode opcode, std::uint32_t length,
                      unsigned right) {
  const bool atomic = answered(opcode) && opcode != IBV_WR_RDMA_READ;
  const auto key = [=](ibv_send_wr& request) -> std::uint32_t& {
    return atomic ? request.wr.atomic.rkey : request.wr.rdma.rkey;
  };
  const auto address = [=](ibv_send_wr& request) -> std::uint64_t& {
    return atomic ? request.wr.atomic.remote_addr : request.wr.rdma.remote_addr;
  };
  const auto refused = [&](const char* why, const std::function<void(const Exposed&, ibv_send_wr&)>& spoil) {
    Failing what;
    what.status = IBV_WC_REM_ACCESS_ERR;
    what.event = IBV_EVENT_QP_ACCESS_ERR;
    what.add_culprit = [=](Requester& requester) {
      spoil(requester.exposed, requester.add(kCulprit, opcode, length, 131'072));
    };
    add_case(cases, name + why, what);
  };
  refused("_bad_rkey", [=](const Exposed&, ibv_send_wr& request) { key(request) ^= 0x5A5A5A00; });
  refused("_out_of_bounds", [=](const Exposed& exposed, ibv_send_wr& request) {
    address(request) = exposed.address + kSize - length / 16 * 8;
  });
  refused("_region_rights",
          [=](const Exposed& exposed, ibv_send_wr& request) { key(request) = exposed.none; });
  refused("_other_domain",
          [=](const Exposed& exposed, ibv_send_wr& request) { key(request) = exposed.foreign; });
  // To InfiniBand, an operation that the peer's queue pair does not take at all is an invalid request.
  Failing denied;
  denied.status = IBV_WC_REM_INV_REQ_ERR;
  denied.event = IBV_EVENT_QP_REQ_ERR;
  denied.peer.access = kRemote & ~right;
  denied.add_culprit = [=](Requester& requester) { requester.add(kCulprit, opcode, length, 131'072); };
  add_case(cases, name + "_queue_pair_rights", denied);
}

void* page() { return mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

// Messages that do not fit their receives.
void add_message_cases(Cases& cases) {
  for (const auto& [name, opcode] : {std::pair("send", IBV_WR_SEND), {"send_imm", IBV_WR_SEND_WITH_IMM}}) {
    for (const auto& [size, length] : {std::pair("", kReceive + 1), {"_by_far", kLong}}) {
      Failing what;
      what.status = IBV_WC_REM_INV_REQ_ERR;
      what.receive = IBV_WC_LOC_LEN_ERR;
      what.add_culprit = [=](Requester& requester) { requester.add(kCulprit, opcode, length); };
      add_case(cases, std::string(name) + "_too_long" + size, what);
    }
  }
  Failing what;
  what.status = IBV_WC_REM_INV_REQ_ERR;
  what.receive = IBV_WC_LOC_LEN_ERR;
  what.add_culprit = [](Requester& requester) { requester.add(kCulprit, IBV_WR_SEND, 1); };
  what.post_receive = [](Responder& responder) { responder.post_receive(2, 0); };
  add_case(cases, "send_no_room", what);

  what = {};
  what.status = IBV_WC_REM_ACCESS_ERR;
  what.event = IBV_EVENT_QP_ACCESS_ERR;
  what.add_culprit = [](Requester& requester) { requester.add(kCulprit, IBV_WR_SEND_WITH_INV, kMessage); };
  add_case(cases, "send_inv_bad_rkey", what);

  what = {};
  what.status = IBV_WC_REM_OP_ERR;
  what.receive = IBV_WC_LOC_PROT_ERR;
  what.add_culprit = [](Requester& requester) { requester.add(kCulprit, IBV_WR_SEND, kMessage); };
  what.post_receive = [](Responder& responder) {
    void* gone = page();
    const ibv_mr* mr = responder.end.reg(gone, 4096, IBV_ACCESS_LOCAL_WRITE);
    responder.end.post_receive(2, {reinterpret_cast<std::uint64_t>(gone), kReceive, mr->lkey});
    mprotect(gone, 4096, PROT_NONE);  // whose place nothing else may take
  };
  add_case(cases, "receive_gone", what);
}

void add_atomic_cases(Cases& cases) {
  for (const auto& [name, opcode] :
       {std::pair("fetch_add", IBV_WR_ATOMIC_FETCH_AND_ADD), {"compare_swap", IBV_WR_ATOMIC_CMP_AND_SWP}}) {
    add_access_cases(cases, name, opcode, 8, IBV_ACCESS_REMOTE_ATOMIC);
    Failing what;
    what.status = IBV_WC_REM_INV_REQ_ERR;
    what.event = IBV_EVENT_QP_REQ_ERR;
    what.add_culprit = [=](Requester& requester) { requester.add(kCulprit, opcode, 8, 131'076); };
    add_case(cases, std::string(name) + "_misaligned", what);
  }
}

// What the requester finds by itself.
void add_local_cases(Cases& cases) {
  const auto add = [&](const char* name, ibv_wc_status status,
                       const std::function<void(Requester&)>& culprit, bool late = false) {
    Failing what;
    what.status = status;
    what.here = true;
    what.late = late;
    what.add_culprit = culprit;
    add_case(cases, name, what);
  };
  for (const auto& [name, opcode] : {std::pair("send_bad_lkey", IBV_WR_SEND),
                                     {"write_bad_lkey", IBV_WR_RDMA_WRITE},
                                     {"read_bad_lkey", IBV_WR_RDMA_READ}}) {
    add(name, IBV_WC_LOC_PROT_ERR, [opcode](Requester& requester) {
      requester.add(kCulprit, opcode, kMessage, 131'072);
      requester.last_sge().lkey ^= 0x5A5A5A00;
    });
  }
  add("send_out_of_bounds", IBV_WC_LOC_PROT_ERR,
      [](Requester& requester) { requester.add(kCulprit, IBV_WR_SEND, kMessage, kSize - 10); });
  add("read_into_constant", IBV_WC_LOC_PROT_ERR, [](Requester& requester) {
    const ibv_mr* constant = requester.end.reg(requester.memory.data(), kSize, 0);
    requester.add(kCulprit, IBV_WR_RDMA_READ, kMessage, 131'072);
    requester.last_sge().lkey = constant->lkey;
  });
  add("send_gone", IBV_WC_LOC_PROT_ERR, [](Requester& requester) {
    void* gone = page();
    const ibv_mr* mr = requester.end.reg(gone, 4096, IBV_ACCESS_LOCAL_WRITE);
    requester.add(kCulprit, IBV_WR_SEND, kMessage);
    requester.last_sge() = {reinterpret_cast<std::uint64_t>(gone), kMessage, mr->lkey};
    mprotect(gone, 4096, PROT_NONE);  // whose place nothing else may take
  });
  for (const auto& [name, opcode, length] : {std::tuple("read_sink_gone", IBV_WR_RDMA_READ, kMessage),
                                             {"fetch_add_sink_gone", IBV_WR_ATOMIC_FETCH_AND_ADD, 8U}}) {
    add(name, IBV_WC_LOC_PROT_ERR, [opcode, length](Requester& requester) {
      void* gone = page();
      const ibv_mr* mr = requester.end.reg(gone, 4096, IBV_ACCESS_LOCAL_WRITE);
      requester.add(kCulprit, opcode, length, 131'072);
      requester.last_sge() = {reinterpret_cast<std::uint64_t>(gone), length, mr->lkey};
      mprotect(gone, 4096, PROT_NONE);
    }, true);
  }
  add("atomic_short_list", IBV_WC_LOC_LEN_ERR,
      [](Requester& requester) { requester.add(kCulprit, IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 131'072); });
  add("invalidate_bad_key", IBV_WC_LOC_PROT_ERR, [](Requester& requester) {
    ibv_send_wr& request = requester.add(kCulprit, IBV_WR_LOCAL_INV, 0);
    request.num_sge = 0;
    request.invalidate_rkey = requester.mr->rkey;
  });
}

// ---- Peers that are not there -----------------------------------------------------------------------------

// `patience`: at least as long the work waits, and not much longer.
void check_gives_up(Requester& requester, ibv_wc_status status, std::chrono::milliseconds patience) {
  const auto began = apps::Clock::now();
  requester.post();
  const auto first = requester.end.sent();
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(apps::Clock::now() - began);
  if (first.wr_id != requester.work.front().wr_id || first.status != status)
    die("request %llu: %s", ull(first.wr_id), ibv_wc_status_str(first.status));
  if (took < patience || took > patience * 3 + std::chrono::seconds(3))
    die("after %lld ms", static_cast<long long>(took.count()));
  for (std::size_t i = 1; i < requester.work.size(); ++i)
    check_flushed(requester.end.sent(), requester.work[i].wr_id);
  check_no_event(requester.end);
  check_dead(requester.end,
             {reinterpret_cast<std::uint64_t>(requester.memory.data()), 16, requester.mr->lkey});
}

Wanted impatient() {
  Wanted wanted;
  wanted.timeout = 10;
  wanted.retries = 1;
  return wanted;
}
constexpr std::chrono::seconds kRetryTime{4};  // the least that uiw gives a connection

void add_absent_cases(Cases& cases) {
  const auto give_up = [](const std::string& host, Line& line) {
    Requester requester(host, impatient());
    requester.end.connect(line);
    requester.exposed = line.hear<Exposed>();
    requester.add(kCulprit, IBV_WR_RDMA_WRITE, 4000);
    requester.add_later();
    check_gives_up(requester, IBV_WC_RETRY_EXC_ERR, kRetryTime);
    line.meet('d');
  };
  cases["retry_no_queue_pair"] = {give_up, [](const std::string& host, Line& line) {
                                    std::optional<End> end(std::in_place, host, Wanted{});
                                    line.say(end->place());
                                    line.hear<Place>();
                                    end.reset();
                                    line.say(Exposed{});
                                    line.meet('d');
                                  }};
  cases["retry_no_rtr"] = {give_up, [](const std::string& host, Line& line) {
                             End end(host, {});
                             end.to_init();
                             line.say(end.place());
                             line.hear<Place>();
                             line.say(Exposed{});
                             line.meet('d');
                             check_no_event(end);
                             check_state(end, IBV_QPS_INIT);
                           }};
  cases["retry_other_peer"] = {give_up, [](const std::string& host, Line& line) {
                                 End end(host, {}), other(host, {});
                                 end.to_init();
                                 line.say(end.place());
                                 line.hear<Place>();
                                 end.to_rtr(other.place());
                                 end.to_rts();
                                 line.say(Exposed{});
                                 line.meet('d');
                                 check_no_event(end);
                                 check_state(end, IBV_QPS_RTS);
                               }};
  cases["flush_by_modify"] = {
      [](const std::string& host, Line& line) {
        Requester requester(host, {});
        requester.end.connect(line);
        requester.exposed = line.hear<Exposed>();
        requester.add(kCulprit, IBV_WR_RDMA_READ, kLong, 131'072);
        requester.add_later();
        requester.add(24, IBV_WR_RDMA_READ, kLong, 131'072);
        line.hear<char>();
        requester.post();
        requester.end.to_error();
        bool flushed = false;
        for (const ibv_send_wr& request : requester.work) {
          const ibv_wc wc = requester.end.sent();
          flushed = flushed || wc.status != IBV_WC_SUCCESS;
          if (flushed) check_flushed(wc, request.wr_id);
        }
        check_no_event(requester.end);
        check_dead(requester.end,
                   {reinterpret_cast<std::uint64_t>(requester.memory.data()), 16, requester.mr->lkey});
        line.meet('d');
        line.meet('e');
      },
      [](const std::string& host, Line& line) {
        Responder responder(host, {});
        responder.end.connect(line);
        line.say(responder.exposed());
        line.say('g');
        line.meet('d');
        check_no_event(responder.end, 100);
        check_state(responder.end,
                    IBV_QPS_RTS);  // as on InfiniBand it learns nothing until it needs its peer
        line.meet('e');
      }};
}

// The peer has a receive for the first Send, and none for the second.
void add_rnr_cases(Cases& cases) {
  for (const bool others : {false, true}) {
    cases[others ? "rnr_behind_a_write" : "rnr"] = {
        [=](const std::string& host, Line& line) {
          const char* rule = std::getenv("UIW_COMPLETION");
          const bool local = rule != nullptr && std::strcmp(rule, "local") == 0;
          Wanted wanted;
          wanted.rnr_retries = 1;
          Requester requester(host, wanted);
          requester.end.connect(line);
          requester.exposed = line.hear<Exposed>();
          if (others) requester.add(1, IBV_WR_RDMA_WRITE, 4000);
          requester.add(2, IBV_WR_SEND, kMessage);
          if (others) requester.add(3, IBV_WR_RDMA_WRITE, 4000, 8192);
          requester.add(kCulprit, IBV_WR_SEND, kMessage);
          requester.add_later();
          const auto began = apps::Clock::now();
          requester.post();
          Failing what;
          what.status = IBV_WC_RNR_RETRY_EXC_ERR;
          check_sent(requester, what, local);
          if (apps::Clock::now() - began < std::chrono::seconds(1)) die("too soon");
          check_dead(requester.end,
                     {reinterpret_cast<std::uint64_t>(requester.memory.data()), 16, requester.mr->lkey});
          line.meet('d');
        },
        [](const std::string& host, Line& line) {
          Responder responder(host, {});
          responder.end.connect(line);
          responder.post_receive(1);
          line.say(responder.exposed());
          const ibv_wc wc = responder.end.received();
          if (wc.wr_id != 1 || wc.status != IBV_WC_SUCCESS)
            die("the first Send: %s", ibv_wc_status_str(wc.status));
          line.meet('d');
          check_no_event(responder.end);
          check_state(responder.end, IBV_QPS_RTS);
        }};
  }
}

}  // namespace

int main(int argc, char** argv) {
  Cases cases;
  add_access_cases(cases, "write", IBV_WR_RDMA_WRITE, kMessage, IBV_ACCESS_REMOTE_WRITE);
  add_access_cases(cases, "long_write", IBV_WR_RDMA_WRITE, kLong, IBV_ACCESS_REMOTE_WRITE);
  add_access_cases(cases, "write_imm", IBV_WR_RDMA_WRITE_WITH_IMM, kMessage, IBV_ACCESS_REMOTE_WRITE);
  add_access_cases(cases, "read", IBV_WR_RDMA_READ, kMessage, IBV_ACCESS_REMOTE_READ);
  add_atomic_cases(cases);
  add_message_cases(cases);
  add_local_cases(cases);
  add_absent_cases(cases);
  add_rnr_cases(cases);
  return apps::manual::run_case(argc, argv, cases);
}
