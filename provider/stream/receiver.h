// SPDX-License-Identifier: MIT
// A stream's receiver takes octets from the socket and places them into the memory of the program; it pauses while no
// receive is posted. All functions are called with the receiver's lock held, except where said otherwise.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>

#include "mpa/deframer.h"
#include "provider/progress/driver.h"
#include "provider/progress/piggybacking.h"
#include "provider/progress/send_scheduler.h"
#include "provider/stream/read_ahead.h"
#include "provider/stream/sender.h"
#include "provider/stream/stream_state.h"
#include "rdmap/receiver.h"

namespace uiw::provider {

class Stream;
struct IoScratch;

class StreamReceiver final : rdmap::ReceiveHost {
 public:
  // References must remain live as long as the receiver. `domain`, `identity`: see Stream.
  StreamReceiver(Stream& stream, StreamState& state, StreamSender& sender, const void* domain, const void* identity);

  // One turn of the thread that drives. True if StreamSender::turn() is to follow, after the receiver's lock has been
  // released. `work` says whether there was anything to do.
  bool turn(Driver driver, bool& work);
  // Answers what has arrived, before our FIN.
  void answer_last();
  void watch_for_end();
  void report_rnr();
  // Whether the peer takes a report when this end leaves: it has the remote completion rule.
  bool takes_reports() const { return state_.rules.manual || peer_wants_reports_; }
  // The peer is now known to be uiw or not. A peer that is silent until the start-up deadline is treated as plain
  // iWARP until its first message.
  void peer_known(mpa::PeerKind peer, bool answer) override;
  // This end leaves: says how much of the peer's work has been placed, if the peer takes reports.
  void report_last();
  // Called by the timer that was set in the pause with this number.
  void report_rnr(std::uint64_t pauses);
  // As Driven says. Where octets go through memory the socket is silent, and stays watched.
  bool watch_socket(bool watched);
  // The stream is over: octets that were read and not taken are dropped.
  void stop();

  std::uint64_t pauses() const { return pauses_; }
  bool is_established() const { return established_; }
  // How long a peer gets to take in a reply that its TCP has acknowledged.
  static constexpr std::chrono::milliseconds kReplyTime{20};
  // The stream is attached. A responder whose peer asked for no peer-to-peer mode may send a moment after the peer has
  // its reply, if the settings allow that, and otherwise after the peer's first message. `by_owner`: nothing is read
  // before first_may_come(), which the owner of the connection calls.
  void wait_for_first_message(bool by_owner);
  void first_may_come() { first_by_owner_ = false; }
  bool error_reported() const { return error_reported_; }

  // The program has posted work. Any thread, with any lock or none.
  void note_post() { piggybacking_.posted(); }
  rdmap::Receiver& rdmap() { return receiver_; }

 private:
  // rdmap::ReceiveHost
  bool next_receive(rdmap::ReceiveBuffer& buffer) override;
  void receive_complete(const rdmap::ReceiveBuffer& buffer, rdmap::Status status, const Message& message) override;
  void read_complete() override;
  void answer_dropped(std::size_t octets) override;
  void read_requested(bool probe) override { (probe ? answer_wanted_ : transmit_wanted_) = true; }
  void progress_reported(const rdmap::Progress& progress) override;
  void reports_wanted() override;
  std::optional<rdmap::ErrorCode> invalidate(rdmap::Stag stag) override { return state_.work.invalidate(stag); }

  SendScheduler::AnswerConditions answer_conditions();
  bool receive(Driver driver);
  bool receive_available(Driver driver, IoScratch& io);
  ssize_t read(IoScratch& io, Octets& rest, bool& room_filled);
  bool take(std::size_t filled, Octets rest);
  bool drop_received();
  bool resume();
  bool pause(Octets rest);
  void set_receive_stalled(bool stalled);
  bool take_octets(Octets octets);
  bool take_result(mpa::Deframer::Result result, Octets rest);
  bool heard() const;
  void log_decision();
  void note_first_message();
  void report(rdmap::Stag occasion);
  void report_rnr_later();

  Stream& stream_;
  StreamState& state_;
  StreamSender& sender_;
  rdmap::Receiver receiver_;
  mpa::Deframer deframer_;
  ReadAhead read_ahead_;
  std::uint64_t pauses_ = 0;
  bool transmit_wanted_ = false;
  bool answer_wanted_ = false;  // by a probe: the peer only waits to hear that its work is placed
  Piggybacking piggybacking_;
  bool first_by_owner_ = false;
  bool established_ = false;
  bool way_logged_ = false;
  bool drop_logged_ = false;  // octets in an answer that was to have none
  bool peer_wants_reports_ = false;
  bool rnr_report_due_ = false;
  bool rnr_reported_ = false;  // the peer has been told of a pause, and not of its end
  bool watched_ = true;
  bool error_reported_ = false;  // by a completion of the receive queue
};

}  // namespace uiw::provider
