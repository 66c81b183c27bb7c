// SPDX-License-Identifier: MIT
// What an id tells its program: events to its channel, under the name that the program has given it.
//
// Part of a CmId. Every function needs the registry's lock. The memory of an event is there before what it tells of
// begins: a program waits for events, and none may be lost for lack of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "kernel-abi/rdma_cm/cm_channel.h"
#include "kernel-abi/rdma_cm/cm_events.h"

namespace uiw::kernel_abi {

class CmEventSource {
 public:
  CmEventSource(std::uint32_t number, std::shared_ptr<CmChannel> channel, std::uint64_t uid)
      : number_(number), channel_(std::move(channel)), uid_(uid) {}

  const std::shared_ptr<CmChannel>& channel() const { return channel_; }
  void set_channel(std::shared_ptr<CmChannel> channel) { channel_ = std::move(channel); }
  // The program's name for the id; 0 until it accepts a new connection, and till then it is told nothing of it.
  std::uint64_t uid() const { return uid_; }
  void set_uid(std::uint64_t uid) { uid_ = uid; }

  // That many events have their memory from here on; throws std::bad_alloc.
  void reserve(std::size_t count);
  // `owner` is the id whose events these are. Those that nobody has reserved memory for are dropped where there is
  // none.
  void post(const std::shared_ptr<CmId>& owner, rdma_ucm_event_resp response);
  void post(const std::shared_ptr<CmId>& owner, CmEventType event, int status, const rdma_ucm_conn_param& parameters);
  // CONNECT_REQUEST, in the first of `event`: a peer calls, and `child` is its id.
  void post_request(const std::shared_ptr<CmId>& owner, const std::shared_ptr<CmId>& child, std::uint32_t child_number,
                    const rdma_ucm_conn_param& parameters, CmEvents& event);

  // Events that the program has fetched.
  void count_reported() { ++events_reported_; }
  std::uint32_t events_reported() const { return events_reported_; }

 private:
  const std::uint32_t number_;
  std::shared_ptr<CmChannel> channel_;
  CmEvents spare_events_;  // whose memory is there before they can come
  std::uint64_t uid_;
  std::uint32_t events_reported_ = 0;
};

}  // namespace uiw::kernel_abi
