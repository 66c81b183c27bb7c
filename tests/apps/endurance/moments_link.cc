// SPDX-License-Identifier: MIT
#include "tests/apps/endurance/moments_link.h"

namespace apps::moments {

namespace {

constexpr std::chrono::milliseconds kStep{5};

rdma_conn_param parameters(const std::uint64_t* name) {
  rdma_conn_param parameters = connection_parameters();
  parameters.private_data = name;
  parameters.private_data_len = name != nullptr ? sizeof *name : 0;
  return parameters;
}

sockaddr_in address_of(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) die("no address: %s", host.c_str());
  return address;
}

}  // namespace

// ---- Events ----------------------------------------------------------------------------------------------------

std::optional<Events::Event> Events::next(std::chrono::milliseconds patience) const {
  pollfd ready{channel_->fd, POLLIN, 0};
  if (::poll(&ready, 1, static_cast<int>(patience.count())) != 1) return std::nullopt;
  rdma_cm_event* heard = nullptr;
  good("rdma_get_cm_event", rdma_get_cm_event(channel_, &heard));
  Event event{heard->event, heard->id};
  if (heard->event == RDMA_CM_EVENT_CONNECT_REQUEST && heard->param.conn.private_data_len >= sizeof event.name)
    std::memcpy(&event.name, heard->param.conn.private_data, sizeof event.name);
  good("rdma_ack_cm_event", rdma_ack_cm_event(heard));
  return event;
}

rdma_cm_event_type Events::await(rdma_cm_id* id, std::chrono::milliseconds patience) const {
  const auto end = Clock::now() + patience;
  while (Clock::now() < end) {
    const auto event = next(kStep);
    if (!event) continue;
    if (event->id != id) die("%s of another id", rdma_event_str(event->type));
    return event->type;
  }
  die("no event of rdma_cm in time");
}

// ---- Link ------------------------------------------------------------------------------------------------------

Link::~Link() {
  if (id_ != nullptr) {
    if (id_->qp != nullptr) rdma_destroy_qp(id_);
    qp_ = nullptr;
  }
  if (qp_ != nullptr) expect_error("ibv_destroy_qp", ibv_destroy_qp(qp_), 0);
  work_.reset();
  if (id_ != nullptr) good("rdma_destroy_id", rdma_destroy_id(id_));
  if (listener_ != nullptr) good("rdma_destroy_id", rdma_destroy_id(listener_));
}

bool Link::connect(const Line& line, std::uint64_t name) {
  if (kind_ == Kind::by_hand) return connect_by_hand(line);
  events_ = std::make_unique<Events>();
  return (kind_ == Kind::cm_calls) == survives_ ? call(line, name) : be_called(line, name);
}

bool Link::exchange(const Line& line, Introduction mine) {
  if (line.say(mine) && line.hear(peer_)) return true;
  why_ = "the line beside RDMA has ended";
  return false;
}

bool Link::connect_by_hand(const Line& line) {
  rnic_ = std::make_unique<Rnic>(host_);
  work_ = std::make_unique<Work>(*rnic_);
  ibv_qp_init_attr attributes = work_->attributes();
  qp_ = made("ibv_create_qp", ibv_create_qp(rnic_->pd(), &attributes));
  to_init(qp_, {});
  work_->prepare(qp_);
  Introduction mine = work_->introduction();
  mine.place = {qp_->qp_num, 0, rnic_->gid()};
  if (!exchange(line, mine)) return false;
  to_rtr(qp_, *rnic_, peer_.place, {});
  to_rts(qp_, 0, {});
  return true;
}

void Link::make_cm_qp(rdma_cm_id* id) {
  id_ = id;
  // Without a domain of the program's own, each id takes librdmacm's.
  work_ = std::make_unique<Work>(id->verbs, id->pd);
  ibv_qp_init_attr attributes = work_->attributes();
  good("rdma_create_qp", rdma_create_qp(id, id->pd, &attributes));
  qp_ = id->qp;
  work_->prepare(qp_);
}

bool Link::call(const Line& line, std::uint64_t name) {
  Introduction listening;
  if (!line.hear(listening)) return false;
  good("rdma_create_id", rdma_create_id(events_->channel(), &id_, nullptr, RDMA_PS_TCP));
  sockaddr_in address = address_of(host_, listening.port);
  good("rdma_resolve_addr", rdma_resolve_addr(id_, nullptr, reinterpret_cast<sockaddr*>(&address), 2000));
  if (events_->await(id_, kConnecting) != RDMA_CM_EVENT_ADDR_RESOLVED) die("the address is not resolved");
  good("rdma_resolve_route", rdma_resolve_route(id_, 2000));
  if (events_->await(id_, kConnecting) != RDMA_CM_EVENT_ROUTE_RESOLVED) die("the route is not resolved");
  make_cm_qp(id_);
  rdma_conn_param wanted = parameters(&name);
  good("rdma_connect", rdma_connect(id_, &wanted));
  return await_established() && exchange(line, work_->introduction());
}

rdma_cm_id* Link::request(const Line& line, std::uint64_t name) {
  // A request may be heard of behind the end of its sender, but not much later.
  for (auto end = Clock::now() + kConnecting; Clock::now() < end;) {
    const auto event = events_->next(kStep);
    if (event) {
      if (event->type != RDMA_CM_EVENT_CONNECT_REQUEST || event->name != name)
        die("%s, not a request", rdma_event_str(event->type));
      return event->id;
    }
    if (line.ended()) end = std::min(end, Clock::now() + std::chrono::milliseconds(50));
  }
  return nullptr;
}

bool Link::be_called(const Line& line, std::uint64_t name) {
  good("rdma_create_id", rdma_create_id(events_->channel(), &listener_, nullptr, RDMA_PS_TCP));
  sockaddr_in address = address_of(host_, 0);
  good("rdma_bind_addr", rdma_bind_addr(listener_, reinterpret_cast<sockaddr*>(&address)));
  good("rdma_listen", rdma_listen(listener_, 4));
  Introduction listening;
  listening.port = ntohs(rdma_get_src_port(listener_));
  if (!line.say(listening)) return false;
  rdma_cm_id* caller = request(line, name);
  if (caller == nullptr) {
    why_ = "no request has come";
    return false;
  }
  make_cm_qp(caller);
  rdma_conn_param wanted = parameters(nullptr);
  // Where the caller is gone already, either the call tells, or an event.
  if (rdma_accept(id_, &wanted) != 0) {
    why_ = std::string("rdma_accept: ") + std::strerror(errno);
    return false;
  }
  return await_established() && exchange(line, work_->introduction());
}

// Or not, and then the other process has died.
bool Link::await_established() {
  const rdma_cm_event_type type = events_->await(id_, kConnecting);
  if (type == RDMA_CM_EVENT_ESTABLISHED) return established_ = true;
  if (type != RDMA_CM_EVENT_CONNECT_ERROR && type != RDMA_CM_EVENT_UNREACHABLE && type != RDMA_CM_EVENT_REJECTED &&
      type != RDMA_CM_EVENT_DISCONNECTED)
    die("%s while connecting", rdma_event_str(type));
  why_ = rdma_event_str(type);
  return false;
}

void Link::run(std::atomic<std::uint64_t>& done, Clock::duration patience) { work_->run(peer_, done, patience); }

void Link::finish() {
  work_->drain();
  if (events_ == nullptr) return;
  const rdma_cm_event_type type = events_->await(id_, kConnecting);
  if (type != RDMA_CM_EVENT_DISCONNECTED) die("%s, not DISCONNECTED", rdma_event_str(type));
  if (const auto more = events_->next(std::chrono::milliseconds(0)); more && more->type != RDMA_CM_EVENT_TIMEWAIT_EXIT)
    die("%s behind DISCONNECTED", rdma_event_str(more->type));
}

}  // namespace apps::moments
