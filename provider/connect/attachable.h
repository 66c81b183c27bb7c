// SPDX-License-Identifier: MIT
// The interface of an endpoint that gets the stream of a new connection. It is implemented by Qp and, for connections
// of rdma_cm without a connected queue pair, by Placeholder (startup/placeholder.h). With this interface connect/ needs
// no header of queue pairs.
//
// Thread-safe: each function takes the locks that it needs by itself. A queue pair that was found by its number
// (qp_table.h) inside a ReadSection lives until the ReadSection ends.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/stream/shared_stream.h"
#include "base/stream/tcp_stream.h"
#include "mpa/startup.h"
#include "provider/connect/attempt.h"
#include "provider/connection/connection_owner.h"
#include "rdmap/transmit/transmitter.h"

namespace uiw::provider {

// What attach() needs besides the socket: what the two ends have agreed on, and what this end has decided.
struct Attachment {
  mpa::Agreement agreement;
  bool initiator = false;
  std::size_t mulpdu = 0;  // the largest ULPDU to send, in octets; 0: attach() chooses a size
  // The attempt of a manual connection, which the program makes without rdma_cm; the program then sets the state and
  // the attributes of the queue pair. nullptr if rdma_cm connects; then attach() sets the state RTS, IRD and ORD.
  std::shared_ptr<manual::Attempt> attempt;
  std::uint32_t peer_psn = 0;  // manual connection: the peer's rq_psn; 0: not known
  rdmap::Completion completion = rdmap::Completion::local;
  // Upper limits for the ORD and IRD that the program sees. `agreement` may allow more requests; the additional ones
  // are for probes: RDMA Reads of no octets, by which uiw finds out what is placed
  // (rdmap/transmit/placement_tracker.h).
  std::uint32_t ord = ~0U, ird = ~0U;
  std::shared_ptr<ConnectionOwner> owner;
  // If true, the owner watches the socket for the peer's first message, and no thread reads from the socket before the
  // owner has called arrived().
  bool first_by_owner = false;
  std::shared_ptr<SharedOffer> rings;  // shared memory for the stream, used up by attach(); null: TCP only
};

class Attachable {
 public:
  // Gives the queue pair its stream. 0 or an errno: EINVAL if the state of the queue pair does not allow this stream,
  // if the attempt is over or if the queue pair is being destroyed; EISCONN if the queue pair has a stream; EPERM if
  // the peer means another queue pair; ENOMEM; or an errno of Engine::add() or SharedStream::begin(). On success the
  // stream owns the socket; on failure `socket` still owns it.
  virtual int attach(TcpStream& socket, const Attachment& attachment) = 0;
  // Whether the state of the endpoint allows attach() now. `attempt`: as in Attachment.
  virtual bool can_attach(const manual::Attempt* attempt) = 0;
  // The descriptor by which a peer on this host wakes a thread that sends and receives for this endpoint. The engine
  // goes on owning the descriptor (Engine::doorbell). -1 if there is none.
  virtual int doorbell() { return -1; }
  // Whether the completion of work may wait until the peer confirms that the work is placed. False for a queue pair of
  // type UC, which completes work by the local rule (rdmap::Completion).
  virtual bool is_confirmed() const { return true; }
  // False if `peer_psn`, the peer's rq_psn, shows that the peer wants another queue pair, such as an earlier one with
  // the same number.
  virtual bool is_for(std::uint32_t peer_psn) = 0;
  // Ends the stream in order: sends what is posted, then closes TCP, and resets the connection if the peer takes too
  // long to close it. 0, or ENOTCONN if there is no stream, if the stream has ended, or if it belongs to another owner;
  // nullptr stands for any owner.
  virtual int disconnect(const ConnectionOwner* owner) = 0;
  // Called when the owner has seen that the peer's first octets, or the end of its stream, have arrived. Reads these
  // octets. If another thread is reading or ending the stream, waits until that thread has done so.
  virtual void arrived(const ConnectionOwner* owner) = 0;
  // Called when the peer has sent no first message before the start-up deadline. If the peer is the caller, it must
  // send a first message, so the stream of `owner` ends. If the peer is the called end, it may stay silent; until it
  // sends something it counts as an implementation other than uiw (mpa::PeerKind::other).
  virtual void no_first_message(const ConnectionOwner* owner) = 0;
  // Fails work that has waited for its peer for too long, if the rules of InfiniBand apply to this connection. `late`:
  // for how long this process has delayed the check; for work that waits for a connection, this delay does not count as
  // waiting time. True if there is work that has to be checked again later.
  virtual bool check_retry_timer(std::chrono::nanoseconds late) = 0;
  // Restarts the waiting time of work that waits for a connection.
  virtual void restart_retry_timer() = 0;

 protected:
  ~Attachable() = default;
};

}  // namespace uiw::provider
