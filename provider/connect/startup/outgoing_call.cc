// SPDX-License-Identifier: MIT
#include "provider/connect/startup/outgoing_call.h"

#include <netinet/tcp.h>
#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/grace_period.h"
#include "base/mutex.h"
#include "base/stream/tcp_stream.h"
#include "mpa/startup.h"
#include "provider/capture/connection_capture.h"
#include "provider/connect/attachable.h"
#include "provider/connect/local_address.h"
#include "provider/connect/mapper/port_mapper_query.h"
#include "provider/connect/qp_table.h"
#include "provider/connect/rdma_port.h"
#include "provider/connect/rendezvous.h"
#include "provider/connect/startup/call_base.h"
#include "provider/connection/linger.h"
#include "provider/process/cm_loop.h"
#include "provider/process/log.h"
#include "provider/process/settings.h"
#include "rdmap/terminate.h"

namespace uiw::provider {

namespace {

// The initiator of RFC 5044 section 7.1. Until hand_over() gives the stream to the queue pair, it is in the state
// connecting or awaiting_reply.
class OutgoingCall final : public CallBase {
 public:
  explicit OutgoingCall(TcpStream&& socket) : CallBase(std::move(socket), State::connecting) {}

  int call(const sockaddr_storage& remote, const CallParameters& own, int tos, std::weak_ptr<CallObserver> observer) {
    const LockGuard lock(mutex_);
    {
      const ReadSection section;
      if (find_end(own) == nullptr) return EINVAL;
    }
    called_ = remote_ = remote;
    own_ = own;
    tos_ = tos;
    observer_ = std::move(observer);
    // A manual connection needs revision 2, in which either side may send first.
    revision_ = own.attempt ? 2 : settings().values.mpa_revision;
    if (!own_.attempt && logs(LogLevel::info)) {
      log_event(LogLevel::info, "queue pair 0x%06x: calls %s", own_.qp_num, AddressText(remote_).c_str());
    }
    start_deadline();
    return connect_now();
  }

  void run() override {
    without_exceptions([this](UniqueLock<Mutex>& lock) {
      assume_held(mutex_);
      if (const int error = std::exchange(call_error_, 0); error != 0) not_reached(lock, error);
    });
    CallBase::run();
  }

 private:
  static constexpr int kReadable = EPOLLIN | EPOLLRDHUP;
  static constexpr unsigned kCalls = 11;  // attempts if no process listens; 50 ms in all
  static constexpr std::chrono::milliseconds kCallAgain{5};

  void socket_ready(UniqueLock<Mutex>& lock) override UIW_REQUIRES(mutex_) {
    if (state_ == State::connecting) return connected(lock);
    if (state_ == State::awaiting_reply) return read_reply(lock);
  }

  int connect_now() UIW_REQUIRES(mutex_) {
    // Looks the TCP port up for each attempt, since the called process may begin to listen meanwhile.
    if (!own_.attempt) {
      remote_ = called_;
      port_of(remote_) = listening_port(called_);
      if (asks_mapper()) {
        state_ = State::connecting;
        return 0;
      }
    }
    return connect_tcp();
  }

  // Asks the port mapper of the called host for the TCP port. True if a query was sent; mapper_answered() then
  // continues the call. False if there is no port mapper to ask, for example because the called address is of this
  // host.
  bool asks_mapper() UIW_REQUIRES(mutex_) {
    sockaddr_storage source{};
    socklen_t size = sizeof source;
    ::getsockname(socket_.fd(), reinterpret_cast<sockaddr*>(&source), &size);
    query_ = ask_port_mapper(called_, source, [this, weak = weak_from_this()](in_port_t port) {
      if (const auto self = weak.lock()) mapper_answered(port);
    });
    return query_ != nullptr;
  }

  void mapper_answered(in_port_t port) {
    without_exceptions([&](UniqueLock<Mutex>& lock) {
      assume_held(mutex_);
      if (state_ != State::connecting || query_ == nullptr) return;
      query_.reset();
      port_of(remote_) = port;
      if (const int error = connect_tcp(); error != 0) fail(lock, error, nullptr);
    });
  }

  // Connects to `remote_`.
  int connect_tcp() UIW_REQUIRES(mutex_) {
    if (tos_ > 0) {
      ::setsockopt(socket_.fd(), IPPROTO_IP, IP_TOS, &tos_, sizeof tos_);
      if (remote_.ss_family == AF_INET6) ::setsockopt(socket_.fd(), IPPROTO_IPV6, IPV6_TCLASS, &tos_, sizeof tos_);
    }
    state_ = State::connecting;
    int error = dial();
    // If both ends are on this host, TCP has connected by now. A second connect() confirms that, without a wait for
    // epoll.
    if (error == EINPROGRESS) error = dial();
    if (error == EADDRNOTAVAIL && leave_port()) return connect_tcp();
    if (error == EALREADY) return CmLoop::instance().watch(socket_.fd(), EPOLLOUT, weak_from_this());
    if (error == 0 && send_request()) return CmLoop::instance().watch(socket_.fd(), kReadable, weak_from_this());
    // Reports this failure to the observer, as for later failures, instead of returning it.
    call_error_ = error != 0 ? error : ECONNRESET;
    CmLoop::instance().post(shared_from_this());
    return 0;
  }

  int dial() UIW_REQUIRES(mutex_) {
    for (;;) {
      if (::connect(socket_.fd(), generic(remote_), size_of(remote_)) == 0) return 0;
      // After a refused attempt Linux returns ECONNABORTED once.
      if (errno != EINTR && !(errno == ECONNABORTED && refused_ > 0)) return errno;
    }
  }

  // Replaces the socket by one with another local port. TCP keeps the addresses and ports of a connection for a minute
  // after its end (TIME_WAIT), so the port that the program has bound may be in use. In the RoCE view the program's
  // port is only an rdma_cm port number, which is free at once, so TCP may use any port. False if this was done before,
  // if no other port may be used, or if there is no new socket.
  bool leave_port() UIW_REQUIRES(mutex_) {
    if (own_.attempt || settings().values.transport != Transport::roce || std::exchange(left_port_, true)) return false;
    sockaddr_storage source{};
    socklen_t size = sizeof source;
    if (::getsockname(socket_.fd(), reinterpret_cast<sockaddr*>(&source), &size) != 0) return false;
    port_of(source) = 0;
    const int fd = calling_socket(source);
    if (fd < 0) return false;
    socket_ = TcpStream(fd);
    return true;
  }

  bool send_request() UIW_REQUIRES(mutex_) {
    remember_addresses();
    socket_.set_tap(capture_connection(local_, remote_, true));
    proposal_ = proposal_of(own_);
    // An rdma_cm connection without an RC queue pair (Placeholder) has no stream that could use shared memory.
    // Listening offers shared memory to the called end (`sharing`), or only shows it that the caller is on this host
    // (`presence`). A manual connection need not show that, since the called end finds out who owns the caller's
    // socket.
    if (!placeholder_) {
      rendezvous_ =
          RingRendezvous::listen(local_, remote_, {!proposal_.markers, !proposal_.crc && own_.attempt == nullptr});
    }
    if (!send_whole(mpa::request_frame(proposal_))) return false;
    state_ = State::awaiting_reply;
    frame_ = StartupFrame();
    return true;
  }

  // Retries for a while if no process listens. Some programs (perftest -R, qperf) call when the other end is only about
  // to listen: they rely on the time that an adapter needs to connect. Manual connections retry by themselves.
  void not_reached(UniqueLock<Mutex>& lock, int error) UIW_REQUIRES(mutex_) {
    if (state_ != State::connecting) return;
    if (error != ECONNREFUSED || own_.attempt || ++refused_ >= kCalls) return fail(lock, error, nullptr);
    CmLoop::instance().after(kCallAgain, [this, weak = weak_from_this()] {
      if (const auto self = weak.lock()) call_again();
    });
  }

  void call_again() {
    without_exceptions([this](UniqueLock<Mutex>& lock) {
      assume_held(mutex_);
      if (state_ != State::connecting) return;
      if (const int error = connect_now(); error != 0) fail(lock, error, nullptr);
    });
  }

  void connected(UniqueLock<Mutex>& lock) UIW_REQUIRES(mutex_) {
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

  void read_reply(UniqueLock<Mutex>& lock) UIW_REQUIRES(mutex_) {
    switch (frame_.read(socket_)) {
      case StartupFrame::Result::more: return;
      case StartupFrame::Result::closed: return fail(lock, ECONNRESET, nullptr);
      case StartupFrame::Result::invalid: return fail(lock, EPROTO, nullptr);
      case StartupFrame::Result::frame: break;
    }
    // A manual connection uses only revision 2, so an end that answers with another revision is not its peer.
    if (own_.attempt && frame_.header().revision != revision_) return fail(lock, EPROTO, nullptr);
    mpa::Agreement agreement;
    switch (mpa::read_reply(proposal_, frame_.header(), frame_.private_data(), said_, agreement)) {
      case mpa::StartupError::none: break;
      case mpa::StartupError::revision: return call_by_revision_1(lock);
      case mpa::StartupError::rejected: {
        const CallParameters said = parameters_of_peer();
        return fail(lock, ECONNREFUSED, &said);
      }
      case mpa::StartupError::too_many_reads: return refuse(lock, mpa::MpaError::insufficient_ird, agreement);
      case mpa::StartupError::no_rtr: return refuse(lock, mpa::MpaError::no_matching_rtr, agreement);
      default: return fail(lock, EPROTO, nullptr);
    }
    peer_parameters_ = parameters_of_peer();
    if (own_.check_reply) {
      const auto psn = own_.check_reply(said_.private_data, local_, remote_);
      if (!psn) return fail(lock, EPROTO, nullptr);
      own_.peer_psn = *psn;
    }
    const ReadSection section;
    Attachable* qp = end();
    if (qp == nullptr) return give_up(lock, EINVAL, agreement);
    std::shared_ptr<SharedOffer> rings;
    if (const auto rendezvous = std::move(rendezvous_)) rings = rendezvous->take(*qp);
    if (const int error = hand_over(*qp, agreement, true, std::move(rings)); error != 0) {
      if (own_.attempt) socket_.abort();
      return give_up(lock, error, agreement);
    }
    state_ = State::established;
    const auto observer = observer_.lock();
    const CallParameters peer = end_startup();
    if (!own_.attempt && agreement.peer == mpa::PeerKind::not_known) start_deadline();  // for the peer's first message
    unlock_and(lock, [&] {
      if (observer) observer->established(peer);
    });
  }

  // A peer that knows only RFC 5044 has rejected revision 2: this end calls again with revision 1 (RFC 6581 section
  // 10).
  void call_by_revision_1(UniqueLock<Mutex>& lock) UIW_REQUIRES(mutex_) {
    CmLoop::instance().unwatch(socket_.fd());
    sockaddr_storage source = local_;
    port_of(source) = 0;
    const int fd = bind_socket(source, false);
    if (fd < 0) return fail(lock, -fd, nullptr);
    socket_ = TcpStream(fd);
    revision_ = 1;
    said_ = {};
    if (const int error = connect_tcp(); error != 0) fail(lock, error, nullptr);
  }

  // Tells the peer by a Terminate message why there is no connection (RFC 6581 section 8). The observer gets `why`.
  void refuse(UniqueLock<Mutex>& lock, mpa::MpaError error, const mpa::Agreement& agreement, int why = EPROTO)
      UIW_REQUIRES(mutex_) {
    send_terminate(error, agreement);
    CmLoop::instance().unwatch(socket_.fd());
    // Octets may follow the reply. If they were still unread at the close, TCP would send a reset, and the peer could
    // lose the Terminate.
    linger_and_close_rejected(std::move(socket_));
    fail(lock, why, nullptr);
  }

  // Called when the queue pair cannot take the stream. On a manual connection the peer is not told, since this end may
  // call again.
  void give_up(UniqueLock<Mutex>& lock, int error, const mpa::Agreement& agreement) UIW_REQUIRES(mutex_) {
    if (own_.attempt) return fail(lock, error, nullptr);
    refuse(lock, mpa::MpaError::local_catastrophic, agreement, error);
  }

  void send_terminate(mpa::MpaError error, const mpa::Agreement& agreement) UIW_REQUIRES(mutex_) {
    const rdmap::Terminate terminate = rdmap::terminate_for(error);
    std::array<std::byte, ddp::kUntaggedHeaderSize + rdmap::kMaxTerminate> header;
    encode(ddp::UntaggedHeader{true, rdmap::control_of(rdmap::Opcode::terminate), 0, rdmap::kTerminateQueue,
                               ddp::Msn{1}, 0},
           header.data());
    const std::size_t size =
        ddp::kUntaggedHeaderSize + rdmap::encode(terminate, header.data() + ddp::kUntaggedHeaderSize);
    mpa::Batch batch;
    mpa::Framer framer;
    framer.start(agreement.crc, agreement.marks);
    if (framer.add(batch, Octets(header).first(size), {}) == mpa::Framer::Result::added) {
      socket_.send(batch.vectors());
    }
  }

  void drop_startup() override UIW_REQUIRES(mutex_) { proposal_.private_data = std::vector<std::byte>(); }

  sockaddr_storage called_ UIW_GUARDED_BY(mutex_){};  // for rdma_cm it has an RDMA port number, `remote_` the TCP port
  mpa::Proposal proposal_ UIW_GUARDED_BY(mutex_);
  std::shared_ptr<PortMapperQuery> query_ UIW_GUARDED_BY(mutex_);  // while the query runs
  unsigned refused_ UIW_GUARDED_BY(mutex_) = 0;                    // attempts that were refused
  int call_error_ UIW_GUARDED_BY(mutex_) = 0;                      // an error of connect_tcp() that run() is to report
  int tos_ UIW_GUARDED_BY(mutex_) = -1;
  bool left_port_ UIW_GUARDED_BY(mutex_) = false;  // the local port is not the one that the program has bound
};

}  // namespace

int connect(int socket, const sockaddr_storage& remote, const CallParameters& own, int tos,
            std::weak_ptr<CallObserver> observer, std::shared_ptr<Call>& connection) {
  TcpStream owned(socket);
  // Fails here if the thread "uiw-cm" cannot be started, since without that thread the observer would never be called.
  if (const int error = CmLoop::instance().start(); error != 0) return error;
  auto made = std::make_shared<OutgoingCall>(std::move(owned));
  if (const int error = made->call(remote, own, tos, std::move(observer)); error != 0) return error;
  connection = std::move(made);
  return 0;
}

}  // namespace uiw::provider
