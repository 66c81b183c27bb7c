// SPDX-License-Identifier: MIT
// The send side of a queue pair for datagrams: a request becomes an entry of the send queue with an address. The entry
// becomes a datagram, and completes when the kernel has accepted the datagram.
//
// The functions are called with the sender's lock of the queue pair held. For an entry of an open batch build() and
// address() need no lock, but build() needs a ReadSection (base/grace_period.h).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "provider/datagram/datagram_port.h"
#include "provider/verbs/qp/work_queues.h"
#include "provider/verbs/qp_identity.h"

namespace uiw::provider {

class DatagramSender {
 public:
  // `qp` and `queues` must remain live as long as this object. Throws std::bad_alloc.
  DatagramSender(QpIdentity& qp, WorkQueues& queues, const ibv_qp_cap& granted, std::size_t most_octets);

  // Fills in the entry `sequence`, at or after the tail of the send queue. Returns 0, or the errno of ibv_post_send. If
  // the request has no address handle, the caller calls address() afterwards; if it does not, the request completes in
  // error.
  int build(std::uint64_t sequence, const ibv_send_wr& request);
  void address(std::uint64_t sequence, const ibv_ah* handle, std::uint32_t number, std::uint32_t qkey);

  // Sends what is posted, as far as the socket has room and there is memory for buffers. The rest is sent later, by
  // DatagramPort. False if some work cannot be sent (its memory is gone, its message is too long): that work has
  // completed in error, and the work after it is still posted.
  bool send(DatagramPort& port, std::uint32_t own_qkey);

 private:
  struct Destination {
    DatagramRoute route;
    std::uint32_t number, qkey;
    bool known;
  };
  Destination& destination(std::uint64_t sequence) { return destinations_[sequence % sends_.depth()]; }
  rdmap::Status encode_work(std::uint64_t sequence, std::uint32_t own_qkey, MutableOctets to);
  bool copy_out(std::uint64_t sequence, std::byte* to);

  QpIdentity& qp_;
  WorkQueues& queues_;
  rdmap::SendQueue& sends_;
  const std::size_t most_octets_;
  const std::unique_ptr<Destination[]> destinations_;  // one for each entry of the send queue
  std::uint32_t msn_ = 0;
};

}  // namespace uiw::provider
