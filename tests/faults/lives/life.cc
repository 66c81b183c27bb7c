// SPDX-License-Identifier: MIT
#include "tests/faults/lives/life.h"

#include <arpa/inet.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>

namespace faults {

void give_back(const char* what, const std::function<int()>& call) {
  errno = 0;
  const int error = call();
  if (error == 0) return;
  g_not_given_back.push_back({what, error > 0 ? error : errno});
  if (call() != 0) g_not_given_back.push_back({std::string(what) + " once more", errno});
}

std::vector<std::string> life_names() { return {"manual", "cm", "objects", "datagram"}; }

std::unique_ptr<Life> new_life(const std::string& name) {
  if (name == "manual") return new_manual_life();
  if (name == "cm") return new_cm_life();
  if (name == "objects") return new_objects_life();
  if (name == "datagram") return new_datagram_life();
  return nullptr;
}

// ---- The adapter ----

bool Rnic::open(ibv_device* device) {
  context_ = Owned<ibv_context> FAULTS_OWN(ibv_open_device, ibv_close_device, device);
  ibv_gid wanted{};
  inet_pton(AF_INET6, "::ffff:127.0.0.1", wanted.raw);
  ibv_port_attr port{};
  must_be_0(ibv_query_port(context_.get(), 1, &port), "ibv_query_port");
  for (gid_index_ = 0; gid_index_ < port.gid_tbl_len; ++gid_index_) {
    must(ibv_query_gid(context_.get(), 1, gid_index_, &gid_) == 0, "ibv_query_gid");
    if (std::memcmp(gid_.raw, wanted.raw, sizeof wanted.raw) == 0) return true;
  }
  return false;
}

Rnic::Rnic() {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  must(list != nullptr, "ibv_get_device_list");
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> freed(list, ibv_free_device_list);
  errno = ENODEV;
  const auto named = [](ibv_device* one) { return std::strcmp(ibv_get_device_name(one), "uiw_lo") == 0; };
  ibv_device** const found = std::find_if(list, list + count, named);
  must(found != list + count, "no device");
  must(open(*found), "no GID of 127.0.0.1");
  pd_ = Owned<ibv_pd> FAULTS_OWN(ibv_alloc_pd, ibv_dealloc_pd, context_.get());
}

Region::Region(ibv_pd* pd, std::size_t size)
    : octets(size),
      mr
      FAULTS_OWN(ibv_reg_mr, ibv_dereg_mr, pd, octets.data(), size,
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) {
}

ibv_sge Region::sge(std::uint32_t length) const {
  return {reinterpret_cast<std::uintptr_t>(octets.data()), length, mr->lkey};
}

// ---- Completions ----

Completions::Completions(ibv_context* context)
    : channel_ FAULTS_OWN(ibv_create_comp_channel, ibv_destroy_comp_channel, context),
      cq_ FAULTS_OWN(ibv_create_cq, ibv_destroy_cq, context, 64, nullptr, channel_.get(), 0) {}

bool Completions::sleep(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  pollfd ready{channel_->fd, POLLIN, 0};
  if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) <= 0) return false;
  ibv_cq* which = nullptr;
  void* context = nullptr;
  must(ibv_get_cq_event(channel_.get(), &which, &context) == 0, "ibv_get_cq_event");
  ibv_ack_cq_events(which, 1);
  return true;
}

bool Completions::next(ibv_wc& wc, Clock::duration patience) {
  const auto end = Clock::now() + patience;
  for (;;) {
    int count = ibv_poll_cq(cq(), 1, &wc);
    must(count >= 0, "ibv_poll_cq");
    if (count == 1) return true;
    must_be_0(ibv_req_notify_cq(cq(), 0), "ibv_req_notify_cq");
    count = ibv_poll_cq(cq(), 1, &wc);
    must(count >= 0, "ibv_poll_cq");
    if (count == 1) return true;
    if (!sleep(end)) return false;
  }
}

// ---- Traffic ----

ibv_qp_init_attr queue_pair_attributes(ibv_cq* cq, ibv_srq* srq) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = cq;
  attributes.srq = srq;
  attributes.cap = {16, 16, 2, 2, 64};
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  return attributes;
}

void post_receive(ibv_qp* qp, const Region& region, std::uint64_t id) {
  ibv_sge sge = region.sge(static_cast<std::uint32_t>(region.octets.size()));
  ibv_recv_wr request{};
  request.wr_id = id;
  request.sg_list = &sge;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  must_be_0(ibv_post_recv(qp, &request, &bad), "ibv_post_recv");
}

namespace {

constexpr std::uint64_t kReceive = 100;

struct Step {
  ibv_wr_opcode opcode;
  std::uint32_t size;
};
constexpr std::array<Step, 6> kSteps{{{IBV_WR_SEND, 30},
                                      {IBV_WR_SEND, 20'000},
                                      {IBV_WR_RDMA_WRITE, 40'000},
                                      {IBV_WR_RDMA_READ, 40'000},
                                      {IBV_WR_ATOMIC_FETCH_AND_ADD, 8},
                                      {IBV_WR_SEND, 1}}};

void post(ibv_qp* qp, const Step& step, std::uint64_t id, const Region& near, const Region& far) {
  ibv_sge sge = near.sge(step.size);
  ibv_send_wr request{};
  request.wr_id = id;
  request.opcode = step.opcode;
  request.sg_list = &sge;
  request.num_sge = 1;
  const auto remote = reinterpret_cast<std::uintptr_t>(far.octets.data());
  if (step.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    request.wr.atomic.remote_addr = remote;
    request.wr.atomic.rkey = far.mr->rkey;
    request.wr.atomic.compare_add = 1;
  } else {
    request.wr.rdma.remote_addr = remote;
    request.wr.rdma.rkey = far.mr->rkey;
  }
  ibv_send_wr* bad = nullptr;
  must_be_0(ibv_post_send(qp, &request, &bad), "ibv_post_send");
}

// What completes, by wr_id; in the end every one of `wanted`.
void await(Completions& completions, std::set<std::uint64_t> wanted) {
  while (!wanted.empty()) {
    ibv_wc wc{};
    if (!completions.next(wc)) throw Trouble{"no completion comes for " + std::to_string(*wanted.begin()), ETIME};
    if (wc.status != IBV_WC_SUCCESS) throw Trouble{std::string("completion: ") + ibv_wc_status_str(wc.status), 0};
    wanted.erase(wc.wr_id);
  }
}

}  // namespace

void exchange(ibv_qp* a, ibv_qp* b, Completions& completions, Region& near, Region& far) {
  std::uint8_t number = 1;
  for (const Step& step : kSteps) {
    std::fill(near.octets.begin(), near.octets.end(), number);
    // A Write may complete before its octets are placed; the Read behind it brings them back.
    const bool is_read = step.opcode == IBV_WR_RDMA_READ;
    if (!is_read) std::fill(far.octets.begin(), far.octets.end(), static_cast<std::uint8_t>(number + 100));
    const bool is_send = step.opcode == IBV_WR_SEND;
    if (is_send) post_receive(b, far, kReceive);
    post(a, step, number, near, far);
    await(completions, is_send ? std::set<std::uint64_t>{number, kReceive} : std::set<std::uint64_t>{number});
    const auto wanted = static_cast<std::uint8_t>(is_read ? number - 1 : number);
    const auto is_wanted = [wanted](std::uint8_t octet) { return octet == wanted; };
    const std::vector<std::uint8_t>& to = is_read ? near.octets : far.octets;
    if ((is_read || is_send) && !std::all_of(to.begin(), to.begin() + step.size, is_wanted))
      throw Trouble{"other octets have come", 0};
    ++number;
  }
}

}  // namespace faults
