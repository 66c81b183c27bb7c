// SPDX-License-Identifier: MIT
// One connection of a queue pair, from attach to end: its two directions, and how it ends.
//
// QpConnection makes a stream when the queue pair is connected, and drops it at the latest in RESET. The next
// connection has a stream of its own, so a timer that expires late finds the stream that it was set for, or none. All
// functions are called inside a ReadSection, with the locks held that are named below.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "provider/progress/driver.h"
#include "provider/stream/movement.h"
#include "provider/stream/receiver.h"
#include "provider/stream/sender.h"
#include "provider/stream/stream_owner.h"
#include "provider/stream/stream_state.h"

namespace uiw::provider {

class Stream final : public std::enable_shared_from_this<Stream> {
 public:
  using Phase = StreamPhase;

  // References must remain live as long as the stream. `domain` and `identity` are identifiers for StagTable: the
  // protection domain, and what binds memory windows of type 2. `owner` may be null. Throws std::bad_alloc.
  Stream(StreamWork& work, StreamHost& host, Engine& engine, StreamLocks& locks, StreamSignals& signals,
         rdmap::SendQueue& sends, std::uint32_t qp_number, const void* domain, const void* identity,
         const rdmap::ConnectionRules& rules, std::shared_ptr<StreamOwner> owner);

  Phase phase() const { return state_.phase.load(); }
  bool runs() const { return state_.runs(); }
  bool runs_or_closes() const { return state_.runs_or_closes(); }
  const rdmap::ConnectionRules& rules() const { return state_.rules; }
  mpa::PeerKind peer() const { return state_.reads.peer.load(std::memory_order_relaxed); }

  // StreamSender and StreamReceiver say which lock each of their functions needs.
  StreamSender& sender() { return sender_; }
  StreamReceiver& receiver() { return receiver_; }

  // ---- With both locks held ----
  // Not open until QpConnection::attach() has moved a socket here.
  TcpStream& socket() { return state_.socket; }
  // Octets go through shared memory once the peer has agreed. Called once, behind the socket's beginning and before
  // anything is sent. 0 or an errno. Throws std::bad_alloc.
  int share(SharedOffer&& offer);
  // Ends the stream and completes no posted work. The receive that a message has begun to use is given back; for
  // `completes` see StreamWork::give_back().
  void abandon(bool completes);
  // In the child of a fork: the stream belongs to the parent, and is not used here.
  void after_fork_in_child() { state_.phase = Phase::ended; }

  // ---- With the receiver's lock held ----
  // See StreamReceiver::turn(). Ends the stream first if the sender has found an error.
  bool receive_turn(Driver driver, bool& work);
  bool is_of(const StreamOwner* owner) const { return owner_.get() == owner; }
  // Orderly end: what is posted is sent, then TCP is closed. ENOTCONN if the stream is over already.
  int disconnect();
  // Ends the stream without the peer: it has sent no first message in time, or a fault was asked for.
  enum class Lost { beginning, by_fault };
  void lose_connection(Lost why);
  // A completion queue had no room: sends a Terminate.
  void completion_lost();
  // There is no memory for something that the stream needs: ends it by RST.
  void end_without_memory();
  // ibv_modify_qp to ERR: flushes all work. The stream runs or closes.
  void flush_work();
  // Tells a peer with the remote completion rule what has been placed, as far as TCP takes the octets at once.
  void leave();
  // Posted work has waited for its peer for too long: `culprit` completes with `status`, and the rest is flushed.
  // Without a culprit all work is flushed, and IBV_EVENT_QP_FATAL is reported. The stream lingers if `status` is
  // rnr_exceeded, and ends at once otherwise.
  void fail_work(std::optional<std::uint64_t> culprit, rdmap::Status status);

 private:
  friend class StreamReceiver;

  // StreamReceiver calls these, with the receiver's lock held. `broken`: the connection did not end by FIN.
  void peer_closed(bool broken);
  void peer_terminated(const rdmap::Terminate& terminate);
  void stream_error(const rdmap::Terminate& terminate);
  void end_lingering();
  void give_up_later();
  // Calls `function` on the thread "uiw-cm" after `delay`, if the stream is there then. False if there is no memory.
  bool later(std::chrono::milliseconds delay, void (Stream::*function)(std::uint64_t), std::uint64_t argument);
  // Called by timers. `looks`: how many there have been, with this one.
  void stop_lingering(std::uint64_t looks);
  void stop_closing(std::uint64_t);
  void give_up(std::uint64_t pauses);
  void report_rnr(std::uint64_t pauses);
  void speak_first(std::uint64_t acknowledged);

  void peer_left(bool broken);
  void end_with(const rdmap::Terminate& terminate, bool peer_gone = false);
  void end_for_send_error(bool linger);
  // All work is flushed and the state of the queue pair is ERR. `linger` keeps the socket until the FPDU in progress
  // and a Terminate, if one is due, have gone out and the peer has closed.
  void end(std::optional<std::uint64_t> culprit, rdmap::Status status, bool linger);
  void end_by_reset();
  void report_lost();
  void let_go_of_socket();
  void tell_owner();
  void forget();

  StreamState state_;
  std::shared_ptr<StreamOwner> owner_;
  Movement movement_;
  bool giving_up_ = false;
  bool speaks_first_ = false;    // a responder that has been allowed to send before the peer's first message
  bool error_reported_ = false;  // by a completion of the send queue
  alignas(64) StreamSender sender_;
  alignas(64) StreamReceiver receiver_;
};

}  // namespace uiw::provider
