// SPDX-License-Identifier: MIT
// Posts the events of an id to its channel, with the uid by which the program knows the id.
//
// A CmEventSource is part of a CmId. The memory of an event is allocated before the operation that causes the event
// begins: a program waits for events, so none may be lost for lack of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>

#include "kernel-abi/rdma_cm/cm_channel.h"
#include "kernel-abi/rdma_cm/cm_events.h"
#include "kernel-abi/rdma_cm/registry_lock.h"

namespace uiw::kernel_abi {

// The parameters of an event: of a connection, or of port space UDP.
using CmEventParameters = std::variant<rdma_ucm_conn_param, rdma_ucm_ud_param>;

class CmEventSource {
 public:
  CmEventSource(std::uint32_t number, std::shared_ptr<CmChannel> channel, std::uint64_t uid)
      : number_(number), channel_(std::move(channel)), uid_(uid) {}

  const std::shared_ptr<CmChannel>& channel() const UIW_REQUIRES(g_registry_lock) { return channel_; }
  void set_channel(std::shared_ptr<CmChannel> channel) UIW_REQUIRES(g_registry_lock) { channel_ = std::move(channel); }
  // The program's name for the id. For the new id of an incoming call it is 0 until ACCEPT. While it is 0, the events
  // of the id are dropped, except those that the program writes itself (CmId::write_event()).
  std::uint64_t uid() const UIW_REQUIRES(g_registry_lock) { return uid_; }
  void set_uid(std::uint64_t uid) UIW_REQUIRES(g_registry_lock) { uid_ = uid; }

  // Allocates memory for `count` events; throws std::bad_alloc.
  void reserve(std::size_t count) UIW_REQUIRES(g_registry_lock);
  // Posts an event; `owner` is the id of the event. If no memory is reserved and none can be allocated, the event is
  // dropped.
  void post(const std::shared_ptr<CmId>& owner, rdma_ucm_event_resp response) UIW_REQUIRES(g_registry_lock);
  void post(const std::shared_ptr<CmId>& owner, CmEventType event, int status, const CmEventParameters& parameters)
      UIW_REQUIRES(g_registry_lock);
  // Posts a MULTICAST_JOIN, in which the id and uid are those of the group.
  void post_group(const std::shared_ptr<CmId>& owner, const std::shared_ptr<CmGroup>& group,
                  const rdma_ucm_ud_param& parameters) UIW_REQUIRES(g_registry_lock);
  // Posts a CONNECT_REQUEST for the new id `child`, in the memory of the first element of `event`.
  void post_request(const std::shared_ptr<CmId>& owner, const std::shared_ptr<CmId>& child, std::uint32_t child_number,
                    const CmEventParameters& parameters, CmEvents& event) UIW_REQUIRES(g_registry_lock);

  // Counts one more event that the program has fetched; events_reported() returns the number of these events.
  void count_reported() UIW_REQUIRES(g_registry_lock) { ++events_reported_; }
  std::uint32_t events_reported() const UIW_REQUIRES(g_registry_lock) { return events_reported_; }

 private:
  const std::uint32_t number_;
  std::shared_ptr<CmChannel> channel_ UIW_GUARDED_BY(g_registry_lock);
  CmEvents spare_events_ UIW_GUARDED_BY(g_registry_lock);  // events whose memory was allocated in advance
  std::uint64_t uid_ UIW_GUARDED_BY(g_registry_lock);
  std::uint32_t events_reported_ UIW_GUARDED_BY(g_registry_lock) = 0;
};

}  // namespace uiw::kernel_abi
