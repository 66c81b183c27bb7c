// SPDX-License-Identifier: MIT
// A connection of rdma_cm, both of whose ends are this program's.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <cstring>

#include "tests/faults/lives/life.h"

namespace faults {
namespace {

constexpr std::size_t kRoom = 65'536;

int destroy_channel(rdma_event_channel* channel) {
  rdma_destroy_event_channel(channel);
  return 0;
}
int destroy_id(rdma_cm_id* id) {
  if (id->qp != nullptr) rdma_destroy_qp(id);
  return rdma_destroy_id(id) == 0 ? 0 : errno;
}

class CmLife : public Life {
 public:
  void make() override {
    channel_ = {rdma_create_event_channel(), "rdma_create_event_channel", destroy_channel, ""};
    ::fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
    listener_ = new_id();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    must(rdma_bind_addr(listener_.get(), any) == 0, "rdma_bind_addr");
    must(rdma_listen(listener_.get(), 4) == 0, "rdma_listen");
    address.sin_port = rdma_get_src_port(listener_.get());
    caller_ = new_id();
    must(rdma_resolve_addr(caller_.get(), nullptr, any, 2000) == 0, "rdma_resolve_addr");
    await(RDMA_CM_EVENT_ADDR_RESOLVED);
    must(rdma_resolve_route(caller_.get(), 2000) == 0, "rdma_resolve_route");
    await(RDMA_CM_EVENT_ROUTE_RESOLVED);
    pd_ = Owned<ibv_pd> FAULTS_OWN(ibv_alloc_pd, ibv_dealloc_pd, caller_->verbs);
    completions_ = Completions(caller_->verbs);
    near_ = Region(pd_.get(), kRoom);
    far_ = Region(pd_.get(), kRoom);
    connect();
  }
  void talk() override { exchange(caller_->qp, called_->qp, completions_, near_, far_); }
  void end() override {
    must(rdma_disconnect(caller_.get()) == 0, "rdma_disconnect");
    await(RDMA_CM_EVENT_DISCONNECTED);
    await(RDMA_CM_EVENT_DISCONNECTED);
    called_.reset();
    caller_.reset();
  }

 private:
  Owned<rdma_cm_id> new_id() const {
    rdma_cm_id* id = nullptr;
    must(rdma_create_id(channel_.get(), &id, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
    return {id, "rdma_create_id", destroy_id, "rdma_destroy_id"};
  }
  static rdma_conn_param parameters() {
    rdma_conn_param parameters{};
    parameters.responder_resources = parameters.initiator_depth = 4;
    parameters.retry_count = parameters.rnr_retry_count = 1;
    return parameters;
  }
  void make_qp(rdma_cm_id* id) {
    ibv_qp_init_attr attributes = queue_pair_attributes(completions_.cq());
    must(rdma_create_qp(id, pd_.get(), &attributes) == 0, "rdma_create_qp");
  }
  void connect() {
    make_qp(caller_.get());
    rdma_conn_param parameters = CmLife::parameters();
    must(rdma_connect(caller_.get(), &parameters) == 0, "rdma_connect");
    rdma_cm_id* const id = await(RDMA_CM_EVENT_CONNECT_REQUEST);
    called_ = {id, "rdma_get_cm_event", destroy_id, "rdma_destroy_id"};
    make_qp(id);
    parameters = CmLife::parameters();
    must(rdma_accept(id, &parameters) == 0, "rdma_accept");
    await(RDMA_CM_EVENT_ESTABLISHED);
    await(RDMA_CM_EVENT_ESTABLISHED);
  }
  // The next event, which has to be this one; its id.
  rdma_cm_id* await(rdma_cm_event_type wanted) const {
    const auto end = Clock::now() + kPatience;
    rdma_cm_event* event = nullptr;
    while (rdma_get_cm_event(channel_.get(), &event) != 0) {
      must(errno == EAGAIN, "rdma_get_cm_event");
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
      pollfd ready{channel_->fd, POLLIN, 0};
      if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) <= 0)
        throw Trouble{std::string("no event comes: ") + rdma_event_str(wanted), ETIME};
    }
    const rdma_cm_event_type type = event->event;
    const int status = event->status;
    rdma_cm_id* const id = event->id;
    must(rdma_ack_cm_event(event) == 0, "rdma_ack_cm_event");
    if (type == wanted) return id;
    throw Trouble{std::string("event ") + rdma_event_str(type), status < 0 ? -status : status};
  }

  Owned<rdma_event_channel> channel_;
  Owned<rdma_cm_id> listener_;
  Owned<ibv_pd> pd_;
  Completions completions_;
  Region near_, far_;
  Owned<rdma_cm_id> caller_, called_;
};

}  // namespace

std::unique_ptr<Life> new_cm_life() { return std::make_unique<CmLife>(); }

}  // namespace faults
