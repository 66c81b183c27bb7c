// SPDX-License-Identifier: MIT
// Extended completion queues, their timestamps, resize, moderation and overrun, and parent domains, over a connection
// of stock librdmacm. Both ends are in this process.
//
//   uiw_queues HOST PORT CASE     runs one case; --list names them
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "tests/apps/support/pair.h"

namespace {

using apps::die;
using apps::g_host;
using apps::g_port;
using apps::good;
using apps::made;

constexpr std::uint32_t kDepth = 512;
constexpr std::size_t kSize = 4096;
constexpr int kLocal = IBV_ACCESS_LOCAL_WRITE;  // the macro ibv_reg_mr wants an integer

struct Wanted {
  int entries = 1024;
  std::uint64_t fields = IBV_WC_STANDARD_FLAGS;
  bool channel = false;
  bool parent = false;
};

// One end: an id with a queue pair on completion queues of its own.
struct End {
  std::optional<apps::Endpoint> end;
  rdma_cm_id* id = nullptr;
  ibv_pd* pd = nullptr;
  ibv_td* td = nullptr;
  ibv_pd* parent = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq_ex* receives = nullptr;
  ibv_cq* sends = nullptr;
  ibv_mr* mr = nullptr;
  std::vector<char> memory = std::vector<char>(kSize);

  End() = default;
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  void furnish(apps::Endpoint taken, const Wanted& wanted) {
    id = end.emplace(std::move(taken)).id();
    ibv_context* context = id->verbs;
    pd = parent = made("ibv_alloc_pd", ibv_alloc_pd(context));
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = static_cast<std::uint32_t>(wanted.entries);
    attributes.wc_flags = wanted.fields;
    attributes.cq_context = this;
    if (wanted.parent) {
      ibv_td_init_attr td_attributes{};
      td = made("ibv_alloc_td", ibv_alloc_td(context, &td_attributes));
      ibv_parent_domain_init_attr domain{};
      domain.pd = pd;
      domain.td = td;
      parent = made("ibv_alloc_parent_domain", ibv_alloc_parent_domain(context, &domain));
      attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
      attributes.parent_domain = parent;
    }
    if (wanted.channel) attributes.channel = channel = made("channel", ibv_create_comp_channel(context));
    receives = made("ibv_create_cq_ex", ibv_create_cq_ex(context, &attributes));
    sends = made("ibv_create_cq", ibv_create_cq(context, 2 * kDepth, nullptr, nullptr, 0));
    mr = made("ibv_reg_mr", ibv_reg_mr(parent, memory.data(), kSize,
                                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
    ibv_qp_init_attr qp = apps::qp_attributes({kDepth, kDepth, 1, 1, 16});
    qp.send_cq = sends;
    qp.recv_cq = ibv_cq_ex_to_cq(receives);
    good("rdma_create_qp", rdma_create_qp(id, parent, &qp));
  }
  ~End() {
    rdma_destroy_qp(id);
    good("ibv_destroy_cq", ibv_destroy_cq(ibv_cq_ex_to_cq(receives)));
    good("ibv_destroy_cq", ibv_destroy_cq(sends));
    if (channel != nullptr) good("ibv_destroy_comp_channel", ibv_destroy_comp_channel(channel));
    good("ibv_dereg_mr", ibv_dereg_mr(mr));
    if (td != nullptr) {
      good("ibv_dealloc_pd", ibv_dealloc_pd(parent));
      good("ibv_dealloc_td", ibv_dealloc_td(td));
    }
    good("ibv_dealloc_pd", ibv_dealloc_pd(pd));
  }
  ibv_cq* receive_cq() const { return ibv_cq_ex_to_cq(receives); }

  void post_receive(std::uint64_t number) {
    apps::post_receive(id->qp, {{apps::number(memory.data()), kSize, mr->lkey}}, number);
  }
  // Unsignaled but for every 16th.
  int post(ibv_wr_opcode opcode, std::uint64_t number, std::uint32_t length, const End* peer = nullptr) {
    apps::SendRequest request(opcode, {apps::number(memory.data()), length, mr->lkey}, number,
                              number % 16 == 15 ? IBV_SEND_SIGNALED : 0);
    if (peer != nullptr)
      request.immediate(htobe32(static_cast<std::uint32_t>(number)))
          .at(apps::number(peer->memory.data()), peer->mr->rkey);
    return request.try_post(id->qp);
  }
  void send_all(std::uint64_t count) {
    for (std::uint64_t number = 0; number < count;) {
      const int error = post(IBV_WR_SEND, number, 16);
      ibv_wc wc[16];
      const int done = ibv_poll_cq(sends, 16, wc);
      for (int i = 0; i < done; ++i)
        if (wc[i].status != IBV_WC_SUCCESS) die("a send: %s", ibv_wc_status_str(wc[i].status));
      if (error == 0) {
        ++number;
      } else if (error != ENOMEM) {
        good("ibv_post_send", error);
      } else {
        sched_yield();
      }
    }
  }
};

struct Pair {
  apps::Listener listener{apps::create_ep(g_host, g_port, RAI_PASSIVE)};
  End near, far;

  explicit Pair(const Wanted& wanted) {
    near.furnish(apps::Endpoint(apps::create_ep(g_host, g_port, 0)), wanted);
    std::thread caller([this] { apps::connect(*near.end); });
    far.furnish(listener.request(), wanted);
    for (std::uint64_t number = 0; number < kDepth; ++number) far.post_receive(number);
    apps::accept(*far.end);
    caller.join();
  }
  ~Pair() { apps::disconnect(*near.end, *far.end); }
};

// The next batch of an extended poll, each given to `take`; false if none came in time.
bool poll_batch(ibv_cq_ex* cq, const std::function<void()>& take) {
  ibv_poll_cq_attr attributes{};
  const auto end = apps::Clock::now() + apps::kPatience;
  int error;
  while ((error = ibv_start_poll(cq, &attributes)) == ENOENT) {
    if (apps::Clock::now() > end) return false;
    sched_yield();
  }
  good("ibv_start_poll", error);
  do {
    take();
    error = ibv_next_poll(cq);
  } while (error == 0);
  ibv_end_poll(cq);
  if (error != ENOENT) good("ibv_next_poll", error);
  return true;
}

std::uint64_t raw_clock(ibv_context* context) {
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  good("ibv_query_rt_values_ex", ibv_query_rt_values_ex(context, &values));
  return static_cast<std::uint64_t>(values.raw_clock.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(values.raw_clock.tv_nsec);
}

void extended() {
  Wanted wanted;
  wanted.fields |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  Pair pair(wanted);
  ibv_cq_ex* cq = pair.far.receives;
  std::uint64_t before = raw_clock(pair.far.id->verbs);
  const auto wall = [] {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count());
  };
  constexpr std::uint64_t kCount = 300;
  constexpr std::uint64_t kMinute = 60'000'000'000;
  std::uint64_t received = 0;
  const auto take = [&] {
    const bool immediate = received % 3 == 2;
    if (cq->status != IBV_WC_SUCCESS) die("status %s", ibv_wc_status_str(cq->status));
    if (cq->wr_id != received) die("wr_id %lu, not %lu", cq->wr_id, received);
    if (ibv_wc_read_opcode(cq) != (immediate ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV)) die("opcode");
    if (ibv_wc_read_byte_len(cq) != received + 1) die("byte_len %u", ibv_wc_read_byte_len(cq));
    if (ibv_wc_read_qp_num(cq) != pair.far.id->qp->qp_num) die("qp_num");
    if (((ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM) != 0) != immediate) die("wc_flags");
    if (immediate && be32toh(ibv_wc_read_imm_data(cq)) != received) die("imm_data");
    if (ibv_wc_read_vendor_err(cq) != 0 || ibv_wc_read_slid(cq) != 0 || ibv_wc_read_sl(cq) != 0) die("other fields");
    const std::uint64_t stamp = ibv_wc_read_completion_ts(cq);
    if (stamp < before || stamp > raw_clock(pair.far.id->verbs)) die("a timestamp out of order");
    before = stamp;
    const std::uint64_t now = wall(), then = ibv_wc_read_completion_wallclock_ns(cq);
    if (then > now + kMinute || then + kMinute < now) die("wall clock %lu at %lu", then, now);
    ++received;
  };
  for (std::uint64_t number = 0; number < kCount; ++number) {
    const bool immediate = number % 3 == 2;
    good("ibv_post_send", pair.near.post(immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND, number,
                                         static_cast<std::uint32_t>(number) + 1, immediate ? &pair.far : nullptr));
    if (number % 5 == 0)
      if (!poll_batch(cq, take)) die("no completion in time");
  }
  while (received < kCount)
    if (!poll_batch(cq, take)) die("no completion in time");
  // A plain poll takes from the same queue.
  good("ibv_post_send", pair.near.post(IBV_WR_SEND, 0, 7));
  ibv_wc wc{};
  if (!apps::Endpoint::completion(pair.far.receive_cq(), nullptr, false, wc)) die("no completion in time");
  if (wc.wr_id != kCount || wc.byte_len != 7) die("the completion of a plain poll");
}

void resized() {
  Wanted wanted;
  wanted.parent = false;
  Pair pair(wanted);
  constexpr std::uint64_t kCount = 20'000;
  std::thread sender([&] { pair.near.send_all(kCount); });
  std::atomic<bool> done{false};
  std::thread resizer([&] {
    for (int i = 0; !done; ++i) {
      const int size = i % 2 == 0 ? 4096 : static_cast<int>(kDepth);
      good("ibv_resize_cq", ibv_resize_cq(pair.far.receive_cq(), size));
      sched_yield();
    }
  });
  std::uint64_t received = 0;
  while (received < kCount) {
    const bool came = poll_batch(pair.far.receives, [&] {
      if (pair.far.receives->status != IBV_WC_SUCCESS) die("%s", ibv_wc_status_str(pair.far.receives->status));
      if (pair.far.receives->wr_id != received) die("out of order");
      pair.far.post_receive(received + kDepth);
      ++received;
    });
    if (!came) die("%lu completions of %lu", received, kCount);
  }
  done = true;
  sender.join();
  resizer.join();
}

void moderated() {
  Wanted wanted;
  wanted.channel = true;
  Pair pair(wanted);
  ibv_cq* cq = pair.far.receive_cq();
  ibv_modify_cq_attr change{};
  change.attr_mask = IBV_CQ_ATTR_MODERATE;
  change.moderate = {64, 10'000};
  good("ibv_modify_cq", ibv_modify_cq(cq, &change));
  constexpr std::uint64_t kCount = 5000;
  std::thread sender([&] { pair.near.send_all(kCount); });
  std::uint64_t received = 0, events = 0;
  while (received < kCount) {
    ibv_wc wc[64];
    good("ibv_req_notify_cq", ibv_req_notify_cq(cq, 0));
    int count;
    while ((count = ibv_poll_cq(cq, 64, wc)) > 0) {
      for (int i = 0; i < count; ++i) {
        if (wc[i].status != IBV_WC_SUCCESS || wc[i].wr_id != received) die("completion %lu", received);
        pair.far.post_receive(received + kDepth);
        ++received;
      }
    }
    if (received == kCount) break;
    pollfd ready{pair.far.channel->fd, POLLIN, 0};
    if (poll(&ready, 1, 30'000) != 1) die("no event after %lu completions", received);
    ibv_cq* which = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(pair.far.channel, &which, &context) != 0 || which != cq || context != &pair.far) die("event");
    ibv_ack_cq_events(cq, 1);
    ++events;
  }
  sender.join();
  // The last event may be under way, unread; it need not be.
  if (events == 0 || events > kCount / 8) die("%lu events for %lu completions", events, kCount);
}

ibv_event_type next_event(ibv_context* context, void** element) {
  pollfd ready{context->async_fd, POLLIN, 0};
  if (poll(&ready, 1, 30'000) != 1) die("no async event");
  ibv_async_event event{};
  good("ibv_get_async_event", ibv_get_async_event(context, &event));
  if (std::strcmp(ibv_event_type_str(event.event_type), "unknown") == 0) die("an event without a name");
  *element = event.element.qp;
  std::printf("%s\n", ibv_event_type_str(event.event_type));
  ibv_ack_async_event(&event);
  return event.event_type;
}

void overrun() {
  Wanted wanted;
  wanted.entries = 16;
  Pair pair(wanted);
  const int room = pair.far.receives->cqe;
  // Nobody polls at the far end.
  for (int number = 0; number <= room; ++number) good("ibv_post_send", pair.near.post(IBV_WR_SEND, 1, 16));
  // Both ends have the same context: CQ error, the far queue pair, and the near one by a Terminate.
  void* element = nullptr;
  bool queue = false, far = false, near = false;
  while (!queue || !far || !near) {
    const ibv_event_type type = next_event(pair.far.id->verbs, &element);
    if (type == IBV_EVENT_CQ_ERR && element == pair.far.receive_cq() && !queue) {
      queue = true;
    } else if (type == IBV_EVENT_QP_FATAL && element == pair.far.id->qp && queue) {
      far = true;
    } else if (type == IBV_EVENT_QP_FATAL && element == pair.near.id->qp) {
      near = true;
    } else {
      die("another event");
    }
  }
  apps::expect(apps::query(pair.far.id->qp, IBV_QP_STATE).qp_state == IBV_QPS_ERR, "it is not in error");
  // What fitted is intact.
  ibv_wc wc{};
  for (int number = 0; number < room; ++number) {
    if (ibv_poll_cq(pair.far.receive_cq(), 1, &wc) != 1) die("%d completions of %d", number, room);
    if (wc.status != IBV_WC_SUCCESS || wc.wr_id != static_cast<std::uint64_t>(number) || wc.byte_len != 16)
      die("completion %d: %s", number, ibv_wc_status_str(wc.status));
  }
}

void parent_domain() {
  Wanted wanted;
  wanted.parent = true;
  Pair pair(wanted);
  constexpr std::uint64_t kCount = 1000;
  std::thread sender([&] { pair.near.send_all(kCount); });
  std::uint64_t received = 0;
  while (received < kCount) {
    const bool came = poll_batch(pair.far.receives, [&] {
      if (pair.far.receives->status != IBV_WC_SUCCESS) die("%s", ibv_wc_status_str(pair.far.receives->status));
      pair.far.post_receive(received++ + kDepth);
    });
    if (!came) die("%lu completions of %lu", received, kCount);
  }
  sender.join();
  // Memory of the protection domain itself serves as well.
  ibv_mr* mr = made("ibv_reg_mr", ibv_reg_mr(pair.near.pd, pair.near.memory.data(), kSize, kLocal));
  std::swap(mr, pair.near.mr);
  good("ibv_post_send", pair.near.post(IBV_WR_SEND, 15, 16));
  ibv_wc wc{};
  if (!apps::Endpoint::completion(pair.near.sends, nullptr, false, wc) || wc.status != IBV_WC_SUCCESS) die("a send");
  good("ibv_dereg_mr", ibv_dereg_mr(mr));
}

const apps::Cases kCases = {
    {"extended", extended},           {"moderated", moderated}, {"overrun", overrun},
    {"parent_domain", parent_domain}, {"resized", resized},
};

}  // namespace

int main(int argc, char** argv) { return apps::run_case(argc, argv, kCases); }
