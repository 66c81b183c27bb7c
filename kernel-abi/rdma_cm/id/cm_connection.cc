// SPDX-License-Identifier: MIT
#include "kernel-abi/rdma_cm/id/cm_connection.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "kernel-abi/rdma_cm/cm_events.h"
#include "kernel-abi/rdma_cm/id/cm_id.h"
#include "kernel-abi/rdma_cm/registry_lock.h"
#include "provider/connect/lookup/lookup.h"
#include "provider/connect/startup/outgoing_call.h"
#include "provider/process/cm_loop.h"

namespace uiw::kernel_abi {
namespace {

constexpr std::size_t kOctetMax = 255;
constexpr unsigned kRejectConsumerDefined = 28;
constexpr unsigned kRejectVendorOption = 35;
// As with rxe: 4.096 us * 2^19, twice the lifetime that Linux 6.1 assumes for packets of RoCE.
constexpr std::chrono::milliseconds kTimeWait{2147};

provider::CallParameters own_parameters(const rdma_ucm_conn_param& said) {
  provider::CallParameters own;
  own.qp_num = said.qp_num;
  own.responder_resources = said.responder_resources;
  own.initiator_depth = said.initiator_depth;
  const auto* data = reinterpret_cast<const std::byte*>(said.private_data);
  own.private_data.assign(data, data + said.private_data_len);
  constexpr std::uint8_t kMost = provider::RetryCounts::kMost;
  own.retries = {std::min(said.retry_count, kMost), std::min(said.rnr_retry_count, kMost)};
  return own;
}

RoceAgreement agreement_of(const rdma_ucm_conn_param& event) {
  return {event.responder_resources, event.initiator_depth, event.retry_count, event.rnr_retry_count};
}

CmEventType failure_event(int error, bool calling) {
  // A passive side that receives nothing after its MPA reply reports UNREACHABLE, as the kernel does if no RTU follows
  // a REP.
  if (!calling) return error == ETIMEDOUT ? CmEventType::unreachable : CmEventType::connect_error;
  switch (error) {
    case ECONNREFUSED:
    case ECONNRESET: return CmEventType::rejected;
    case ETIMEDOUT: return CmEventType::unreachable;
    default: return CmEventType::connect_error;
  }
}

}  // namespace

rdma_ucm_conn_param event_parameters(const provider::CallParameters& peer) {
  rdma_ucm_conn_param event = {};
  event.responder_resources = static_cast<__u8>(std::min<std::size_t>(peer.initiator_depth, kOctetMax));
  event.initiator_depth = static_cast<__u8>(std::min<std::size_t>(peer.responder_resources, kOctetMax));
  event.private_data_len = static_cast<__u8>(std::min(peer.private_data.size(), kOctetMax));
  if (event.private_data_len != 0) std::memcpy(event.private_data, peer.private_data.data(), event.private_data_len);
  return event;
}

rdma_ucm_ud_param datagram_parameters(const provider::CallParameters& peer, std::size_t room) {
  rdma_ucm_ud_param event = {};
  const std::size_t said = std::min(peer.private_data.size(), kOctetMax);
  event.private_data_len = static_cast<__u8>(std::max(said, room));
  if (said != 0) std::memcpy(event.private_data, peer.private_data.data(), said);
  return event;
}

// The time wait: on adapters for InfiniBand and RoCE, the queue pair of a connection that has ended may not be used
// again while packets of the connection may still be in the network. Some programs free a connection only when
// TIMEWAIT_EXIT reports the end of that time.
class CmConnection::TimeWait final : public provider::CmLoop::TimedTask {
 public:
  explicit TimeWait(std::weak_ptr<CmId> id) : id_(std::move(id)) {}
  void run() override {
    if (const std::shared_ptr<CmId> id = id_.lock()) id->connection().leave_time_wait();
  }

 private:
  const std::weak_ptr<CmId> id_;
};

void CmConnection::prepare_events() {
  const bool time_wait = id_.route().is_roce() && !looks_up(id_.route());
  id_.events().reserve(time_wait ? 3 : 2);
  if (time_wait && time_wait_ == nullptr) time_wait_ = std::make_shared<TimeWait>(id_.weak_from_this());
}

void CmConnection::enter_time_wait() {
  if (disconnected_ && disconnect_wanted_ && time_wait_ != nullptr) {
    provider::CmLoop::instance().after(kTimeWait, time_wait_);
  }
}

void CmConnection::leave_time_wait() {
  const LockGuard lock(g_registry_lock);
  id_.report(CmEventType::timewait_exit, 0);
}

std::weak_ptr<provider::CallObserver> CmConnection::observer() {
  return std::shared_ptr<provider::CallObserver>(id_.shared_from_this(), this);
}

int CmConnection::connect(const rdma_ucm_conn_param& parameters) {
  const bool service = looks_up(id_.route());
  if (!id_.route().has_device() || (!id_.route().uses_tcp() && !service)) return EINVAL;
  const std::size_t room = service ? kSidrReqPrivateData : kReqPrivateData;
  if (id_.route().is_roce() && parameters.private_data_len > room) return EINVAL;
  // The thread "uiw-cm" reports by an event whether the peer has accepted, so CONNECT fails if the thread cannot be
  // started.
  if (const int error = provider::CmLoop::instance().start(); error != 0) return error;
  const provider::CallParameters own = own_parameters(parameters);
  {
    const LockGuard lock(g_registry_lock);
    if (id_.state() != CmState::route_resolved) return EINVAL;
    prepare_events();
    id_.set_state(CmState::connect);
    phase_ = ConnectionPhase::calling;
    qp_number_ = parameters.qp_num;
    retry_count_ = own.retries.retry;
  }
  CmRoute& route = id_.route();
  route.settle_destination();
  const int socket = route.take_socket();
  int error = socket < 0 ? -socket : 0;
  std::shared_ptr<provider::Call> connection;
  try {
    if (error == 0) {
      const auto call = service ? provider::look_up : provider::connect;
      error = call(socket, route.destination(), own, route.type_of_service(), observer(), connection);
    }
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  const LockGuard lock(g_registry_lock);
  if (error == 0) {
    connection_ = std::move(connection);
  } else {
    id_.set_state(CmState::route_resolved);
    phase_ = ConnectionPhase::none;
  }
  return error;
}

int CmConnection::check_call_state() const {
  return id_.state() == CmState::connect && phase_ == ConnectionPhase::requested ? 0 : EINVAL;
}

int CmConnection::accept(const rdma_ucm_conn_param& parameters, std::uint64_t uid) {
  if (!id_.route().has_device()) return EINVAL;
  const bool service = looks_up(id_.route());
  const std::size_t room = service ? kSidrRepPrivateData : kRepPrivateData;
  if (id_.route().is_roce() && parameters.private_data_len > room) {
    reject(nullptr, 0, kRejectConsumerDefined);
    return EINVAL;
  }
  provider::CallParameters own = own_parameters(parameters);
  own.qkey = kDatagramQkey;
  own.retries.retry = provider::RetryCounts::kMost;  // a REP has no retry count
  std::shared_ptr<provider::Call> call;
  std::uint64_t former_uid;
  {
    const LockGuard lock(g_registry_lock);
    if (const int error = check_call_state(); error != 0) return error;
    prepare_events();
    phase_ = ConnectionPhase::accepting;
    qp_number_ = parameters.qp_num;
    former_uid = id_.events().uid();
    id_.events().set_uid(uid);  // set before call->accept(), since the event that follows carries the uid
    accepted_resources_ = parameters.responder_resources;
    accepted_depth_ = parameters.initiator_depth;
    if (agreement_) {
      agreement_->responder_resources = parameters.responder_resources;
      agreement_->initiator_depth = parameters.initiator_depth;
    }
    call = connection_;
  }
  int error;
  try {
    error = call->accept(own, observer());
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  if (error == 0 && !service) return 0;
  {
    const LockGuard lock(g_registry_lock);
    if (error == 0) {  // a request of port space UDP: the peer has its answer, and no event follows
      phase_ = ConnectionPhase::established;
      return 0;
    }
    phase_ = ConnectionPhase::ended;
    id_.events().set_uid(former_uid);
  }
  call->reject({});
  return error;
}

// Executes an ACCEPT without parameters. On the active side the stream is established already; if the stream has ended
// meanwhile, an event reports its end. On the passive side such an ACCEPT is an error, and rejects the call.
int CmConnection::accept_response() {
  std::shared_ptr<provider::Call> established;
  bool responded;
  {
    const LockGuard lock(g_registry_lock);
    responded = responded_;
    if (responded && phase_ == ConnectionPhase::established) established = connection_;
  }
  if (established != nullptr) established->confirm();
  if (responded) return 0;
  reject(nullptr, 0, kRejectConsumerDefined);
  return EINVAL;
}

int CmConnection::reject(const std::uint8_t* private_data, std::size_t size, unsigned reason) {
  if (reason != 0 && reason != kRejectConsumerDefined && reason != kRejectVendorOption) return EINVAL;
  if (!id_.route().has_device()) return EINVAL;
  if (id_.route().is_roce() && size > (looks_up(id_.route()) ? kSidrRepPrivateData : kRejPrivateData)) return EINVAL;
  const auto* data = reinterpret_cast<const std::byte*>(private_data);
  const std::vector<std::byte> said(data, data + size);
  std::shared_ptr<provider::Call> call;
  {
    const LockGuard lock(g_registry_lock);
    if (const int error = check_call_state(); error != 0) return error;
    phase_ = ConnectionPhase::ended;
    call = connection_;
  }
  id_.route().device()->counters->add(provider::PortCounter::refused);
  return call->reject(said);
}

int CmConnection::disconnect() {
  if (!id_.route().has_device()) return EINVAL;
  std::shared_ptr<provider::Call> connection;
  {
    const LockGuard lock(g_registry_lock);
    switch (phase_) {
      case ConnectionPhase::none: return id_.route().is_roce() && id_.state() == CmState::listen ? 0 : EINVAL;
      case ConnectionPhase::requested: return 0;
      case ConnectionPhase::calling:
      case ConnectionPhase::accepting:
      case ConnectionPhase::ended: break;
      case ConnectionPhase::established: connection = connection_; break;
    }
    if (!std::exchange(disconnect_wanted_, true)) enter_time_wait();
  }
  if (connection != nullptr) connection->disconnect();
  return 0;
}

void CmConnection::established(const provider::CallParameters& peer) {
  std::shared_ptr<provider::Call> unwanted;
  {
    const LockGuard lock(g_registry_lock);
    if (id_.is_destroyed() || id_.is_removed()) return;
    const bool called = phase_ == ConnectionPhase::calling;
    if (looks_up(id_.route())) {
      phase_ = ConnectionPhase::established;
      return id_.report(CmEventType::established, 0, service_parameters(peer));
    }
    rdma_ucm_conn_param parameters = {};
    if (called) {
      parameters = event_parameters(peer);
      responded_ = true;
      if (id_.route().is_roce()) {
        fill_message(kRepPrivateData, peer.retries, parameters);
        parameters.retry_count = 0;
        agreement_ = agreement_of(parameters);
        agreement_->retry_count = retry_count_;
      }
    } else if (!id_.route().is_roce()) {
      parameters.responder_resources = accepted_resources_;
      parameters.initiator_depth = accepted_depth_;
    }
    phase_ = ConnectionPhase::established;
    id_.report(called && id_.route().is_roce() ? CmEventType::connect_response : CmEventType::established, 0,
               parameters);
    if (disconnect_wanted_) unwanted = connection_;
  }
  if (unwanted != nullptr) unwanted->disconnect();
}

void CmConnection::failed(int error, const provider::CallParameters* peer) {
  const LockGuard lock(g_registry_lock);
  const bool calling = phase_ == ConnectionPhase::calling;
  phase_ = ConnectionPhase::ended;
  if (looks_up(id_.route())) return report_no_service(error, peer);
  const CmEventType event = failure_event(error, calling);
  rdma_ucm_conn_param parameters = {};
  if (peer != nullptr) parameters = event_parameters(*peer);
  if (event == CmEventType::rejected && id_.route().device()) {
    id_.route().device()->counters->add(provider::PortCounter::refused);
  }
  parameters.responder_resources = parameters.initiator_depth = 0;
  int status = -error;
  if (event == CmEventType::rejected && id_.route().is_roce()) {
    // A REJ has a reason and room for private data, also if no process listens.
    status = peer == nullptr && error == ECONNREFUSED ? kRejInvalidServiceId : static_cast<int>(kRejectConsumerDefined);
    parameters.private_data_len = std::max(parameters.private_data_len, static_cast<__u8>(kRejPrivateData));
  }
  id_.report(event, status, parameters);
}

rdma_ucm_ud_param CmConnection::service_parameters(const provider::CallParameters& peer) const {
  rdma_ucm_ud_param event = datagram_parameters(peer, kSidrRepPrivateData);
  event.qp_num = peer.qp_num;
  event.qkey = peer.qkey;
  if (id_.route().path()) fill_address(*id_.route().path(), event.ah_attr);
  return event;
}

void CmConnection::report_no_service(int error, const provider::CallParameters* peer) {
  const int status = error != ECONNREFUSED ? -error : peer == nullptr ? kSidrUnsupported : kSidrRejected;
  const rdma_ucm_ud_param event =
      peer == nullptr ? rdma_ucm_ud_param{} : datagram_parameters(*peer, kSidrRepPrivateData);
  id_.report(CmEventType::unreachable, status, event);
}

void CmConnection::disconnected() {
  const LockGuard lock(g_registry_lock);
  if (phase_ != ConnectionPhase::established) return;
  phase_ = ConnectionPhase::ended;
  id_.report(CmEventType::disconnected, 0);
  disconnected_ = true;
  enter_time_wait();
}

void CmConnection::begin_requested(const std::shared_ptr<provider::Call>& call, const rdma_ucm_conn_param& request) {
  phase_ = ConnectionPhase::requested;
  connection_ = call;
  if (id_.route().is_roce()) agreement_ = agreement_of(request);
}

CmConnection::Detached CmConnection::detach() {
  return {std::move(connection_), std::exchange(phase_, ConnectionPhase::ended)};
}

std::shared_ptr<provider::Call> CmConnection::leave_to_parent() {
  if (connection_ != nullptr) connection_->abandon();
  if (has_stream()) phase_ = ConnectionPhase::ended;
  return std::move(connection_);
}

void CmConnection::tear_down(Detached detached) {
  const std::shared_ptr<provider::Call> last = std::move(detached.connection);
  if (last == nullptr) return;
  if (detached.phase == ConnectionPhase::requested) last->reject({});
  if (detached.phase == ConnectionPhase::established) last->disconnect();
}

}  // namespace uiw::kernel_abi
