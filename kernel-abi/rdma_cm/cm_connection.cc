// SPDX-License-Identifier: MIT
// How do connections come and go, and which events tell the program? (cma.c: rdma_listen, rdma_connect,
// rdma_accept, cma_iw_handler, iw_conn_req_handler, for RoCE cma_ib_handler and cma_ib_req_handler; iwcm.c for the
// stream's states.)
//
// The provider is called without the registry's lock, for it may answer on this very thread.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "kernel-abi/rdma_cm/cm_address.h"
#include "kernel-abi/rdma_cm/cm_events.h"
#include "kernel-abi/rdma_cm/cm_id.h"
#include "kernel-abi/rdma_cm/cm_registry.h"
#include "provider/connect/cm_loop.h"
#include "provider/connect/outgoing_call.h"
#include "provider/process/device.h"

namespace uiw::kernel_abi {
namespace {

constexpr std::size_t kOctetMax = 255;
constexpr unsigned kRejectConsumerDefined = 28;
constexpr unsigned kRejectVendorOption = 35;

provider::ConnectionParameters own_parameters(const rdma_ucm_conn_param& said) {
  provider::ConnectionParameters own;
  own.qp_num = said.qp_num;
  own.responder_resources = said.responder_resources;
  own.initiator_depth = said.initiator_depth;
  const auto* data = reinterpret_cast<const std::byte*>(said.private_data);
  own.private_data.assign(data, data + said.private_data_len);
  return own;
}

// What the peer wants to issue is what this side is asked to serve, and the other way round.
rdma_ucm_conn_param event_parameters(const provider::ConnectionParameters& peer) {
  rdma_ucm_conn_param event = {};
  event.responder_resources = static_cast<__u8>(std::min<std::size_t>(peer.initiator_depth, kOctetMax));
  event.initiator_depth = static_cast<__u8>(std::min<std::size_t>(peer.responder_resources, kOctetMax));
  event.private_data_len = static_cast<__u8>(std::min(peer.private_data.size(), kOctetMax));
  if (event.private_data_len != 0)
    std::memcpy(event.private_data, peer.private_data.data(), event.private_data_len);
  return event;
}

RoceAgreement agreement_of(const rdma_ucm_conn_param& event) {
  return {event.responder_resources, event.initiator_depth, event.retry_count, event.rnr_retry_count};
}

CmEventType failure_event(int error) {
  switch (error) {
    case ECONNREFUSED:
    case ECONNRESET:
      return CmEventType::rejected;
    case ETIMEDOUT:
      return CmEventType::unreachable;
    default:
      return CmEventType::connect_error;
  }
}

}  // namespace

// A program waits for events, so those of a command have their memory before it is carried out: of CONNECT and ACCEPT two,
// how it ends, and the end of the connection.
void CmId::provide_events(std::size_t count) {
  while (spare_events_.size() < count) spare_events_.emplace_back();
}

void CmId::post(rdma_ucm_event_resp response) {
  response.uid = uid_;
  response.id = number_;
  try {
    provide_events(1);
  } catch (const std::bad_alloc&) {  // for an event that nobody has asked for
    return;
  }
  spare_events_.front() = {shared_from_this(), nullptr, response};
  channel_->post(spare_events_);
}

// The program does not know a new connection by name before it accepts it, and is told nothing of it till
// then.
void CmId::post(CmEventType event, int status, const rdma_ucm_conn_param& parameters) {
  if (uid_ == 0 || state_ == CmState::destroyed || removed_) return;
  rdma_ucm_event_resp response = {};
  response.event = static_cast<__u32>(event);
  response.status = static_cast<__u32>(status);
  response.param.conn = parameters;
  post(response);
}

void CmId::count_reported(const CmEvent& event) {
  ++events_reported_;
  if (event.child != nullptr) ++backlog_;
}

int CmId::write_event(std::uint32_t event, std::uint32_t status, std::uint64_t argument) {
  const auto type = static_cast<CmEventType>(event);
  if (type != CmEventType::user && type != CmEventType::internal) return EINVAL;
  rdma_ucm_event_resp response = {};
  response.event = event;
  response.status = status;
  std::memcpy(&response.param, &argument, sizeof argument);
  const std::lock_guard lock(CmRegistry::instance().mutex());
  provide_events(1);
  post(response);
  return 0;
}

int CmId::listen(int backlog) {
  if (!exchange_state(CmState::addr_bound, CmState::listen)) {
    if (const int error = bind(wildcard_of(AF_INET)); error != 0) return error;
    if (!exchange_state(CmState::addr_bound, CmState::listen)) return EINVAL;
  }
  {
    const std::lock_guard lock(CmRegistry::instance().mutex());
    backlog_ = backlog;
  }
  if (!uses_tcp() || source_.ss_family == AF_IB) return 0;  // nobody can call there

  int error = socket_ < 0 ? make_socket(source_) : 0;
  std::shared_ptr<provider::Listener> listener;
  try {
    if (error == 0) error = provider::listen(std::exchange(socket_, -1), backlog, weak_from_this(), listener);
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  const std::lock_guard lock(CmRegistry::instance().mutex());
  if (error == 0)
    listener_ = std::move(listener);
  else
    state_ = CmState::addr_bound;
  return error;
}

int CmId::connect(const rdma_ucm_conn_param& parameters) {
  if (!has_device() || !uses_tcp()) return EINVAL;
  if (is_roce() && parameters.private_data_len > kReqPrivateData) return EINVAL;
  // Without the thread nobody would tell how the call ends.
  if (const int error = provider::CmLoop::instance().start(); error != 0) return error;
  const provider::ConnectionParameters own = own_parameters(parameters);
  {
    const std::lock_guard lock(CmRegistry::instance().mutex());
    if (state_ != CmState::route_resolved) return EINVAL;
    provide_events(2);
    state_ = CmState::connect;
    stream_ = StreamState::calling;
    retry_count_ = parameters.retry_count;
  }
  if (is_wildcard(destination_)) destination_ = loopback_of(destination_.ss_family, port_of(destination_));
  int error = socket_ < 0 ? make_socket(source_) : 0;
  std::shared_ptr<provider::Connection> connection;
  try {
    if (error == 0) {
      error = provider::connect(std::exchange(socket_, -1), destination_, own, type_of_service_, weak_from_this(),
                                connection);
    }
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  const std::lock_guard lock(CmRegistry::instance().mutex());
  if (error == 0) {
    connection_ = std::move(connection);
  } else {
    state_ = CmState::route_resolved;
    stream_ = StreamState::none;
  }
  return error;
}

int CmId::check_call_state() {
  return state_ == CmState::connect && stream_ == StreamState::requested ? 0 : EINVAL;
}

int CmId::accept(const rdma_ucm_conn_param& parameters, std::uint64_t uid) {
  if (!has_device()) return EINVAL;
  if (is_roce() && parameters.private_data_len > kRepPrivateData) {
    reject(nullptr, 0, kRejectConsumerDefined);
    return EINVAL;
  }
  const provider::ConnectionParameters own = own_parameters(parameters);
  std::shared_ptr<provider::Connection> call;
  std::uint64_t former_uid;
  {
    const std::lock_guard lock(CmRegistry::instance().mutex());
    if (const int error = check_call_state(); error != 0) return error;
    provide_events(2);
    stream_ = StreamState::accepting;
    former_uid = std::exchange(uid_, uid);  // before the call: its event needs it
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
    error = call->accept(own, weak_from_this());
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  if (error == 0) return 0;
  {
    const std::lock_guard lock(CmRegistry::instance().mutex());
    stream_ = StreamState::ended;
    uid_ = former_uid;
  }
  call->reject({});
  return error;
}

// The active side's connection stands by itself, so there is nothing left to do; that it may have ended by now
// is told by an event. On the passive side it is never right, and ends the call.
int CmId::accept_response() {
  {
    const std::lock_guard lock(CmRegistry::instance().mutex());
    if (responded_) return 0;
  }
  reject(nullptr, 0, kRejectConsumerDefined);
  return EINVAL;
}

int CmId::reject(const std::uint8_t* private_data, std::size_t size, unsigned reason) {
  if (reason != 0 && reason != kRejectConsumerDefined && reason != kRejectVendorOption) return EINVAL;
  if (!has_device()) return EINVAL;
  if (is_roce() && size > kRejPrivateData) return EINVAL;
  const auto* data = reinterpret_cast<const std::byte*>(private_data);
  const std::vector<std::byte> said(data, data + size);
  std::shared_ptr<provider::Connection> call;
  {
    const std::lock_guard lock(CmRegistry::instance().mutex());
    if (const int error = check_call_state(); error != 0) return error;
    stream_ = StreamState::ended;
    call = connection_;
  }
  return call->reject(said);
}

// 0 also for a connection that has ended already, or never stood: the peer may have been faster.
int CmId::disconnect() {
  if (!has_device()) return EINVAL;
  std::shared_ptr<provider::Connection> connection;
  {
    const std::lock_guard lock(CmRegistry::instance().mutex());
    switch (stream_) {
      case StreamState::none:
        return EINVAL;
      case StreamState::calling:
      case StreamState::accepting:
        disconnect_wanted_ = true;
        return 0;
      case StreamState::requested:
      case StreamState::ended:
        return 0;
      case StreamState::established:
        connection = connection_;
        break;
    }
  }
  if (connection != nullptr) connection->disconnect();
  return 0;
}

int CmId::notify() {
  if (!has_device()) return EINVAL;
  const std::lock_guard lock(CmRegistry::instance().mutex());
  return stream_ != StreamState::none || state_ == CmState::listen ? 0 : EINVAL;
}

void CmId::established(const provider::ConnectionParameters& peer) {
  std::shared_ptr<provider::Connection> unwanted;
  {
    const std::lock_guard lock(CmRegistry::instance().mutex());
    if (state_ == CmState::destroyed || removed_) return;
    const bool called = stream_ == StreamState::calling;
    rdma_ucm_conn_param parameters = {};
    if (called) {
      parameters = event_parameters(peer);
      responded_ = true;
      if (is_roce()) {
        fill_message(kRepPrivateData, parameters);
        agreement_ = agreement_of(parameters);
        agreement_->retry_count = retry_count_;
      }
    } else if (!is_roce()) {
      parameters.responder_resources = accepted_resources_;
      parameters.initiator_depth = accepted_depth_;
    }
    stream_ = StreamState::established;
    post(called && is_roce() ? CmEventType::connect_response : CmEventType::established, 0, parameters);
    if (disconnect_wanted_) unwanted = connection_;
  }
  if (unwanted != nullptr) unwanted->disconnect();
}

void CmId::failed(int error, const provider::ConnectionParameters* peer) {
  const std::lock_guard lock(CmRegistry::instance().mutex());
  const bool called = stream_ == StreamState::calling;
  stream_ = StreamState::ended;
  const CmEventType event = called ? failure_event(error) : CmEventType::connect_error;
  rdma_ucm_conn_param parameters = {};
  if (peer != nullptr) parameters = event_parameters(*peer);
  parameters.responder_resources = parameters.initiator_depth = 0;
  int status = -error;
  if (event == CmEventType::rejected && is_roce()) {
    // A REJ has a reason, and room for private data; nobody who listens is one too.
    status = peer == nullptr && error == ECONNREFUSED ? kRejInvalidServiceId : static_cast<int>(kRejectConsumerDefined);
    parameters.private_data_len = std::max(parameters.private_data_len, static_cast<__u8>(kRejPrivateData));
  }
  post(event, status, parameters);
}

void CmId::disconnected() {
  const std::lock_guard lock(CmRegistry::instance().mutex());
  if (stream_ != StreamState::established) return;
  stream_ = StreamState::ended;
  post(CmEventType::disconnected, 0);
}

void CmId::requested(std::shared_ptr<provider::Connection> call, const provider::ConnectionParameters& peer) {
  bool adopted = false;
  try {
    const sockaddr_storage local = unmapped(call->local_address());
    const provider::DeviceInfo device = provider::device_of(generic(local));
    if (!device.name.empty()) {
      CmEvents event(1);
      CmRegistry& registry = CmRegistry::instance();
      std::shared_ptr<CmId> child;  // without the lock where it goes again
      const std::lock_guard lock(registry.mutex());
      if (state_ == CmState::listen && !removed_ && backlog_ > 0) {
        child = registry.create_id_locked(channel_, {0, port_space_, qp_type_});
        try {
          adopt(child, call, local, device, peer, event);
          adopted = true;
        } catch (const std::bad_alloc&) {
          registry.remove_id_locked(*child);
        }
      }
    }
  } catch (const std::bad_alloc&) {  // the caller is told to come again
  }
  if (!adopted) call->reject({});
}

void CmId::adopt(const std::shared_ptr<CmId>& child, const std::shared_ptr<provider::Connection>& call,
                 const sockaddr_storage& local, const provider::DeviceInfo& device,
                 const provider::ConnectionParameters& peer, CmEvents& event) {
  child->source_ = local;
  child->destination_ = unmapped(call->remote_address());
  child->device_ = {device.guid, device.ifindex, device.transport};
  child->type_of_service_ = type_of_service_;
  child->ack_timeout_ = ack_timeout_;
  child->state_ = CmState::connect;
  child->stream_ = StreamState::requested;
  child->connection_ = call;
  rdma_ucm_event_resp response = {};
  response.uid = uid_;
  response.id = child->number();
  response.event = static_cast<__u32>(CmEventType::connect_request);
  response.param.conn = event_parameters(peer);
  if (child->is_roce()) {
    fill_message(kReqPrivateData, response.param.conn);
    child->path_ = child->make_path(device);
    child->agreement_ = agreement_of(response.param.conn);
  }
  event.front() = {shared_from_this(), child, response};
  --backlog_;
  channel_->post(event);
}

}  // namespace uiw::kernel_abi
