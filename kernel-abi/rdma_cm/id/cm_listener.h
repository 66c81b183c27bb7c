// SPDX-License-Identifier: MIT
// A listening id: it creates a new id for each incoming call that it does not reject (cma.c: rdma_listen,
// iw_conn_req_handler, for RoCE cma_ib_req_handler).
//
// A CmListener is a member of its CmId. The provider has a weak_ptr to the CmListener; while the provider locks it, the
// whole CmId lives. listen() is called with the id's command lock held, the functions of ListenObserver on the thread
// "uiw-cm".
#pragma once

#include <sys/socket.h>

#include <memory>
#include <utility>

#include "kernel-abi/rdma_cm/cm_channel.h"
#include "kernel-abi/rdma_cm/registry_lock.h"
#include "provider/connect/call.h"
#include "provider/connect/listener.h"
#include "provider/process/device.h"

namespace uiw::kernel_abi {

class CmListener final : public provider::ListenObserver {
 public:
  explicit CmListener(CmId& id) : id_(id) {}

  // 0 or an errno.
  int listen(int backlog);

  // Listens on the socket that CmRoute::give_way() has bound to a substitute port, instead of the present socket. 0 or
  // an errno. Called with the id's command lock held.
  int move();

  // provider::ListenObserver
  void requested(std::shared_ptr<provider::Call> call, const provider::CallParameters& peer) override;
  bool has_room() override;

  // The program has fetched a CONNECT_REQUEST, so there is room for another one.
  void count_reported() UIW_REQUIRES(g_registry_lock) { ++backlog_; }
  // What the caller of detach() destroys without holding the registry's lock.
  struct Detached {
    std::shared_ptr<provider::Listener> listener;
    int inherited_socket;  // the caller closes it, if it is not -1
  };
  Detached detach() UIW_REQUIRES(g_registry_lock);

  // In the child of a fork: keeps only the socket. Returns the parent's listener, which is not to be destroyed.
  std::shared_ptr<provider::Listener> inherit() UIW_REQUIRES(g_registry_lock);
  // To be called when the parent has ended: makes the channel readable when the first peer connects, unless the program
  // uses the channel before.
  void watch_for_caller() UIW_REQUIRES(g_registry_lock);
  // Listens on the socket that the parent has left, if there is one. 0 or an errno. Called with the id's command lock
  // held.
  int go_on();

 private:
  class CallerWatch;
  int listen_on(int socket, int backlog, std::shared_ptr<provider::Listener>& listener);
  void adopt(const std::shared_ptr<CmId>& child, const std::shared_ptr<provider::Call>& call,
             const sockaddr_storage& local, const provider::DeviceInfo& device, const provider::CallParameters& peer,
             CmEvents& event) UIW_REQUIRES(g_registry_lock);

  CmId& id_;
  int backlog_ UIW_GUARDED_BY(g_registry_lock) = 0;  // how many more CONNECT_REQUEST events may be queued
  std::shared_ptr<provider::Listener> listener_ UIW_GUARDED_BY(g_registry_lock);
  int inherited_socket_ UIW_GUARDED_BY(g_registry_lock) = -1;
  std::shared_ptr<CallerWatch> caller_watch_ UIW_GUARDED_BY(g_registry_lock);
};

}  // namespace uiw::kernel_abi
