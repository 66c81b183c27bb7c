// SPDX-License-Identifier: MIT
#include "provider/stream/stream.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <mutex>
#include <utility>

#include "provider/memory/memory.h"
#include "provider/process/cm_loop.h"
#include "provider/progress/clock.h"
#include "provider/progress/engine.h"

namespace uiw::provider {

Stream::Stream(StreamWork& work, StreamHost& host, Engine& engine, StreamLocks& locks, StreamSignals& signals,
               rdmap::SendQueue& sends, std::uint32_t qp_number, const void* domain, const void* identity,
               const rdmap::ConnectionRules& rules, std::shared_ptr<StreamOwner> owner)
    : state_{work,
             host,
             engine,
             locks,
             signals,
             sends,
             qp_number,
             rules,
             TcpStream(),
             nullptr,
             StreamPhase::running,
             rdmap::SharedReads(rules.requests_out, rules.requests_in)},
      owner_(std::move(owner)),
      sender_(state_, domain, identity),
      receiver_(*this, state_, sender_, domain, identity) {}

int Stream::share(SharedOffer&& offer) {
  state_.shared = std::make_unique<SharedStream>(state_.socket, std::move(offer), !state_.rules.shared_octets);
  const auto place = state_.engine.begin_sharing(state_.qp_number);
  if (place == DoorbellPage::kNoPlace) {
    // The stream stays on TCP. A caller has not said yet that it takes the memory; a called end has to refuse it.
    if (!state_.rules.initiator) {
      state_.shared->refuse();
    } else {
      state_.shared.reset();
      log_way(state_, false);
    }
    return 0;
  }
  state_.shared->set_place(place);
  const int error = state_.shared->begin();
  if (error != 0) state_.shared.reset();
  return error;
}

bool Stream::later(std::chrono::milliseconds delay, void (Stream::*function)(std::uint64_t), std::uint64_t argument) {
  try {
    CmLoop::instance().after(
        delay, [find = state_.engine.finder(), number = state_.qp_number, weak = weak_from_this(), function, argument] {
          const ReadSection section;
          // The function takes locks of the queue pair, which lives until the section closes.
          if (find(number) == nullptr) return;
          if (const auto stream = weak.lock()) (stream.get()->*function)(argument);
        });
    return true;
  } catch (const std::exception&) {  // no memory
    return false;
  }
}

bool Stream::receive_turn(Driver driver, bool& work) {
  const StreamPhase phase = state_.phase.load();
  if (phase == StreamPhase::ended || phase == StreamPhase::gone) return false;
  // This comes first, since nothing may be placed for work that has been flushed.
  if (sender_.take_error() && state_.runs_or_closes()) end_for_send_error(true);
  return receiver_.turn(driver, work);
}

// An adapter may give up if a message comes together with the reply, so there is a pause between the two. If there is
// no memory for the timer, the stream waits for the peer's first message.
void Stream::speak_first(std::uint64_t acknowledged) {
  const std::lock_guard lock(state_.locks.receive);
  if (!state_.runs_or_closes() || receiver_.is_established()) return;
  if (acknowledged == 0) {
    later(StreamReceiver::kReplyTime, &Stream::speak_first, sender_.all_acknowledged());
    return;
  }
  speaks_first_ = true;
  const std::lock_guard send_lock(state_.locks.send);
  sender_.transmitter().release_hold();
  sender_.transmit();
}

void Stream::end_lingering() {
  const std::lock_guard lock(state_.locks.send);
  if (sender_.is_done()) let_go_of_socket();
}

void Stream::report_rnr(std::uint64_t pauses) {
  const std::lock_guard lock(state_.locks.receive);
  receiver_.report_rnr(pauses);
}

}  // namespace uiw::provider
