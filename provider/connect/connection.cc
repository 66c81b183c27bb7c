// SPDX-License-Identifier: MIT
#include "provider/connect/connection.h"

#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <exception>
#include <functional>
#include <utility>

#include "mpa/descriptor.h"
#include "mpa/startup.h"
#include "mpa/tcp_stream.h"
#include "provider/connect/cm_loop.h"
#include "provider/connect/incoming_call.h"
#include "provider/connect/linger.h"
#include "provider/connect/local_address.h"
#include "provider/connect/startup_frame.h"
#include "provider/memory/grace_period.h"
#include "provider/process/device.h"
#include "provider/process/mutex.h"
#include "provider/process/settings.h"
#include "provider/stream/terminate_meaning.h"
#include "provider/verbs/limits.h"
#include "provider/verbs/qp/qp.h"
#include "provider/verbs/qp/qp_table.h"

namespace uiw::provider {

namespace {

using std::chrono::milliseconds;

bool is_this_host(const sockaddr_storage& remote) { return !device_of(generic(remote)).name.empty(); }

// Should this side ask for CRCs on a connection from `local` to `remote`?
bool wants_crc(const sockaddr_storage& local, const sockaddr_storage& remote) {
  switch (settings().values.crc) {
    case CrcMode::on: return true;
    case CrcMode::off: return false;
    case CrcMode::automatic: break;
  }
  // The first comparison spares most connections within a host the list of its addresses.
  return gid_of(generic(local)) != gid_of(generic(remote)) && !is_this_host(remote);
}

ConnectionParameters parameters_of(const mpa::PeerSaid& said) {
  ConnectionParameters parameters;
  const auto depth = [&](unsigned value) {
    return !said.read_depths_known || value > static_cast<unsigned>(kMaxReadDepth) ? kMaxReadDepth : value;
  };
  parameters.responder_resources = depth(said.ird);
  parameters.initiator_depth = depth(said.ord);
  parameters.private_data = said.private_data;
  return parameters;
}

class ConnectionImpl final : public Connection,
                             public StreamOwner,
                             public CmLoop::Handler,
                             public CmLoop::TimedTask,
                             public std::enable_shared_from_this<ConnectionImpl> {
 public:
  enum class State { connecting, awaiting_reply, awaiting_request, requested, replying, attached, established, over };

  ConnectionImpl(mpa::TcpStream&& socket, State state) : state_(state), socket_(std::move(socket)) {}
  ~ConnectionImpl() override {
    if (socket_.is_open()) CmLoop::instance().unwatch(socket_.fd());
  }

  // ---- Active side ----
  int call(const sockaddr_storage& remote, const ConnectionParameters& own, int tos,
           std::weak_ptr<ConnectionObserver> observer) {
    const std::lock_guard lock(mutex_);
    remote_ = remote;
    own_ = own;
    tos_ = tos;
    observer_ = std::move(observer);
    revision_ = own.manual ? 2 : settings().values.mpa_revision;  // either side may send first
    start_deadline();
    return connect_now();
  }

  // ---- Passive side ----
  int answer(std::function<void(std::shared_ptr<Connection>, const ConnectionParameters& peer)> on_request,
             std::function<void(const Connection*)> on_failure) {
    const std::lock_guard lock(mutex_);
    on_request_ = std::move(on_request);
    on_failure_ = std::move(on_failure);
    remember_addresses();
    start_deadline();
    return CmLoop::instance().watch(socket_.fd(), EPOLLIN | EPOLLRDHUP, weak_from_this());
  }

  int accept(const ConnectionParameters& own, std::weak_ptr<ConnectionObserver> observer) override {
    const std::lock_guard lock(mutex_);
    if (state_ != State::requested) return EINVAL;
    const ReadSection section;
    Qp* qp = find_qp(own.qp_num);
    if (qp == nullptr || !qp->can_attach(own.manual, own.life)) return EINVAL;
    if (own.manual && !qp->is_for(own.peer_psn)) return EPERM;  // before the peer takes a reply for a connection
    mpa::Proposal proposal = proposal_of(own);
    mpa::Agreement agreement;
    reply_ = mpa::reply_frame(request_, enhanced_, proposal, agreement);
    own_ = own;
    peer_parameters_ = parameters_of(said_);
    observer_ = std::move(observer);
    // From here on nothing fails for lack of memory. The reply is small and the first thing sent: it fits the socket.
    if (!send_whole(reply_)) {
      state_ = State::over;
      socket_.abort();
      return ECONNRESET;
    }
    return hand_over(*qp, agreement, false);
  }

  int reject(const std::vector<std::byte>& private_data) override {
    const std::lock_guard lock(mutex_);
    if (state_ != State::requested) return EINVAL;
    try {
      send_whole(mpa::reject_frame(request_, private_data));
    } catch (const std::exception&) {  // no memory: the peer sees the end, and not why
    }
    state_ = State::over;
    CmLoop::instance().unwatch(socket_.fd());
    close_later();
    return 0;
  }

  int disconnect() override {
    const std::lock_guard lock(mutex_);
    if (state_ != State::attached && state_ != State::established) return ENOTCONN;
    const ReadSection section;
    Qp* qp = find_qp(own_.qp_num);
    if (qp == nullptr) return ENOTCONN;
    return qp->disconnect(this);
  }

  sockaddr_storage local_address() const override {
    const std::lock_guard lock(mutex_);
    return local_;
  }
  sockaddr_storage remote_address() const override {
    const std::lock_guard lock(mutex_);
    return remote_;
  }

  // ---- StreamOwner: the queue pair calls with its locks held ----
  void stream_established() noexcept override {
    stream_stands_.store(true);
    CmLoop::instance().post(weak_from_this().lock());
  }
  void stream_ended() noexcept override {
    stream_over_.store(true);
    CmLoop::instance().post(weak_from_this().lock());
  }

  // ---- The loop ----
  void ready(std::uint32_t) override {
    without_exceptions([this](std::unique_lock<Mutex>& lock) {
      switch (state_) {
        case State::connecting: return connected(lock);
        case State::awaiting_reply: return read_reply(lock);
        case State::awaiting_request: return read_request(lock);
        case State::requested: {
          // The consumer thinks about it; a caller that hangs up meanwhile is found out when it is answered.
          CmLoop::instance().unwatch(socket_.fd());
          return;
        }
        default: return;
      }
    });
  }
  void run() override {
    without_exceptions([this](std::unique_lock<Mutex>& lock) {
      if (const int error = std::exchange(call_error_, 0); error != 0) not_reached(lock, error);
    });
    if (stream_stands_.exchange(false)) {
      without_exceptions([this](std::unique_lock<Mutex>& lock) { on_established(lock); });
    }
    if (stream_over_.exchange(false)) without_exceptions([this](std::unique_lock<Mutex>& lock) { on_ended(lock); });
    without_exceptions([this](std::unique_lock<Mutex>& lock) { deadline(lock); });
  }

 private:
  static constexpr int kReadable = EPOLLIN | EPOLLRDHUP;
  static constexpr unsigned kCalls = 11;  // where nobody listens; 50 ms in all
  static constexpr milliseconds kCallAgain{5};

  // A connection that is being set up fails where there is no memory for the next step.
  template <typename Step>
  void without_exceptions(Step step) {
    std::unique_lock lock(mutex_);
    try {
      step(lock);
    } catch (const std::exception&) {
      if (!lock.owns_lock()) lock.lock();
      if (state_ != State::attached && state_ != State::established) fail(lock, ENOMEM, nullptr);
    }
  }

  mpa::Proposal proposal_of(const ConnectionParameters& own) const {
    mpa::Proposal proposal;
    proposal.crc = wants_crc(local_, remote_);
    proposal.revision = revision_;
    // A few more each way than the program asks for, for the Reads that tell of completions.
    const unsigned probes = revision_ >= 2 && remote_completion(own.manual) ? rdmap::SharedReads::kMostProbes : 0;
    proposal.ird = std::min<unsigned>(own.responder_resources, kMaxReadDepth) + probes;
    proposal.ord = std::min<unsigned>(own.initiator_depth, kMaxReadDepth) + probes;
    proposal.private_data = own.private_data;
    return proposal;
  }

  void remember_addresses() {
    socklen_t size = sizeof local_;
    ::getsockname(socket_.fd(), reinterpret_cast<sockaddr*>(&local_), &size);
    size = sizeof remote_;
    ::getpeername(socket_.fd(), reinterpret_cast<sockaddr*>(&remote_), &size);
  }

  // Replaces the one before. The consumer's time to think about a request has none.
  void start_deadline() {
    const milliseconds time(settings().values.startup_timeout_ms);
    deadline_ = CmLoop::Clock::now() + time;
    CmLoop::instance().after(time, shared_from_this());
  }

  void deadline(std::unique_lock<Mutex>& lock) {
    if (!deadline_ || CmLoop::Clock::now() < *deadline_) return;
    deadline_.reset();
    switch (state_) {
      case State::connecting:
      case State::awaiting_reply:
      case State::awaiting_request: fail(lock, ETIMEDOUT, nullptr); break;
      case State::attached: {  // the ready-to-receive message has not come
        lock.unlock();
        abort_stream();
        break;
      }
      default: break;
    }
  }

  int connect_now() {
    if (tos_ > 0) {
      ::setsockopt(socket_.fd(), IPPROTO_IP, IP_TOS, &tos_, sizeof tos_);
      if (remote_.ss_family == AF_INET6) ::setsockopt(socket_.fd(), IPPROTO_IPV6, IPV6_TCLASS, &tos_, sizeof tos_);
    }
    state_ = State::connecting;
    int error = dial();
    // Within a host TCP has connected by then, and says so when it is asked again.
    if (error == EINPROGRESS) error = dial();
    if (error == EALREADY) return CmLoop::instance().watch(socket_.fd(), EPOLLOUT, weak_from_this());
    if (error == 0 && send_request()) return CmLoop::instance().watch(socket_.fd(), kReadable, weak_from_this());
    // Told to the observer like any other failure, since the call itself was in order.
    call_error_ = error != 0 ? error : ECONNRESET;
    CmLoop::instance().post(shared_from_this());
    return 0;
  }

  int dial() {
    for (;;) {
      if (::connect(socket_.fd(), generic(remote_), size_of(remote_)) == 0) return 0;
      // Linux ends the call before in the second way, once.
      if (errno != EINTR && !(errno == ECONNABORTED && refused_ > 0)) return errno;
    }
  }

  bool send_request() {
    remember_addresses();
    proposal_ = proposal_of(own_);
    if (!send_whole(mpa::request_frame(proposal_))) return false;
    state_ = State::awaiting_reply;
    frame_ = StartupFrame();
    return true;
  }

  // Nobody listens, or not yet: programs whose two ends agree on a port by themselves (perftest -R, qperf) call as soon as
  // the other is about to listen, and count on the time that an adapter takes to find it. Manual connections have their own time.
  void not_reached(std::unique_lock<Mutex>& lock, int error) {
    if (state_ != State::connecting) return;
    if (error != ECONNREFUSED || own_.manual || ++refused_ >= kCalls) return fail(lock, error, nullptr);
    CmLoop::instance().after(kCallAgain, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->call_again();
    });
  }

  void call_again() {
    without_exceptions([this](std::unique_lock<Mutex>& lock) {
      if (state_ != State::connecting) return;
      if (const int error = connect_now(); error != 0) fail(lock, error, nullptr);
    });
  }

  void connected(std::unique_lock<Mutex>& lock) {
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(socket_.fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error != 0) {
      CmLoop::instance().unwatch(socket_.fd());
      return not_reached(lock, error);
    }
    if (!send_request()) return fail(lock, ECONNRESET, nullptr);
    CmLoop::instance().change(socket_.fd(), kReadable);
  }

  void read_reply(std::unique_lock<Mutex>& lock) {
    switch (frame_.read(socket_.fd())) {
      case StartupFrame::Result::more: return;
      case StartupFrame::Result::closed: return fail(lock, ECONNRESET, nullptr);
      case StartupFrame::Result::invalid: return fail(lock, EPROTO, nullptr);
      case StartupFrame::Result::frame: break;
    }
    mpa::Agreement agreement;
    switch (mpa::read_reply(proposal_, frame_.header(), frame_.private_data(), said_, agreement)) {
      case mpa::StartupError::none: break;
      case mpa::StartupError::revision: return call_by_revision_1(lock);
      case mpa::StartupError::rejected: {
        const ConnectionParameters said = parameters_of(said_);
        return fail(lock, ECONNREFUSED, &said);
      }
      case mpa::StartupError::too_many_reads:
        send_terminate(mpa::MpaError::insufficient_ird);
        return fail(lock, EPROTO, nullptr);
      case mpa::StartupError::no_rtr:
        send_terminate(mpa::MpaError::no_matching_rtr);
        return fail(lock, EPROTO, nullptr);
      default: return fail(lock, EPROTO, nullptr);
    }
    peer_parameters_ = parameters_of(said_);
    if (own_.check_reply) {
      const auto psn = own_.check_reply(said_.private_data, local_, remote_);
      if (!psn) return fail(lock, EPROTO, nullptr);
      own_.peer_psn = *psn;
    }
    const ReadSection section;
    Qp* qp = find_qp(own_.qp_num);
    if (qp == nullptr) return fail(lock, EINVAL, nullptr);
    if (const int error = hand_over(*qp, agreement, true); error != 0) return fail(lock, error, nullptr);
    state_ = State::established;
    const auto observer = observer_.lock();
    const ConnectionParameters peer = end_startup();
    lock.unlock();
    if (observer) observer->established(peer);
  }

  // A peer of RFC 5044 alone has rejected revision 2: once more with revision 1 (RFC 6581 section 7).
  void call_by_revision_1(std::unique_lock<Mutex>& lock) {
    CmLoop::instance().unwatch(socket_.fd());
    sockaddr_storage source = local_;
    port_of(source) = 0;
    const int fd = bind_socket(source, false);
    if (fd < 0) return fail(lock, -fd, nullptr);
    socket_ = mpa::TcpStream(fd);
    revision_ = 1;
    said_ = {};
    if (const int error = connect_now(); error != 0) fail(lock, error, nullptr);
  }

  void read_request(std::unique_lock<Mutex>& lock) {
    switch (frame_.read(socket_.fd())) {
      case StartupFrame::Result::more: return;
      case StartupFrame::Result::frame: break;
      default: return fail(lock, EPROTO, nullptr);
    }
    request_ = frame_.header();
    const auto error = mpa::read_request(request_, frame_.private_data(), said_, enhanced_);
    if (error == mpa::StartupError::markers_wanted) {
      send_whole(mpa::reject_frame(request_, {}));
      return fail(lock, EPROTO, nullptr);
    }
    if (error != mpa::StartupError::none) return fail(lock, EPROTO, nullptr);
    const ConnectionParameters peer = parameters_of(said_);
    state_ = State::requested;
    CmLoop::instance().unwatch(socket_.fd());
    auto on_request = std::move(on_request_);
    auto self = shared_from_this();
    lock.unlock();
    on_request(std::move(self), peer);
  }

  // The stream goes to its queue pair; the lock is held.
  int hand_over(Qp& qp, const mpa::Agreement& agreement, bool initiator) {
    CmLoop::instance().unwatch(socket_.fd());
    const State before = state_;
    state_ = State::attached;
    start_deadline();
    Qp::Attachment attachment;
    attachment.agreement = agreement;
    attachment.initiator = initiator;
    attachment.manual = own_.manual;
    attachment.life = own_.life;
    attachment.peer_psn = own_.peer_psn;
    if (remote_completion(own_.manual)) attachment.completion = rdmap::Completion::remote;
    attachment.ord = own_.initiator_depth;
    attachment.ird = own_.responder_resources;
    // A peer that has said nothing of its depths holds what its program was told of.
    if (!said_.read_depths_known) attachment.agreement.ord = std::min(agreement.ord, attachment.ord);
    attachment.mulpdu = settings().values.mulpdu;
    attachment.owner = shared_from_this();
    int error;
    try {
      error = qp.attach(socket_, attachment);
    } catch (const std::exception&) {
      error = ENOMEM;
    }
    if (error != 0) {
      state_ = before == State::requested ? State::over : before;
      socket_.abort();
      return error;
    }
    // Without a ready-to-receive message to wait for, the passive side stands with its reply.
    if (!initiator && agreement.rtr == mpa::ReadyToReceive::none) stream_established();
    return 0;
  }

  // The peer is told why there will be no stream (RFC 6581 section 10). The CRC is always right to send.
  void send_terminate(mpa::MpaError error) {
    const rdmap::Terminate terminate = llp_terminate(error);
    std::array<std::byte, ddp::kUntaggedHeaderSize + rdmap::kMaxTerminate> header;
    encode(ddp::UntaggedHeader{true, rdmap::control_of(rdmap::Opcode::terminate), 0, rdmap::kTerminateQueue,
                               ddp::Msn{1}, 0},
           header.data());
    const std::size_t size =
        ddp::kUntaggedHeaderSize + rdmap::encode(terminate, header.data() + ddp::kUntaggedHeaderSize);
    mpa::Batch batch;
    mpa::Framer framer;
    framer.start(true, false);
    if (framer.add(batch, mpa::Octets(header).first(size), {}) == mpa::Framer::Result::added) {
      socket_.send(batch.vectors());
    }
  }

  bool send_whole(const std::vector<std::byte>& octets) {
    iovec vector{const_cast<std::byte*>(octets.data()), octets.size()};
    return socket_.send({&vector, 1}) == static_cast<ssize_t>(octets.size());
  }

  void close_later() {
    // The peer reads the rejection before it sees the end.
    linger_and_close_rejected(socket_.release());
  }

  void abort_stream() {
    std::uint32_t number;
    {
      const std::lock_guard lock(mutex_);
      number = own_.qp_num;
    }
    const ReadSection section;
    if (Qp* qp = find_qp(number)) qp->abort_beginning(this);
  }

  void on_established(std::unique_lock<Mutex>& lock) {
    if (state_ != State::attached) return;
    state_ = State::established;
    const auto observer = observer_.lock();
    const ConnectionParameters peer = end_startup();
    lock.unlock();
    if (observer) observer->established(peer);
  }

  // The stream stands: what only its start-up needed goes. Returns what the peer has said.
  ConnectionParameters end_startup() {
    deadline_.reset();
    CmLoop::instance().cancel(*this);
    frame_ = StartupFrame();
    for (std::vector<std::byte>* octets :
         {&own_.private_data, &said_.private_data, &proposal_.private_data, &reply_}) {
      *octets = std::vector<std::byte>();
    }
    own_.check_reply = nullptr;
    on_request_ = nullptr;
    on_failure_ = nullptr;
    return std::exchange(peer_parameters_, {});
  }

  void on_ended(std::unique_lock<Mutex>& lock) {
    const State before = state_;
    if (before == State::over) return;
    state_ = State::over;
    const auto observer = observer_.lock();
    lock.unlock();
    if (!observer) return;
    if (before == State::established) {
      observer->disconnected();
    } else {
      observer->failed(ECONNRESET, nullptr);
    }
  }

  void fail(std::unique_lock<Mutex>& lock, int error, const ConnectionParameters* peer) {
    if (state_ == State::over) return;
    state_ = State::over;
    if (socket_.is_open()) CmLoop::instance().unwatch(socket_.fd());
    socket_.close();
    const auto observer = observer_.lock();
    const auto on_failure = std::move(on_failure_);
    const auto self = shared_from_this();
    lock.unlock();
    if (on_failure) on_failure(this);
    if (observer) observer->failed(error, peer);
  }

  mutable Mutex mutex_;
  State state_;
  mpa::TcpStream socket_;
  StartupFrame frame_;
  sockaddr_storage local_{}, remote_{};
  ConnectionParameters own_, peer_parameters_;
  std::weak_ptr<ConnectionObserver> observer_;
  mpa::PeerSaid said_;
  mpa::StartupHeader request_;
  mpa::EnhancedHeader enhanced_;
  std::vector<std::byte> reply_;
  mpa::Proposal proposal_;
  unsigned revision_ = 2;
  std::optional<CmLoop::Clock::time_point> deadline_;
  unsigned refused_ = 0;  // calls
  int call_error_ = 0;    // of a call that failed at once
  std::atomic<bool> stream_stands_{false}, stream_over_{false};  // news of the queue pair
  int tos_ = -1;
  std::function<void(std::shared_ptr<Connection>, const ConnectionParameters& peer)> on_request_;
  std::function<void(const Connection*)> on_failure_;
};

}  // namespace

std::shared_ptr<Connection> take_call(
    mpa::TcpStream&& socket, std::function<void(std::shared_ptr<Connection>, const ConnectionParameters& peer)> requested,
    std::function<void(const Connection*)> failed) {
  auto made = std::make_shared<ConnectionImpl>(std::move(socket), ConnectionImpl::State::awaiting_request);
  return made->answer(std::move(requested), std::move(failed)) == 0 ? made : nullptr;
}

int connect(int socket, const sockaddr_storage& remote, const ConnectionParameters& own, int tos,
            std::weak_ptr<ConnectionObserver> observer, std::shared_ptr<Connection>& connection) {
  mpa::TcpStream owned(socket);
  // Without the thread nobody would tell how the call ends.
  if (const int error = CmLoop::instance().start(); error != 0) return error;
  {
    const ReadSection section;
    Qp* qp = find_qp(own.qp_num);
    if (qp == nullptr || !qp->can_attach(own.manual, own.life)) return EINVAL;
  }
  auto made = std::make_shared<ConnectionImpl>(std::move(owned), ConnectionImpl::State::connecting);
  if (const int error = made->call(remote, own, tos, std::move(observer)); error != 0) return error;
  connection = std::move(made);
  return 0;
}

}  // namespace uiw::provider
