// SPDX-License-Identifier: MIT
// A listening id: it makes a new id of each call (cma.c: rdma_listen, iw_conn_req_handler, for RoCE
// cma_ib_req_handler).
//
// Part of a CmId, which owns it and outlives it; the provider holds it weakly, by its id. Members need the registry's
// lock; listen() is called with the id's command lock, requested() on any thread.
#pragma once

#include <sys/socket.h>

#include <memory>
#include <utility>

#include "kernel-abi/rdma_cm/cm_channel.h"
#include "provider/connect/connection.h"
#include "provider/connect/listener.h"
#include "provider/process/device.h"

namespace uiw::kernel_abi {

class CmListener final : public provider::ListenObserver {
 public:
  explicit CmListener(CmId& id) : id_(id) {}

  // 0 or an errno.
  int listen(int backlog);

  // provider::ListenObserver
  void requested(std::shared_ptr<provider::Connection> call, const provider::ConnectionParameters& peer) override;

  // With the registry's lock held. The program has fetched a CONNECT_REQUEST, so there is room for another.
  void count_reported() { ++backlog_; }
  // To be destroyed without the lock.
  std::shared_ptr<provider::Listener> detach() { return std::move(listener_); }

 private:
  void adopt(const std::shared_ptr<CmId>& child, const std::shared_ptr<provider::Connection>& call,
             const sockaddr_storage& local, const provider::DeviceInfo& device,
             const provider::ConnectionParameters& peer, CmEvents& event);

  CmId& id_;
  int backlog_ = 0;  // CONNECT_REQUEST events that may still be queued
  std::shared_ptr<provider::Listener> listener_;
};

}  // namespace uiw::kernel_abi
