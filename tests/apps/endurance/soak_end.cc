// SPDX-License-Identifier: MIT
// How do connections of the soak come and go?
#include "tests/apps/endurance/soak_end.h"

namespace apps::soak {

namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                        IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
constexpr std::uint32_t kDepth = 2 * kMost + 2, kLeftOver = 2;
constexpr int kEntries = kSlots * 2 * static_cast<int>(kDepth);

std::uint64_t octets_of(std::uint64_t seed, std::uint64_t word) { return (seed + word) * 0x9E3779B97F4A7C15; }

Manners manners() {
  Manners manners;
  manners.timeout = 24;  // with seven retries, some 9 minutes
  return manners;
}

}  // namespace

void Memory::fill(std::uint64_t offset, std::uint64_t seed, std::uint32_t length) {
  std::uint64_t word = 0;
  unsigned char* to = at(offset);
  for (; length >= 8; length -= 8, to += 8) {
    const std::uint64_t value = octets_of(seed, word++);
    std::memcpy(to, &value, 8);
  }
  const std::uint64_t value = octets_of(seed, word);
  std::memcpy(to, &value, length);
}

bool Memory::holds(std::uint64_t offset, std::uint64_t seed, std::uint32_t length) const {
  std::uint64_t word = 0, differences = 0;
  const unsigned char* from = octets_.data() + offset;
  for (; length >= 8; length -= 8, from += 8) {
    std::uint64_t value;
    std::memcpy(&value, from, 8);
    differences |= value ^ octets_of(seed, word++);
  }
  const std::uint64_t value = octets_of(seed, word);
  return differences == 0 && std::memcmp(from, &value, length) == 0;
}

// ---- Domain ----------------------------------------------------------------------------------------------------

Domain::Domain(ibv_context* context, Memory& memory, bool sleeps)
    : context_(context),
      memory_(memory),
      pd_(made("ibv_alloc_pd", ibv_alloc_pd(context))),
      channel_(sleeps ? made("ibv_create_comp_channel", ibv_create_comp_channel(context)) : nullptr),
      cq_(made("ibv_create_cq", ibv_create_cq(context, kEntries, nullptr, channel_, 0))) {
  ibv_srq_init_attr shared{};
  shared.attr.max_wr = Memory::kReceives;
  shared.attr.max_sge = 1;
  srq_ = made("ibv_create_srq", ibv_create_srq(pd_, &shared));
  region_ = reg();
}

Domain::~Domain() {
  good("ibv_dereg_mr", ibv_dereg_mr(region_));
  good("ibv_destroy_srq", ibv_destroy_srq(srq_));
  good("ibv_destroy_cq", ibv_destroy_cq(cq_));
  if (channel_ != nullptr) good("ibv_destroy_comp_channel", ibv_destroy_comp_channel(channel_));
  good("ibv_dealloc_pd", ibv_dealloc_pd(pd_));
}

ibv_mr* Domain::reg() const { return apps::reg(pd_, memory_.at(0), Memory::kSize, kAccess); }

ibv_qp_init_attr Domain::attributes(bool shared) const {
  Capacity capacity;
  capacity.send_wr = capacity.recv_wr = kDepth;
  capacity.inline_data = kInline;
  ibv_qp_init_attr attributes = qp_attributes(capacity);
  attributes.send_cq = attributes.recv_cq = cq_;
  attributes.srq = shared ? srq_ : nullptr;
  return attributes;
}

bool Domain::poll(ibv_wc& wc) const {
  const int count = ibv_poll_cq(cq_, 1, &wc);
  if (count < 0) die("ibv_poll_cq: %d", count);
  return count == 1;
}

void Domain::arm() const { good("ibv_req_notify_cq", ibv_req_notify_cq(cq_, 0)); }

void Domain::take_event() const {
  ibv_cq* which = nullptr;
  void* context = nullptr;
  good("ibv_get_cq_event", ibv_get_cq_event(channel_, &which, &context));
  if (which != cq_) die("ibv_get_cq_event tells of another CQ");
  ibv_ack_cq_events(cq_, 1);
}

// ---- Connections -----------------------------------------------------------------------------------------------

Connections::Connections(const std::string& host, bool calls, manual::Line& line, Memory& memory, bool sleeps)
    : host_(host),
      calls_(calls),
      sleeps_(sleeps),
      line_(line),
      memory_(memory),
      rnic_(host),
      by_hand_(rnic_.context(), memory, sleeps) {
  if (calls) {
    port_ = std::to_string(line.hear<int>());
    return;
  }
  listener_ = create_ep(host, "0", RAI_PASSIVE);
  good("rdma_listen", rdma_listen(listener_, 4));
  line.say<int>(ntohs(rdma_get_src_port(listener_)));
}

Connections::~Connections() {
  if (listener_ != nullptr) rdma_destroy_ep(listener_);
}

Domain& Connections::domain_of(ibv_context* context) {
  if (!by_cm_) by_cm_ = std::make_unique<Domain>(context, memory_, sleeps_);
  if (by_cm_->context() != context) die("rdma_cm has another context for the same address");
  return *by_cm_;
}

void Connections::connect(const Step& step) {
  Connection& connection = slots_[step.slot];
  connection = {};
  connection.shared = step.shared;
  step.manual ? connect_by_hand(connection) : connect_by_cm(connection);
  connection.window = made("ibv_alloc_mw", ibv_alloc_mw(connection.domain->pd(), IBV_MW_TYPE_2));
  introduce(connection);
  g_open.add();
}

// Each learns where the memory of the other one is.
void Connections::introduce(Connection& connection) {
  line_.say(Introduction{{}, memory_.address(), connection.domain->region()->rkey});
  const auto peer = line_.hear<Introduction>();
  connection.peer = peer.address;
  connection.standing = peer.rkey;
}

void Connections::connect_by_hand(Connection& connection) {
  connection.domain = &by_hand_;
  ibv_qp_init_attr attributes = by_hand_.attributes(connection.shared);
  connection.qp = made("ibv_create_qp", ibv_create_qp(by_hand_.pd(), &attributes));
  to_init(connection.qp, manners());
  line_.say(Place{connection.qp->qp_num, 0, rnic_.gid()});
  to_rtr(connection.qp, rnic_, line_.hear<Place>(), manners());
  to_rts(connection.qp, 0, manners());
}

void Connections::connect_by_cm(Connection& connection) {
  rdma_cm_id* id = nullptr;
  if (calls_) {
    id = create_ep(host_, port_, 0);
  } else {
    good("rdma_get_request", rdma_get_request(listener_, &id));
  }
  connection.id = id;
  connection.domain = &domain_of(id->verbs);
  ibv_qp_init_attr attributes = connection.domain->attributes(connection.shared);
  good("rdma_create_qp", rdma_create_qp(id, connection.domain->pd(), &attributes));
  connection.qp = id->qp;
  rdma_conn_param parameters = connection_parameters();
  if (calls_)
    good("rdma_connect", rdma_connect(id, &parameters));
  else
    good("rdma_accept", rdma_accept(id, &parameters));
}

// Of a queue pair that has ended, the receives that are left over have their completions.
void Connections::drain(Connection& connection) {
  for (std::uint32_t i = 0; i < kLeftOver; ++i) {
    const ibv_wc wc = next();
    if (wc.qp_num != connection.qp->qp_num || wc.wr_id != i || wc.status != IBV_WC_WR_FLUSH_ERR)
      die("behind the end of QP %u: request %llu of QP %u: %s", connection.qp->qp_num, ull(wc.wr_id), wc.qp_num,
          ibv_wc_status_str(wc.status));
  }
}

void Connections::end(const Step& step) {
  Connection& connection = slots_[step.slot];
  const bool destroys = step.ending == (calls_ ? Ending::by_caller : Ending::by_listener);
  const bool sees_flush = !connection.shared && !destroys;
  if (!connection.shared)
    for (std::uint32_t i = 0; i < kLeftOver; ++i)
      post_receive(connection.qp, {{memory_.address() + Memory::kIn, 64, connection.domain->region()->lkey}}, i);
  if (!destroys && connection.id == nullptr) to_state(connection.qp, IBV_QPS_ERR);
  if (step.ending == Ending::ordered && connection.id != nullptr)
    good("rdma_disconnect", rdma_disconnect(connection.id));
  // A queue pair of rdma_cm whose peer is destroyed goes into error by itself.
  if (sees_flush) drain(connection);
  good("ibv_dealloc_mw", ibv_dealloc_mw(connection.window));
  if (connection.id != nullptr)
    rdma_destroy_ep(connection.id);
  else
    good("ibv_destroy_qp", ibv_destroy_qp(connection.qp));
  connection = {};
  g_open.remove();
}

bool Connections::poll(ibv_wc& wc) { return by_hand_.poll(wc) || (by_cm_ && by_cm_->poll(wc)); }

ibv_wc Connections::next() {
  const auto end = Clock::now() + kLong;
  ibv_wc wc{};
  while (!poll(wc)) {
    if (Clock::now() > end) die("no completion in time");
    if (!sleeps_) {
      sched_yield();
      continue;
    }
    by_hand_.arm();
    if (by_cm_) by_cm_->arm();
    if (poll(wc)) break;  // what came in between
    sleep();
  }
  return wc;
}

void Connections::sleep() {
  pollfd channels[2] = {{by_hand_.channel()->fd, POLLIN, 0}, {by_cm_ ? by_cm_->channel()->fd : -1, POLLIN, 0}};
  ::poll(channels, 2, 1000);
  if ((channels[0].revents & POLLIN) != 0) by_hand_.take_event();
  if ((channels[1].revents & POLLIN) != 0) by_cm_->take_event();
}

}  // namespace apps::soak
