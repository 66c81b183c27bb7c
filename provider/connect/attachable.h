// SPDX-License-Identifier: MIT
// The interface of an endpoint to which connection set-up gives a stream. Qp implements it, and so does Placeholder,
// for a stream without a queue pair. With this interface connect/ needs no header of queue pairs.
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
  // The attempt of a manual connection, in which the program sets the state and the attributes of the queue pair.
  // nullptr if rdma_cm connects: then attach() sets them.
  std::shared_ptr<manual::Attempt> attempt;
  std::uint32_t peer_psn = 0;  // manual connection: the peer's rq_psn; 0: not known
  rdmap::Completion completion = rdmap::Completion::local;
  // Limits of the ORD and IRD that the program sees; what was agreed on beyond them is for probes
  // (rdmap/transmit/transmitter.h).
  std::uint32_t ord = ~0U, ird = ~0U;
  std::shared_ptr<ConnectionOwner> owner;
  // The owner watches the socket for the peer's first message, and no thread reads from it before the owner calls
  // arrived().
  bool first_by_owner = false;
  std::shared_ptr<SharedOffer> rings;  // null: the stream stays on TCP; otherwise attach() empties it
};

class Attachable {
 public:
  // Gives the queue pair its stream. 0 or an errno: EINVAL if its state does not allow a stream or it is being
  // destroyed, EISCONN if it has one, EPERM if the peer means another queue pair, ENOMEM, or an errno of Engine::add().
  // On success the stream owns the socket; otherwise `socket` is as before.
  virtual int attach(TcpStream& socket, const Attachment& attachment) = 0;
  // Whether attach() would succeed now. `attempt`: as in Attachment.
  virtual bool can_attach(const manual::Attempt* attempt) = 0;
  // The descriptor by which a peer on this host wakes the thread that drives this end (Engine::doorbell). -1 if there
  // is none.
  virtual int doorbell() { return -1; }
  // Whether the peer can confirm what it has placed. If not, the local completion rule holds: a queue pair of UC.
  virtual bool is_confirmed() const { return true; }
  // Whether the peer with this PSN (see Attachment) means this queue pair, as far as is known.
  virtual bool is_for(std::uint32_t peer_psn) = 0;
  // Ends the stream in order: sends what is posted, then closes TCP, and resets the connection if the peer does not
  // close in time. ENOTCONN if there is no stream, or it belongs to another owner; nullptr stands for any owner.
  virtual int disconnect(const ConnectionOwner* owner) = 0;
  // The owner has seen that the peer's first octets, or the end of its stream, have arrived. Reads them, or, if another
  // thread is reading or ending the stream, waits until that thread has done so.
  virtual void arrived(const ConnectionOwner* owner) = 0;
  // The peer has sent no first message in time. A calling peer must send one, so the stream of this owner ends. A
  // called peer may stay silent; it is treated as plain iWARP (mpa::PeerKind) until it sends.
  virtual void no_first_message(const ConnectionOwner* owner) = 0;
  // Fails work that has waited for its peer for too long, if the rules of InfiniBand apply. `late`: the part of the
  // delay of this check that this process itself has caused; it is not counted while there is no connection. False if
  // no work is left to check.
  virtual bool check_retry_timer(std::chrono::nanoseconds late) = 0;
  // Begins anew the waiting time of work that waits for a connection.
  virtual void restart_retry_timer() = 0;

 protected:
  ~Attachable() = default;
};

}  // namespace uiw::provider
