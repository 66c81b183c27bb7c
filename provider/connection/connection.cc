// SPDX-License-Identifier: MIT
// Sessions of a connection: how one begins, whether its octets go through TCP or shared memory, and its timers.
#include "provider/connection/connection.h"

#include <exception>
#include <utility>

#include "base/mutex.h"
#include "provider/process/cm_loop.h"
#include "provider/process/log.h"
#include "provider/progress/engine.h"

namespace uiw::provider {

namespace {
std::atomic<std::uint64_t> g_sessions{0};
}

Connection::Session::Session(Connection& of, const rdmap::ConnectionRules& agreed,
                             std::shared_ptr<ConnectionOwner> owned_by)
    : number(g_sessions.fetch_add(1, std::memory_order_relaxed)),
      rules(agreed),
      owner(std::move(owned_by)),
      reads(agreed.requests_out, agreed.requests_in),
      transmitter(*of.sends_, *of.memory_, *of.work_),
      receiver(*of.memory_, of) {
  transmitter.start(rules, reads);
  receiver.start(reads, rules);
  using Kind = mpa::Deframer::Kind;
  deframer.start(rules.crc, rules.marked ? Kind::marked : rules.shared_octets ? Kind::shared : Kind::plain);
}

void Connection::prepare(std::uint32_t qp_number, const rdmap::ConnectionRules& rules,
                         std::shared_ptr<ConnectionOwner> owner, TcpStream&& socket) {
  number_ = qp_number;
  session_.emplace(*this, rules, std::move(owner));
  session_->socket = std::move(socket);
}

TcpStream Connection::take_back() {
  session_->owner.reset();
  session_->shared.reset();
  return std::move(session_->socket);
}

int Connection::share(SharedOffer&& offer) {
  std::unique_ptr<SharedStream>& shared = session_->shared;
  shared = std::make_unique<SharedStream>(session_->socket, std::move(offer), !session_->rules.shared_octets);
  const auto bell = engine_.begin_sharing(number_);
  if (bell == DoorbellPage::kNoBell) {
    // The doorbell page has no free bit, so the octets stay on TCP. The caller has not accepted the memory yet, and
    // need not; the called end has to refuse the memory that it has offered.
    if (!session_->rules.initiator) {
      shared->refuse();
    } else {
      shared.reset();
      log_way(false);
    }
    return 0;
  }
  shared->set_bell(bell);
  if (session_->rules.remote()) shared->follow_peer();
  const int error = shared->begin();
  if (error != 0) shared.reset();
  return error;
}

// Logs whether the octets go through shared memory. This is a line of its own, since the two ends have not agreed on
// shared memory yet when the connection is logged.
void Connection::log_way(bool shared_memory) const {
  log_event(LogLevel::info, "queue pair 0x%06x: its octets go through %s", number_,
            shared_memory ? "shared memory" : "TCP");
}

void Connection::after_fork_in_child() {
  if (!is_idle()) phase_ = Phase::ended;
  signals.deferred = false;
  signals.posts_wait_since = 0;
}

bool Connection::later(std::chrono::milliseconds delay, Late function, std::uint64_t argument) {
  try {
    CmLoop::instance().after(delay, [find = find_, qp = number_, session = session_->number, function, argument] {
      const ReadSection section;
      Connection* const connection = find(qp);
      if (connection == nullptr) return;
      const LockGuard lock(connection->locks.receive);
      if (connection->is_idle() || connection->session_->number != session) return;
      (connection->*function)(argument);
    });
    return true;
  } catch (const std::exception&) {  // no memory
    return false;
  }
}

// Called by a timer every kReplyTime at a responder that may send before the peer's first message. `acknowledged`: 1 if
// the peer's TCP had acknowledged the MPA Reply when the timer was started, else 0. So this end sends not earlier than
// kReplyTime after the acknowledgement, since some adapters give up if a message arrives together with the reply. If
// there is no memory for the timer, this end waits for the peer's first message.
void Connection::speak_first(std::uint64_t acknowledged) {
  if (!runs_or_closes() || session_->established) return;
  if (acknowledged == 0) {
    later(kReplyTime, &Connection::speak_first, all_acknowledged());
    return;
  }
  session_->speaks_first = true;
  const LockGuard send_lock(locks.send);
  session_->transmitter.release_hold();
  transmit();
}

}  // namespace uiw::provider
