// SPDX-License-Identifier: MIT
#include "provider/verbs/datagram/datagram_qp.h"

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/guarded_copy.h"
#include "base/mutex.h"
#include "provider/connect/qp_port.h"
#include "provider/connect/qp_table.h"
#include "provider/datagram/grh.h"
#include "provider/process/limits.h"
#include "provider/verbs/context.h"
#include "provider/verbs/inventory_source.h"
#include "provider/verbs/qp/qp_attributes.h"
#include "rdmap/scatter_gather.h"

namespace uiw::provider {

namespace {

std::size_t most_octets(const DeviceInfo& device) { return std::size_t{128} << path_mtu_of(device); }

// RoCE has no service levels. mlx5 adapters use the field `sl` of a completion for the kind of packet that has arrived,
// and UCX checks this field.
constexpr std::uint8_t kRoceV2 = 8, kIpv6Packet = kRoceV2 | 1, kIpv4Packet = kRoceV2 | 2;

}  // namespace

std::unique_ptr<DatagramQp> DatagramQp::create(Context& context, Pd& pd, Cq* send_cq, Cq* receive_cq,
                                               ibv_qp_init_attr& attributes, ibv_qp* handle, Srq* srq) {
  if (send_cq == nullptr || receive_cq == nullptr || !grant(attributes.cap, srq == nullptr, Transport::roce)) {
    errno = EINVAL;
    return nullptr;
  }
  install_copy_guard();
  std::unique_ptr<DatagramQp> qp(new DatagramQp(context, pd, *send_cq, *receive_cq, attributes, handle, srq));
  if (qp->take_number()) qp->port_ = DatagramPort::open(context.engine(), port_of(qp->number()));
  if (qp->port_ == nullptr) {
    const int error = errno == EMFILE || errno == ENFILE || errno == EAGAIN || errno == EAFNOSUPPORT ? errno : ENOMEM;
    qp.reset();
    errno = error;
    return nullptr;
  }
  qp->port_->join(*qp);
  return qp;
}

DatagramQp::DatagramQp(Context& context, Pd& pd, Cq& send_cq, Cq& receive_cq, const ibv_qp_init_attr& attributes,
                       ibv_qp* handle, Srq* srq)
    : QueuePair(context, pd, send_cq, receive_cq, attributes, handle, srq),
      sender_(qp_, queues_, attributes.cap, most_octets(context.device())) {}

void DatagramQp::stop() {
  hide_qp(number());
  if (port_ != nullptr) port_->leave(*this);
  {
    const LockGuard lock(groups_mutex_);
    for (const Gid& group : groups_) multicast_->detach(*this, group);
    groups_.clear();
  }
  wait_for_readers();
  const LockGuard receive_lock(receive_);
  queues_.leave_shared();
}

DatagramQp::~DatagramQp() { stop(); }

// ---- States ----------------------------------------------------------------------------------------------------

int DatagramQp::modify(const ibv_qp_attr& attributes, int mask) {
  if (inherited()) return EIO;
  {
    const LockGuard receive_lock(receive_);
    const LockGuard send_lock(send_);
    const ibv_qp_state from = qp_.state.load();
    if ((mask & IBV_QP_CUR_STATE) != 0 && number_in(attributes.cur_qp_state) != from) return EINVAL;
    const int to = (mask & IBV_QP_STATE) != 0 ? number_in(attributes.qp_state) : static_cast<int>(from);
    if (const int error = check_step(from, to, qp_.type, mask); error != 0) return error;
    if (const int error = check_values(*qp_.context, attributes, mask); error != 0) return error;
    copy_attributes(attributes_, attributes, mask);
    if ((mask & IBV_QP_STATE) == 0 || to == static_cast<int>(from)) {
      if (to != IBV_QPS_RESET) return 0;
    }
    switch (to) {
      case IBV_QPS_RESET: reset(); break;
      case IBV_QPS_ERR: enter_error(); return 0;
      default: qp_.state = static_cast<ibv_qp_state>(to); break;
    }
    if (to == IBV_QPS_RTS) send();  // sends what was posted in SQD
    const bool notify = (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0 && attributes.en_sqd_async_notify != 0;
    if (notify) qp_.report(IBV_EVENT_SQ_DRAINED);
    if (to != IBV_QPS_RESET) return 0;
  }
  // This takes the consumer's locks of the completion queues, so the receiver's and the sender's lock were released
  // before: a program that holds a consumer's lock, between ibv_start_poll and ibv_end_poll, may post, which takes the
  // sender's lock.
  queues_.forget_completions();
  return 0;
}

void DatagramQp::reset() {
  queues_.leave_shared();
  queues_.empty();
  attributes_ = {};
  qp_.state = IBV_QPS_RESET;
}

void DatagramQp::enter_error() {
  qp_.state = IBV_QPS_ERR;
  queues_.flush_sends(std::nullopt, rdmap::Status::flushed);
  queues_.flush_receives();
}

void DatagramQp::query(ibv_qp_attr& attributes, ibv_qp_init_attr& init) {
  const LockGuard lock(send_);
  attributes = attributes_;
  attributes.qp_state = attributes.cur_qp_state = qp_.state.load();
  attributes.path_mig_state = IBV_MIG_MIGRATED;
  attributes.cap = init_.cap;
  init = init_;
}

void DatagramQp::show(ShownQp& shown, PortCounts&) {
  const LockGuard lock(send_);
  show_identity(qp_, qp_.state.load(), attributes_, shown);
}

void DatagramQp::completion_lost() {
  const LockGuard receive_lock(receive_);
  const LockGuard send_lock(send_);
  if (qp_.state == IBV_QPS_RESET || qp_.state == IBV_QPS_ERR) return;
  enter_error();
  qp_.report(IBV_EVENT_QP_FATAL);
}

// ---- Sending ---------------------------------------------------------------------------------------------------

bool DatagramQp::state_allows_posts() const {
  const ibv_qp_state state = qp_.state.load();
  return state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE || state == IBV_QPS_ERR;
}

// A Send that cannot be sent moves the queue pair to SQE, and the Sends that were posted after it are flushed.
void DatagramQp::send() {
  if (qp_.state == IBV_QPS_RTS && !sender_.send(*port_, attributes_.qkey)) qp_.step(IBV_QPS_RTS, IBV_QPS_SQE);
  if (qp_.state == IBV_QPS_SQE || qp_.state == IBV_QPS_ERR) {
    queues_.flush_sends(std::nullopt, rdmap::Status::flushed);
  }
}

void DatagramQp::may_send() noexcept {
  const LockGuard lock(send_);
  send();
}

// In the child of a fork, this refuses a queue pair of the parent before it touches the queue: the child's copy of the
// socket is closed, another file may have got the descriptor number of that socket, and the queue may be inconsistent,
// since another thread of the parent may have been changing it.
int DatagramQp::post_send(ibv_send_wr* requests, ibv_send_wr** bad) {
  if (inherited()) {
    if (bad != nullptr) *bad = requests;
    return EIO;
  }
  Lock lock(send_);
  int error = !batch_.await_end(lock) || !state_allows_posts() ? EINVAL : 0;
  for (; requests != nullptr && error == 0; requests = requests->next) {
    const std::uint64_t sequence = sends().tail();
    error = !sends().has_room(sequence) ? ENOMEM : requests->wr.ud.ah == nullptr ? EINVAL : 0;
    if (error == 0) error = sender_.build(sequence, *requests);
    if (error != 0) break;
    sends().push();
  }
  if (error != 0 && bad != nullptr) *bad = requests;
  send();
  return error;
}

int DatagramQp::post_bind(ibv_mw&, const ibv_mw_bind&) { return EINVAL; }

void DatagramQp::begin_batch() {
  if (inherited()) {
    batch_.error = EIO;
    return;
  }
  Lock lock(send_);
  batch_.begin(lock, state_allows_posts() ? 0 : EINVAL);
}

void DatagramQp::add(const ibv_send_wr& request) {
  if (batch_.error != 0) return;
  const std::uint64_t sequence = sends().tail() + batch_.size;
  const ReadSection section;
  batch_.error = sends().has_room(sequence) ? sender_.build(sequence, request) : ENOMEM;
  if (batch_.error == 0) ++batch_.size;
}

void DatagramQp::address_last(const ibv_ah* handle, std::uint32_t number, std::uint32_t qkey) {
  if (batch_.error == 0 && batch_.size > 0) {
    sender_.address(sends().tail() + batch_.size - 1, handle, number, qkey);
  }
}

int DatagramQp::end_batch() {
  if (inherited()) return EIO;
  const LockGuard lock(send_);
  const int error = batch_.error != 0 || state_allows_posts() ? batch_.error : EINVAL;
  if (error == 0) sends().push(batch_.size);
  batch_.end();
  if (error == 0) send();
  return error;
}

void DatagramQp::abort_batch() {
  if (inherited()) return;
  const LockGuard lock(send_);
  batch_.end();
}

// ---- Multicast -------------------------------------------------------------------------------------------------

int DatagramQp::attach_group(const Gid& group) {
  if (inherited()) return EIO;
  if (!is_multicast(group)) return EINVAL;
  const LockGuard lock(groups_mutex_);
  if (std::find(groups_.begin(), groups_.end(), group) != groups_.end()) return 0;
  if (multicast_ == nullptr) {
    multicast_ = DatagramPort::open_multicast(qp_.context->engine(), qp_.context->device().ifindex);
    if (multicast_ == nullptr) return errno;
  }
  groups_.reserve(groups_.size() + 1);
  const int error = multicast_->attach(*this, group);
  if (error == 0) groups_.push_back(group);
  return error;
}

int DatagramQp::detach_group(const Gid& group) {
  if (inherited()) return EIO;
  const LockGuard lock(groups_mutex_);
  if (std::erase(groups_, group) == 0) return EINVAL;
  multicast_->detach(*this, group);
  return 0;
}

bool DatagramQp::is_attached() const {
  const LockGuard lock(groups_mutex_);
  return !groups_.empty();
}

// ---- Receiving -------------------------------------------------------------------------------------------------

int DatagramQp::post_receive(ibv_recv_wr* requests, ibv_recv_wr** bad) {
  if (queues_.is_shared() || qp_.state == IBV_QPS_RESET) {
    if (bad != nullptr) *bad = requests;
    return EINVAL;
  }
  const int error = queues_.post_receive(requests, bad);
  if (qp_.state == IBV_QPS_ERR) {
    const LockGuard lock(receive_);
    if (qp_.state == IBV_QPS_ERR) queues_.flush_receives();
  }
  return error;
}

// Whether this address belongs to the device. A loopback interface also answers to addresses that it does not list.
bool DatagramQp::is_ours(const Gid& to) const {
  const std::vector<Gid>& gids = qp_.context->gids();
  if (std::find(gids.begin(), gids.end(), to) != gids.end()) return true;
  return qp_.context->device().loopback && is_ipv4(to) && to[12] == 127;
}

rdmap::Status DatagramQp::place(const Arrival& arrival, const rdmap::ReceiveBuffer& buffer) const {
  if (buffer.length < kGrhSize + arrival.payload.size()) return rdmap::Status::local_length;
  const std::size_t octets = roce_octets(arrival.payload.size(), arrival.header.immediate.has_value());
  const Grh grh = grh_of(arrival.from, arrival.to, arrival.ip, octets);
  const ddp::Accessor memory = queues_.memory().of(buffer.domain);
  rdmap::ScatterPosition at;
  const bool placed =
      rdmap::scatter(memory, buffer.sges, at, grh) && rdmap::scatter(memory, buffer.sges, at, arrival.payload);
  return placed ? rdmap::Status::success : rdmap::Status::local_protection;
}

void DatagramQp::drop(DatagramDrop why) const { qp_.context->engine().counters().add(counter_of(why)); }

void DatagramQp::deliver(const Arrival& arrival) noexcept {
  const LockGuard lock(receive_);
  const ibv_qp_state state = qp_.state.load();
  const bool receives = state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
  const bool multicast = arrival.header.destination_qp == kMulticastQp;  // then this queue pair is in the group
  if (!receives || (!multicast && !is_ours(arrival.to))) return drop(DatagramDrop::destination);
  const bool own = arrival.header.source_qp == number() && is_ours(arrival.from);
  if (multicast && blocks_own_multicast_ && own) return;
  if (arrival.header.qkey != attributes_.qkey) return drop(DatagramDrop::qkey);
  // Programs post receives of the size of the MTU, and rely on the network to deliver nothing longer.
  if (arrival.payload.size() > most_octets(qp_.context->device())) return drop(DatagramDrop::malformed);
  rdmap::ReceiveBuffer buffer;
  if (!queues_.next_receive(buffer)) {
    queues_.leave_shared();  // stops waiting for a receive of the S-RQ, since the datagram is dropped
    return drop(DatagramDrop::no_receive);
  }
  // The InfiniBand specification (errors of the responder, classes D and E): a receive that is too small stays for the
  // next datagram. But a receive of a shared receive queue has already been removed from there, so it completes in
  // error.
  const bool fits = buffer.length >= kGrhSize + arrival.payload.size();
  if (!fits && !queues_.is_shared()) return drop(DatagramDrop::no_receive);
  ibv_wc completion{};
  completion.wr_id = buffer.id;
  completion.opcode = IBV_WC_RECV;
  switch (place(arrival, buffer)) {
    case rdmap::Status::success: completion.status = IBV_WC_SUCCESS; break;
    case rdmap::Status::local_length: completion.status = IBV_WC_LOC_LEN_ERR; break;
    default: completion.status = IBV_WC_LOC_PROT_ERR; break;
  }
  completion.byte_len = static_cast<std::uint32_t>(kGrhSize + arrival.payload.size());
  completion.src_qp = arrival.header.source_qp;
  completion.wc_flags = IBV_WC_GRH;
  completion.sl = is_ipv4(arrival.to) ? kIpv4Packet : kIpv6Packet;
  if (arrival.header.immediate) {
    completion.wc_flags |= IBV_WC_WITH_IMM;
    store_be<std::uint32_t>(reinterpret_cast<std::byte*>(&completion.imm_data), *arrival.header.immediate);
  }
  queues_.receive_complete(completion, arrival.header.solicited);
}

}  // namespace uiw::provider
