// SPDX-License-Identifier: MIT
#include "provider/connect/startup/call_base.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <utility>

#include "base/grace_period.h"
#include "base/mutex.h"
#include "mpa/startup.h"
#include "provider/connect/attachable.h"
#include "provider/connect/local_address.h"
#include "provider/connect/qp_table.h"
#include "provider/connect/startup/placeholder.h"
#include "provider/connection/linger.h"
#include "provider/process/device.h"
#include "provider/process/limits.h"
#include "provider/process/log.h"
#include "provider/process/settings.h"

namespace uiw::provider {

namespace {

using std::chrono::milliseconds;

// Whether this side requests CRCs on a connection from `local` to `remote`.
bool wants_crc(const sockaddr_storage& local, const sockaddr_storage& remote) {
  switch (settings().values.crc) {
    case CrcMode::on: return true;
    case CrcMode::off: return false;
    case CrcMode::automatic: break;
  }
  return !is_within_host(local, remote);
}

// When Sends and Writes complete (rdmap/transmit/transmitter.h), for the log.
const char* completion_text(const Attachable& qp, const Attachment& attachment) {
  if (attachment.completion == rdmap::Completion::local || !qp.is_confirmed()) return "TCP has them";
  if (attachment.agreement.ord == 0) return "TCP has them, since the peer takes no RDMA Read that could ask for more";
  return "the peer has placed them";
}

}  // namespace

CallBase::CallBase(TcpStream&& socket, State state) : state_(state), socket_(std::move(socket)) {}

CallBase::~CallBase() {
  if (socket_.is_open()) CmLoop::instance().unwatch(socket_.fd());
}

int CallBase::accept(const CallParameters&, std::weak_ptr<CallObserver>) { return EINVAL; }
int CallBase::reject(const std::vector<std::byte>&) { return EINVAL; }

int CallBase::disconnect() {
  const LockGuard lock(mutex_);
  if (state_ != State::attached && state_ != State::established) return ENOTCONN;
  const ReadSection section;
  Attachable* qp = end();
  if (qp == nullptr) return ENOTCONN;
  return qp->disconnect(this);
}

void CallBase::confirm() {
  const LockGuard lock(mutex_);
  if (placeholder_) placeholder_->confirm();
}

sockaddr_storage CallBase::local_address() const {
  const LockGuard lock(mutex_);
  return local_;
}

sockaddr_storage CallBase::remote_address() const {
  const LockGuard lock(mutex_);
  return remote_;
}

// Stops watching the socket, since epoll would report each later arrival to CmLoop, which has no use for it.
void CallBase::connection_established() noexcept {
  unwatch_stream();
  note_established();
}

void CallBase::note_established() noexcept {
  stream_established_.store(true);
  CmLoop::instance().post(weak_from_this().lock());
}

void CallBase::connection_ended() noexcept {
  unwatch_stream();
  stream_over_.store(true);
  CmLoop::instance().post(weak_from_this().lock());
}

// Does nothing for a manual connection, since its program gets no events, and for a Placeholder, which watches the
// socket itself.
int CallBase::watch_for_first_message() {
  if (own_.attempt || placeholder_) return 0;
  const int error = CmLoop::instance().watch(socket_.fd(), EPOLLIN | EPOLLRDHUP | EPOLLET, weak_from_this());
  if (error == 0) watched_.store(socket_.fd());
  return error;
}

void CallBase::unwatch_stream() {
  if (const int fd = watched_.exchange(-1); fd >= 0) CmLoop::instance().unwatch(fd);
}

// Makes the endpoint read what has arrived. If another thread is ending the stream, returns after that thread has done
// so. False if the socket does not belong to a stream.
bool CallBase::hear_stream() {
  const ReadSection section;
  Attachable* qp;
  {
    const LockGuard lock(mutex_);
    if (state_ != State::attached && state_ != State::established) return false;
    qp = end();
  }
  if (qp != nullptr) qp->arrived(this);
  return true;
}

void CallBase::ready(std::uint32_t) {
  if (hear_stream()) return run();
  without_exceptions([this](UniqueLock<Mutex>& lock) {
    assume_held(mutex_);
    socket_ready(lock);
  });
}

void CallBase::run() {
  const bool over = stream_over_.exchange(false);  // read first, since a stream is established before it ends
  if (stream_established_.exchange(false)) {
    without_exceptions([this](UniqueLock<Mutex>& lock) {
      assume_held(mutex_);
      on_established(lock);
    });
  }
  if (over) {
    hear_stream();
    without_exceptions([this](UniqueLock<Mutex>& lock) {
      assume_held(mutex_);
      on_ended(lock);
    });
  }
  without_exceptions([this](UniqueLock<Mutex>& lock) {
    assume_held(mutex_);
    deadline(lock);
  });
}

unsigned CallBase::probes(const CallParameters& own) const {
  return revision_ >= 2 && remote_completion(own.attempt != nullptr) ? rdmap::SharedReads::kMostProbes : 0;
}

mpa::Proposal CallBase::proposal_of(const CallParameters& own) const {
  mpa::Proposal proposal;
  proposal.crc = wants_crc(local_, remote_);
  proposal.markers = settings().values.markers;
  proposal.revision = revision_;
  // IRD and ORD exceed the program's values by the number of probes, the Reads that confirm completions; it may be 0.
  proposal.ird = std::min<unsigned>(own.responder_resources, kMaxReadDepth) + probes(own);
  proposal.ord = std::min<unsigned>(own.initiator_depth, kMaxReadDepth) + probes(own);
  proposal.private_data = own.private_data;
  if (!own.attempt && settings().values.transport == Transport::roce) append(own.retries, proposal.private_data);
  proposal.read_as_rtr = placeholder_ == nullptr;
  return proposal;
}

CallParameters CallBase::parameters_of_peer() const {
  CallParameters parameters;
  const unsigned own_probes = probes(own_);
  // The IRD and ORD of a uiw peer include Reads for the peer's probes, usually `own_probes` as at this end. So
  // `own_probes` is subtracted from the values of any peer. If the value of a peer that is not uiw is not larger than
  // `own_probes`, the program gets 1, or 0 if the value is 0.
  const auto depth = [&](unsigned value) -> unsigned {
    assume_held(mutex_);
    if (!said_.read_depths_known) return kMaxReadDepth;
    const unsigned reads = value > own_probes ? value - own_probes : std::min(value, 1U);
    return std::min<unsigned>(reads, kMaxReadDepth);
  };
  parameters.responder_resources = depth(said_.ird);
  parameters.initiator_depth = depth(said_.ord);
  parameters.private_data = said_.private_data;
  if (!own_.attempt) parameters.retries = take_retry_counts(parameters.private_data);
  return parameters;
}

void CallBase::remember_addresses() {
  socklen_t size = sizeof local_;
  ::getsockname(socket_.fd(), reinterpret_cast<sockaddr*>(&local_), &size);
  size = sizeof remote_;
  ::getpeername(socket_.fd(), reinterpret_cast<sockaddr*>(&remote_), &size);
}

void CallBase::start_deadline() {
  const milliseconds time(settings().values.startup_timeout_ms);
  deadline_ = CmLoop::Clock::now() + time;
  CmLoop::instance().after(time, shared_from_this());
}

void CallBase::deadline(UniqueLock<Mutex>& lock) {
  if (!deadline_ || CmLoop::Clock::now() < *deadline_) return;
  deadline_.reset();
  switch (state_) {
    case State::connecting:
    case State::awaiting_reply:
    case State::awaiting_request: fail(lock, ETIMEDOUT, nullptr); break;
    case State::attached:
    case State::established:
      end_error_ = ETIMEDOUT;  // if the ready-to-receive message is missing, the connection fails
      unlock_and(lock, [this] { no_first_message(); });
      break;
    case State::requested:
    case State::over: break;
  }
}

Attachable* CallBase::find_end(const CallParameters& own) {
  placeholder_.reset();  // left by an earlier find_end()
  Attachable* qp = find_attachable(own.qp_num);
  if (qp != nullptr) return qp->can_attach(own.attempt.get()) ? qp : nullptr;
  if (own.attempt || settings().values.transport != Transport::roce) return nullptr;
  placeholder_ = std::make_shared<Placeholder>();
  return placeholder_.get();
}

Attachable* CallBase::end() const { return placeholder_ ? placeholder_.get() : find_attachable(own_.qp_num); }

int CallBase::hand_over(Attachable& qp, const mpa::Agreement& agreement, bool initiator,
                        std::shared_ptr<SharedOffer> rings) {
  if (initiator) CmLoop::instance().unwatch(socket_.fd());
  const State before = state_;
  state_ = State::attached;
  start_deadline();
  Attachment attachment;
  attachment.agreement = agreement;
  attachment.initiator = initiator;
  attachment.attempt = own_.attempt;
  attachment.peer_psn = own_.peer_psn;
  if (remote_completion(own_.attempt != nullptr)) attachment.completion = rdmap::Completion::remote;
  attachment.ord = own_.initiator_depth;
  attachment.ird = own_.responder_resources;
  // If the peer has not said how many Reads it accepts, ORD is at most the program's value, without Reads for probes.
  const bool ird_known = said_.read_depths_known && said_.ird != mpa::kReadDepthNotNegotiated;
  if (!ird_known) attachment.agreement.ord = std::min(agreement.ord, attachment.ord);
  attachment.mulpdu = settings().values.mulpdu;
  attachment.owner = shared_from_this();
  attachment.rings = std::move(rings);
  attachment.first_by_owner = !own_.attempt && !initiator && agreement.rtr != mpa::ReadyToReceive::none;
  const char* const way = attachment.rings == nullptr ? "TCP" : initiator ? "shared memory" : "shared memory offered";
  int error = 0;
  try {
    error = qp.attach(socket_, attachment);
  } catch (const std::exception&) {
    error = ENOMEM;
  }
  if (error != 0) {
    unwatch_stream();
    state_ = before == State::requested ? State::over : before;
    log_event(LogLevel::error, "queue pair 0x%06x: cannot be given its connection to %s: %s", own_.qp_num,
              AddressText(remote_).c_str(), text_of_errno(error));
    return error;
  }
  log_event(LogLevel::info,
            "queue pair 0x%06x: connected to %s (%s, %s; MPA revision %u, CRC %s, IRD %u, ORD %u; Sends and Writes "
            "complete when %s; through %s)",
            own_.qp_num, AddressText(remote_).c_str(), own_.attempt ? "without rdma_cm" : "rdma_cm",
            initiator ? "calling" : "called", agreement.revision, agreement.crc ? "on" : "off", agreement.ird,
            agreement.ord, completion_text(qp, attachment), way);
  return 0;
}

bool CallBase::send_whole(const std::vector<std::byte>& octets) {
  iovec vector{const_cast<std::byte*>(octets.data()), octets.size()};
  return socket_.send({&vector, 1}) == static_cast<ssize_t>(octets.size());
}

void CallBase::no_first_message() {
  const ReadSection section;
  Attachable* qp;
  {
    const LockGuard lock(mutex_);
    qp = end();
  }
  if (qp != nullptr) qp->no_first_message(this);
}

void CallBase::on_established(UniqueLock<Mutex>& lock) {
  if (state_ != State::attached) return;
  state_ = State::established;
  const auto observer = observer_.lock();
  const CallParameters peer = end_startup();
  unlock_and(lock, [&] {
    if (observer) observer->established(peer);
  });
}

CallParameters CallBase::end_startup() {
  deadline_.reset();
  rendezvous_.reset();
  CmLoop::instance().cancel(*this);
  frame_ = StartupFrame();
  own_.private_data = std::vector<std::byte>();  // a new vector, so that the memory is freed too
  said_.private_data = std::vector<std::byte>();
  own_.check_reply = nullptr;
  drop_startup();
  return std::exchange(peer_parameters_, {});
}

void CallBase::on_ended(UniqueLock<Mutex>& lock) {
  const State before = state_;
  if (before == State::over) return;
  state_ = State::over;
  const auto observer = observer_.lock();
  const int error = end_error_;
  unlock_and(lock, [&] {
    if (!observer) return;
    if (before == State::established) {
      observer->disconnected();
    } else {
      observer->failed(error, nullptr);
    }
  });
}

// Failures of manual connections are not logged, since each end tries again until its peer is there.
void CallBase::log_failure(int error, bool rejected, bool answer_awaited) const {
  if (own_.attempt || !logs(LogLevel::error)) return;
  const char* why = text_of_errno(error);
  if (rejected) {
    why = "the peer's program has rejected it";
  } else if (error == ECONNREFUSED) {
    why = "no process listens there";
  } else if (error == ETIMEDOUT) {
    why = "the peer does not answer in time";
  } else if (error == EPROTO) {
    why = "the start-up frames do not fit together, or are not those of MPA";
  }
  const bool given_up = rejected || error == ECONNRESET || error == ETIMEDOUT || error == EPROTO;
  log_event(LogLevel::error, "connection with %s failed: %s%s", AddressText(remote_).c_str(), why,
            answer_awaited && given_up && settings().values.markers ? kNoMarkersPerhaps : "");
}

void CallBase::fail(UniqueLock<Mutex>& lock, int error, const CallParameters* peer) {
  if (state_ == State::over) return;
  const bool answer_awaited = state_ == State::awaiting_reply;
  state_ = State::over;
  if (socket_.is_open()) CmLoop::instance().unwatch(socket_.fd());
  socket_.close();
  rendezvous_.reset();
  log_failure(error, peer != nullptr, answer_awaited);
  const auto observer = observer_.lock();
  const auto self = shared_from_this();
  unlock_and(lock, [&] {
    report_failure();
    if (observer) observer->failed(error, peer);
  });
}

}  // namespace uiw::provider
