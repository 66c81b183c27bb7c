// SPDX-License-Identifier: MIT
#include "provider/connect/startup/incoming_call.h"

#include <sys/epoll.h>

#include <cerrno>
#include <exception>
#include <utility>
#include <vector>

#include "base/grace_period.h"
#include "base/mutex.h"
#include "mpa/startup.h"
#include "provider/capture/connection_capture.h"
#include "provider/connect/attachable.h"
#include "provider/connect/qp_table.h"
#include "provider/connect/rendezvous.h"
#include "provider/connect/startup/call_base.h"
#include "provider/connection/linger.h"
#include "provider/process/cm_loop.h"
#include "provider/process/log.h"
#include "provider/process/settings.h"

namespace uiw::provider {

namespace {

// The responder of RFC 5044 section 7.1. Until hand_over() gives the stream to the queue pair, or until the call fails
// or is rejected, it is in the state awaiting_request or requested.
class CalledEnd final : public CallBase, public IncomingCall {
 public:
  explicit CalledEnd(TcpStream&& socket) : CallBase(std::move(socket), State::awaiting_request) {}

  int answer(std::function<void(std::shared_ptr<Call>, const CallParameters& peer)> on_request,
             std::function<void(const Call*)> on_failure) {
    const LockGuard lock(mutex_);
    on_request_ = std::move(on_request);
    on_failure_ = std::move(on_failure);
    remember_addresses();
    socket_.set_tap(capture_connection(local_, remote_, false));
    start_deadline();
    return CmLoop::instance().watch(socket_.fd(), EPOLLIN | EPOLLRDHUP, weak_from_this());
  }

  void run() override {
    without_exceptions([this](UniqueLock<Mutex>& lock) {
      assume_held(mutex_);
      report_request(lock);
    });
    CallBase::run();
  }

  const Call& connection() const override { return *this; }
  bool read() override {
    ready(0);
    const LockGuard lock(mutex_);
    return state_ != State::awaiting_request;
  }
  bool is_begun() const override {
    const LockGuard lock(mutex_);
    return frame_.is_begun();
  }

  int accept(const CallParameters& own, std::weak_ptr<CallObserver> observer) override {
    const LockGuard lock(mutex_);
    if (state_ != State::requested) return EINVAL;
    const ReadSection section;
    Attachable* const qp = find_end(own);
    if (qp == nullptr) return EINVAL;
    own_ = own;
    if (own.attempt && !qp->is_for(own.peer_psn)) return EPERM;  // refused before the peer gets a reply
    mpa::Proposal proposal = proposal_of(own);
    RingContact caller = placeholder_ ? RingContact() : RingContact(local_, remote_);
    if (!caller.found() && may_be_forwarded(own, proposal)) {
      log_event(LogLevel::info, "call of %s: its end is not known on this host, so it gets a CRC",
                AddressText(remote_).c_str());
      proposal.crc = true;
    }
    mpa::Agreement agreement;
    reply_ = mpa::reply_frame(request_, enhanced_, proposal, agreement);
    peer_parameters_ = parameters_of_peer();
    observer_ = std::move(observer);
    // Shared memory is offered only if the caller sends first, since the caller's first octets tell whether it has
    // accepted this memory. Without a ready-to-receive message the caller's program may wait for this end to send.
    const bool caller_speaks = own.attempt || agreement.rtr != mpa::ReadyToReceive::none;
    std::shared_ptr<SharedOffer> rings;
    if (!placeholder_ && caller_speaks && !agreement.marks && !agreement.marked) rings = caller.offer(*qp);
    const bool first_message = agreement.rtr != mpa::ReadyToReceive::none;
    CmLoop::instance().unwatch(socket_.fd());
    if (first_message) {
      if (const int error = watch_for_first_message(); error != 0) return error;
    }
    // If no ready-to-receive message was negotiated, the connection is established on this side by the reply.
    if (!first_message) note_established();
    // From here on nothing throws. The reply is small and is the first thing sent, so it fits into the socket's buffer.
    if (!send_whole(reply_)) {
      unwatch_stream();
      state_ = State::over;
      socket_.abort();
      return ECONNRESET;
    }
    const int error = hand_over(*qp, agreement, false, std::move(rings));
    // No Terminate is sent, since this end may send nothing before the first message of the peer.
    if (error != 0) socket_.abort();
    return error;
  }

  int reject(const std::vector<std::byte>& private_data) override {
    const LockGuard lock(mutex_);
    if (state_ != State::requested) return EINVAL;
    log_event(LogLevel::info, "call of %s is rejected", AddressText(remote_).c_str());
    try {
      send_whole(mpa::reject_frame(request_, private_data));
    } catch (const std::exception&) {  // no memory: the connection is closed without a rejection
    }
    state_ = State::over;
    CmLoop::instance().unwatch(socket_.fd());
    // If the socket were closed with unread octets, TCP would send a reset, and the peer could lose the rejection.
    linger_and_close_rejected(std::move(socket_));
    return 0;
  }

 private:
  void socket_ready(UniqueLock<Mutex>& lock) override UIW_REQUIRES(mutex_) {
    // Once the request has arrived, the program decides whether to accept the call. If the caller closes before that,
    // accept() may find it out, otherwise the stream finds it out after accept().
    if (state_ == State::awaiting_request) read_request(lock);
  }

  // Whether a program may be forwarding the octets of the caller, perhaps from another host. Called if the caller was
  // not found on this host. True if the setting for CRCs is `automatic`, the caller nevertheless has an address of this
  // host (so `proposal` has no CRC), and its request asks for no CRC. False for a Placeholder, and for a manual
  // connection, since manual/pairs.cc has checked the owner of the caller's socket.
  bool may_be_forwarded(const CallParameters& own, const mpa::Proposal& proposal) const UIW_REQUIRES(mutex_) {
    return settings().values.crc == CrcMode::automatic && !proposal.crc && !request_.crc && !placeholder_ &&
           !own.attempt;
  }

  void read_request(UniqueLock<Mutex>& lock) UIW_REQUIRES(mutex_) {
    switch (frame_.read(socket_)) {
      case StartupFrame::Result::more: return;
      case StartupFrame::Result::frame: break;
      default: return fail(lock, EPROTO, nullptr);
    }
    request_ = frame_.header();
    const auto error = mpa::read_request(request_, frame_.private_data(), said_, enhanced_);
    if (error != mpa::StartupError::none) return fail(lock, EPROTO, nullptr);
    state_ = State::requested;
    revision_ = request_.revision;
    log_event(LogLevel::info, "call of %s arrives at %s (MPA revision %u)", AddressText(remote_).c_str(),
              AddressText(local_).c_str(), revision_);
    // Nothing is read until the program has answered. The socket stays watched because, in the child of a fork, CmLoop
    // calls abandon() for each socket that it watches, which closes the child's copy.
    CmLoop::instance().change(socket_.fd(), EPOLLET);
    CmLoop::instance().cancel(*this);  // cancels the timer of the deadline
    CmLoop::instance().post_behind(shared_from_this());
  }

  void report_request(UniqueLock<Mutex>& lock) UIW_REQUIRES(mutex_) {
    if (state_ != State::requested) return;
    const auto on_request = std::exchange(on_request_, nullptr);
    if (!on_request) return;
    const CallParameters peer = parameters_of_peer();
    auto self = shared_from_this();
    unlock_and(lock, [&] { on_request(std::move(self), peer); });
  }

  void drop_startup() override UIW_REQUIRES(mutex_) {
    reply_ = std::vector<std::byte>();
    on_request_ = nullptr;
    on_failure_ = nullptr;
  }

  void report_failure() override {
    const auto on_failure = std::move(on_failure_);
    if (on_failure) on_failure(this);
  }

  mpa::StartupHeader request_ UIW_GUARDED_BY(mutex_);
  mpa::EnhancedHeader enhanced_ UIW_GUARDED_BY(mutex_);
  std::vector<std::byte> reply_ UIW_GUARDED_BY(mutex_);
  std::function<void(std::shared_ptr<Call>, const CallParameters& peer)> on_request_ UIW_GUARDED_BY(mutex_);
  std::function<void(const Call*)> on_failure_;  // guarded by mutex_ until the start-up has failed
};

}  // namespace

std::shared_ptr<IncomingCall> take_call(
    TcpStream&& socket, std::function<void(std::shared_ptr<Call>, const CallParameters& peer)> requested,
    std::function<void(const Call*)> failed) {
  auto made = std::make_shared<CalledEnd>(std::move(socket));
  return made->answer(std::move(requested), std::move(failed)) == 0 ? made : nullptr;
}

}  // namespace uiw::provider
