// SPDX-License-Identifier: MIT
// An endpoint that can be given a stream, as connection set-up sees it. Qp implements it, and Placeholder where the
// stream has no queue pair. So connect/ does without the headers of queue pairs.
//
// Thread-safe: all functions take the locks of the queue pair by themselves. If a queue pair is found by its number
// (qp_table.h) inside a ReadSection, it lives until that section closes.
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

// What the two ends have agreed on when the queue pair is given its stream.
struct Attachment {
  mpa::Agreement agreement;
  bool initiator = false;
  std::size_t mulpdu = 0;  // largest ULPDU to send; 0 follows the TCP segment size
  // Manual connection: its attempt; the program sets the state and the attributes of the queue pair. nullptr: rdma_cm
  // connects, and attach() sets them.
  std::shared_ptr<manual::Attempt> attempt;
  std::uint32_t peer_psn = 0;  // manual connection: the peer's rq_psn; 0: not known
  rdmap::Completion completion = rdmap::Completion::local;
  // The program sees at most this much of the ORD and IRD that were agreed on; the rest is for probes
  // (rdmap/transmit/transmitter.h).
  std::uint32_t ord = ~0U, ird = ~0U;
  std::shared_ptr<ConnectionOwner> owner;
  // The owner watches the socket for the peer's first message, and nobody reads before it calls arrived().
  bool first_by_owner = false;
  std::shared_ptr<SharedOffer> rings;  // null: the stream stays on TCP; otherwise attach() empties it
};

class Attachable {
 public:
  // Gives the queue pair its stream. 0 or an errno: EINVAL if its state does not allow a stream or it is being
  // destroyed, EISCONN if it has one, EPERM if the peer means another queue pair, ENOMEM, or an errno of Engine::add().
  // On success the stream owns the socket; otherwise `socket` is as before.
  virtual int attach(TcpStream& socket, const Attachment& attachment) = 0;
  // Whether attach() would succeed now. `attempt`: of a manual connection; nullptr: of rdma_cm.
  virtual bool can_attach(const manual::Attempt* attempt) = 0;
  // The descriptor by which a peer on this host wakes the thread that drives this end (Engine::doorbell). -1 if there
  // is none.
  virtual int doorbell() { return -1; }
  // Whether the peer can confirm what it has placed. If not, the local completion rule holds: a queue pair of UC.
  virtual bool is_confirmed() const { return true; }
  // Whether the peer with this PSN (see Attachment) means this queue pair, as far as is known.
  virtual bool is_for(std::uint32_t peer_psn) = 0;
  // Orderly end: what is posted is sent, then TCP is closed; a peer that does not close in time is reset. ENOTCONN if
  // there is no stream, or it belongs to another owner; nullptr stands for any owner.
  virtual int disconnect(const ConnectionOwner* owner) = 0;
  // The owner has seen that the peer's first octets, or its end, are there: reads them now, or waits until a thread
  // that is reading, or ending the stream, has done so.
  virtual void arrived(const ConnectionOwner* owner) = 0;
  // The peer has sent no first message in time. If it has called, that message is due, and the stream of this owner
  // ends; a peer that was called may stay silent, and is treated as plain iWARP (mpa::PeerKind) until it speaks.
  virtual void no_first_message(const ConnectionOwner* owner) = 0;
  // Fails work that has waited for its peer for too long, where the rules of InfiniBand hold. `late`: by how much this
  // check comes too late because of this process itself, which does not count while there is no connection. False if no
  // work is left that has to be checked.
  virtual bool check_retry_timer(std::chrono::nanoseconds late) = 0;
  // Restarts the time of work that waits for a connection.
  virtual void restart_retry_timer() = 0;

 protected:
  ~Attachable() = default;
};

}  // namespace uiw::provider
