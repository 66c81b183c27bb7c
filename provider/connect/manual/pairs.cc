// SPDX-License-Identifier: MIT
#include "provider/connect/manual/pairs.h"

#include <netinet/in.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/grace_period.h"
#include "base/immortal.h"
#include "base/mutex.h"
#include "base/stream/tcp_stream.h"
#include "provider/connect/attachable.h"
#include "provider/connect/call.h"
#include "provider/connect/local_address.h"
#include "provider/connect/qp_port.h"
#include "provider/connect/qp_table.h"
#include "provider/connect/retry_timers.h"
#include "provider/connect/socket_owner.h"
#include "provider/connect/startup/outgoing_call.h"
#include "provider/process/cm_loop.h"
#include "provider/process/limits.h"
#include "provider/process/settings.h"

namespace uiw::provider::manual {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{1}, kLongestPause{200};  // between two calls that this end makes
constexpr std::size_t kMaxKeptPerQp = 4, kMaxKept = 4096;

bool calls(const PairGreeting& own) {
  return std::pair(own.source_qp, own.source) < std::pair(own.destination_qp, own.destination);
}
bool to_itself(const PairGreeting& own) { return own.source_qp == own.destination_qp && own.source == own.destination; }

std::vector<std::byte> octets_of(const PairGreeting& greeting, PairRefusal refusal = PairRefusal::none) {
  const PairOctets octets = encode(greeting, refusal);
  return {octets.begin(), octets.end()};
}

// Rejects the call, with the reason. If there is no memory for that, the call is closed without a rejection.
void refuse(Call& call, const PairGreeting& said, PairRefusal why) noexcept {
  try {
    call.reject(octets_of(said.reversed(), why));
  } catch (const std::exception&) {
  }
}

// Whether the peer's end of the connection belongs to the user who has reserved the TCP port that the queue pair number
// `peer_qp` contains. Anybody can know this number, so the kernel is asked for the owner of the peer's socket. False
// also if the kernel does not know one of the two users. Always true if the peer is on another host or in another
// network namespace: the network between the two ends is trusted.
bool is_of_holder(const sockaddr_storage& local, const sockaddr_storage& remote, std::uint32_t peer_qp) {
  // If both ends have the same address, the peer is on this host.
  if (gid_of(generic(local)) != gid_of(generic(remote))) {
    const std::optional<bool> here = is_local_address(remote);
    if (here && !*here) return true;
  }
  const std::optional<uid_t> owner = owner_of_connection(remote, local);
  if (!owner) return false;
  std::optional<uid_t> holder = holder_of(port_of(peer_qp));
  if (!holder) {
    sockaddr_storage listener = remote;
    port_of(listener) = htons(port_of(peer_qp));
    holder = owner_of_listener(listener);
  }
  return owner == holder;
}

class Pair;

// Cancels a timer when this object is destroyed.
class ScopedTimer {
 public:
  explicit ScopedTimer(CmLoop::Timer timer) : timer_(timer) {}
  ~ScopedTimer() {
    if (timer_) CmLoop::instance().cancel(*timer_);
  }
  ScopedTimer(ScopedTimer&& other) noexcept : timer_(std::exchange(other.timer_, std::nullopt)) {}
  ScopedTimer& operator=(ScopedTimer&& other) noexcept {
    std::swap(timer_, other.timer_);
    return *this;
  }

 private:
  std::optional<CmLoop::Timer> timer_;
};

class Pairs final : public ListenObserver {
 public:
  using Known = std::map<std::uint32_t, std::shared_ptr<Pair>>;
  void start(Known::node_type pair);
  void stop(std::uint32_t qp_number);
  void requested(std::shared_ptr<Call> call, const CallParameters& peer) override;
  struct Kept {
    PairGreeting greeting;
    std::shared_ptr<Call> call;
    ScopedTimer expiry;
  };
  // Takes the newest call of this end's peer out of kept_, which has the calls that could not be answered yet, and
  // returns it. Nothing if kept_ has no call of this peer.
  std::optional<Kept> take_kept(const PairGreeting& own);
  // Called when a Pair (one end of a manual connection) is connected for the first time. `number` is the number that
  // Pair::set_number() has given it.
  void connected(std::uint64_t number) { first_connected_ = std::min(first_connected_, number); }
  void restart_retry_timers();

 private:
  void keep(const PairGreeting& greeting, std::shared_ptr<Call> call);
  void drop(std::uint32_t qp_number, const Call* call);

  Known pairs_;  // by the number of the local queue pair
  std::unordered_map<std::uint32_t, std::vector<Kept>> kept_;
  std::size_t kept_count_ = 0;
  std::uint64_t started_ = 0;
  // The lowest number (Pair::set_number()) among the pairs that have been connected for the first time since the last
  // check of the retry timers. ~0 if there are none.
  std::uint64_t first_connected_ = ~std::uint64_t{0};
};

std::atomic<bool> listening{false};  // set by start(); before that no call can have arrived

// The first start() makes `pairs`, with `making` locked. Other code reads `pairs` without the lock, since that code
// runs only after a start().
struct Shared {
  Mutex making;
  std::shared_ptr<Pairs> pairs;
};
Immortal<Shared> shared;
std::shared_ptr<Pairs>& pairs() { return shared->pairs; }

// Throws std::bad_alloc.
void make_shared_objects() {
  const LockGuard lock(shared->making);
  if (shared->pairs == nullptr) shared->pairs = std::make_shared<Pairs>();
  prepare_retry_timers();
  before_retry_checks([] {
    if (pairs() != nullptr) pairs()->restart_retry_timers();
  });
}

// One end of a manual connection, from the step to RTR until RESET, the next step to RTR or the end of the queue pair.
// The calling end calls again after a pause if a call fails; the timer of the pause needs no memory
// (CmLoop::TimedTask).
class Pair final : public CallObserver, public CmLoop::TimedTask, public std::enable_shared_from_this<Pair> {
 public:
  // The first run() of the object that is returned adds it to Pairs.
  static std::shared_ptr<Pair> make(const Ends& ends) {
    auto made = std::make_shared<Pair>(ends);
    Pairs::Known known;
    known.emplace(ends.greeting.source_qp, nullptr);
    made->unknown_ = known.extract(known.begin());
    return made;
  }
  explicit Pair(const Ends& ends) : ends_(ends) {}

  const PairGreeting& greeting() const { return ends_.greeting; }
  bool waits() const { return !connection_ && !connected_ && !over_; }
  // Pairs are numbered in the order in which their queue pairs have gone to RTR.
  void set_number(std::uint64_t number) { number_ = number; }
  bool is_behind(std::uint64_t number) const { return number_ > number; }

  void run() override {
    if (unknown_.empty()) return look_for_peer();
    unknown_.mapped() = shared_from_this();
    pairs()->start(std::move(unknown_));
  }
  void look_for_peer() {
    if (!waits()) return;
    try {
      if (to_itself(greeting())) {
        connect_to_itself();
      } else if (calls(greeting())) {
        call();
      } else {
        answer_kept();
      }
    } catch (const std::exception&) {
      connection_.reset();
      look_again();
    }
  }
  void end() {
    over_ = true;
    connection_.reset();
    CmLoop::instance().cancel(*this);
  }
  void answer(std::shared_ptr<Call> call, const PairGreeting& said) {
    CallParameters own = parameters();
    own.peer_psn = said.psn;
    if (call->accept(own, weak_from_this()) == 0) connection_ = std::move(call);
  }

  void established(const CallParameters&) override { note_connected(); }
  // Qp has already handled the end of the stream. If the queue pair may get a new stream in this attempt, the old
  // stream was abandoned (Connection::abandon()), for example since it did not come from the peer. So this end looks
  // for its peer again.
  void disconnected() override {
    connection_.reset();
    const ReadSection section;
    Attachable* qp = find_attachable(greeting().source_qp);
    if (qp == nullptr || !qp->can_attach(ends_.attempt.get())) return;
    connected_ = false;
    failed(EPROTO, nullptr);
  }
  // The connection was not established. For example, the peer does not listen yet, or did not go to RTR before the call
  // timed out.
  void failed(int, const CallParameters*) override {
    connection_.reset();
    if (over_) return;
    if (calls(greeting())) return look_again();
    look_for_peer();
  }

 private:
  CallParameters parameters() const {
    CallParameters own;
    own.qp_num = greeting().source_qp;
    own.attempt = ends_.attempt;
    own.responder_resources = ends_.read_depth;
    own.initiator_depth = kMaxReadDepth;  // at RTS the queue pair lowers it to the program's value
    own.private_data = octets_of(greeting());
    own.check_reply = [ours = greeting()](const std::vector<std::byte>& reply, const sockaddr_storage& local,
                                          const sockaddr_storage& remote) -> std::optional<std::uint32_t> {
      const auto said = decode_pair_greeting(reply);
      if (!said || !said->same_ends(ours.reversed()) || !is_of_holder(local, remote, ours.destination_qp))
        return std::nullopt;
      return said->psn;
    };
    return own;
  }

  void note_connected() {
    connected_ = true;
    if (!std::exchange(was_connected_, true)) pairs()->connected(number_);
  }

  void look_again() {
    CmLoop::instance().after(pause_, shared_from_this());
    pause_ = std::min(2 * pause_, kLongestPause);
  }

  void call() {
    const CallParameters own = parameters();
    sockaddr_storage local = address_of(greeting().source, ends_.ifindex, 0);
    const sockaddr_storage remote =
        address_of(greeting().destination, ends_.ifindex, port_of(greeting().destination_qp));
    const int fd = calling_socket(local);
    if (fd < 0) return look_again();
    const int error = connect(fd, remote, own, ends_.traffic_class, weak_from_this(), connection_);
    // After EINVAL this end does not call again: the queue pair can have no stream before RESET, which ends this Pair.
    if (error == EINVAL) return;
    if (error != 0) look_again();
  }

  void answer_kept() {
    while (waits()) {
      auto kept = pairs()->take_kept(greeting());
      if (!kept) return;
      answer(std::move(kept->call), kept->greeting);
    }
  }

  // The queue pair is its own peer: TCP lets a socket connect to its own address, and the socket receives what it
  // sends.
  void connect_to_itself() {
    sockaddr_storage own = address_of(greeting().source, ends_.ifindex, 0);
    const int fd = bind_socket(own, false);
    if (fd < 0) return look_again();
    TcpStream socket(fd);
    if (::connect(fd, generic(own), size_of(own)) != 0 && errno != EINPROGRESS) return look_again();
    Attachment attachment;
    attachment.agreement.crc = false;
    attachment.ord = attachment.ird = ends_.read_depth;
    attachment.agreement.ord = attachment.agreement.ird = ends_.read_depth + rdmap::SharedReads::kMostProbes;
    attachment.initiator = true;
    attachment.attempt = ends_.attempt;
    attachment.peer_psn = greeting().psn;
    if (remote_completion(true)) attachment.completion = rdmap::Completion::remote;
    const ReadSection section;
    Attachable* qp = find_attachable(greeting().source_qp);
    const int error = qp != nullptr ? qp->attach(socket, attachment) : EINVAL;
    if (error == 0) note_connected();
    if (error != 0 && error != EINVAL && error != EISCONN && error != EPERM) look_again();
  }

  const Ends ends_;
  Pairs::Known::node_type unknown_;
  std::shared_ptr<Call> connection_;
  bool connected_ = false, over_ = false;
  bool was_connected_ = false;
  std::uint64_t number_ = 0;
  milliseconds pause_ = kFirstPause;
};

void Pairs::start(Known::node_type node) {
  const std::shared_ptr<Pair> pair = node.mapped();
  pair->set_number(++started_);
  const PairGreeting& own = pair->greeting();
  if (const auto before = pairs_.find(own.source_qp); before != pairs_.end()) {
    before->second->end();
    pairs_.erase(before);
  }
  pairs_.insert(std::move(node));
  // Calls that were kept, but come from another end than this pair's peer, are refused.
  if (const auto kept = kept_.find(own.source_qp); kept != kept_.end()) {
    kept_count_ -= std::erase_if(kept->second, [&](const Kept& one) {
      if (one.greeting.same_ends(own.reversed())) return false;
      refuse(*one.call, one.greeting, PairRefusal::other_peer);
      return true;
    });
    if (kept->second.empty()) kept_.erase(kept);
  }
  pair->look_for_peer();
}

void Pairs::stop(std::uint32_t qp_number) {
  if (const auto pair = pairs_.find(qp_number); pair != pairs_.end()) {
    pair->second->end();
    pairs_.erase(pair);
  }
  const auto kept = kept_.find(qp_number);
  if (kept == kept_.end()) return;
  {
    const ReadSection section;
    if (find_attachable(qp_number) != nullptr) return;  // the queue pair may go to RTR again
  }
  for (const Kept& one : kept->second) refuse(*one.call, one.greeting, PairRefusal::no_such_qp);
  kept_count_ -= kept->second.size();
  kept_.erase(kept);
}

void Pairs::requested(std::shared_ptr<Call> call, const CallParameters& peer) {
  const auto refuse = [&](const PairGreeting& said, PairRefusal why) { manual::refuse(*call, said, why); };
  const auto greeting = decode_pair_greeting(peer.private_data);
  if (!greeting) return refuse({}, PairRefusal::malformed);
  const sockaddr_storage remote = call->remote_address(), local = call->local_address();
  if (gid_of(generic(remote)) != greeting->source || gid_of(generic(local)) != greeting->destination) {
    return refuse(*greeting, PairRefusal::wrong_address);
  }
  {
    const ReadSection section;
    if (find_attachable(greeting->destination_qp) == nullptr) return refuse(*greeting, PairRefusal::no_such_qp);
  }
  if (!calls(*greeting)) return refuse(*greeting, PairRefusal::other_peer);
  if (!is_of_holder(local, remote, greeting->source_qp)) return refuse(*greeting, PairRefusal::other_user);
  const auto found = pairs_.find(greeting->destination_qp);
  if (found != pairs_.end()) {
    const std::shared_ptr<Pair> pair = found->second;
    if (!pair->greeting().same_ends(greeting->reversed())) return refuse(*greeting, PairRefusal::other_peer);
    if (pair->waits()) return pair->answer(std::move(call), *greeting);
  }
  keep(*greeting, std::move(call));
}

void Pairs::keep(const PairGreeting& greeting, std::shared_ptr<Call> call) {
  std::vector<Kept>& kept = kept_[greeting.destination_qp];
  // A peer that calls again has given up its earlier call.
  kept_count_ -= std::erase_if(kept, [&](const Kept& one) { return one.greeting.same_ends(greeting); });
  if (kept.size() == kMaxKeptPerQp) {
    kept.erase(kept.begin());
    --kept_count_;
  }
  if (kept_count_ >= kMaxKept) return;  // the call is dropped; the peer calls again
  // The caller usually has the same start-up timeout, so after this time it has given up this call and calls again.
  const milliseconds time(settings().values.startup_timeout_ms);
  // `late` is only compared, never dereferenced. Destroying the entry of kept_ cancels the timer, on the thread that
  // also runs the timers. So whenever the timer runs, the address still means this call.
  ScopedTimer expiry(CmLoop::instance().after(
      time, [number = greeting.destination_qp, late = call.get()] { pairs()->drop(number, late); }));
  kept.push_back({greeting, std::move(call), std::move(expiry)});
  ++kept_count_;
}

void Pairs::drop(std::uint32_t qp_number, const Call* call) {
  const auto kept = kept_.find(qp_number);
  if (kept == kept_.end()) return;
  kept_count_ -= std::erase_if(kept->second, [&](const Kept& one) { return one.call.get() == call; });
  if (kept->second.empty()) kept_.erase(kept);
}

std::optional<Pairs::Kept> Pairs::take_kept(const PairGreeting& own) {
  const auto kept = kept_.find(own.source_qp);
  if (kept == kept_.end()) return std::nullopt;
  const auto found = std::find_if(kept->second.rbegin(), kept->second.rend(),
                                  [&](const Kept& one) { return one.greeting.same_ends(own.reversed()); });
  if (found == kept->second.rend()) return std::nullopt;
  std::optional<Kept> taken(std::move(*found));
  kept->second.erase(std::next(found).base());
  --kept_count_;
  if (kept->second.empty()) kept_.erase(kept);
  return taken;
}

// If a program connects many queue pairs at a time, each waits until those before it are connected. Such a wait does
// not mean that its peer is silent. So when a pair is connected for the first time, the retry timers of all pairs that
// went to RTR after it and are not connected yet start again, before the next check of the timers.
void Pairs::restart_retry_timers() {
  const std::uint64_t first_connected = std::exchange(first_connected_, ~std::uint64_t{0});
  if (first_connected == ~std::uint64_t{0}) return;
  for (const auto& [number, pair] : pairs_) {
    if (!pair->is_behind(first_connected)) continue;
    const ReadSection section;
    if (Attachable* qp = find_attachable(number)) qp->restart_retry_timer();
  }
}

}  // namespace

int start(const Ends& ends, const DeviceInfo& device) {
  const PairGreeting& own = ends.greeting;
  make_shared_objects();
  if (const int error = listen_on(port_of(own.source_qp), device, own.source, pairs()); error != 0) return error;
  listening.store(true);
  CmLoop::instance().post(Pair::make(ends));
  return 0;
}

void stop(std::uint32_t qp_number) {
  if (!listening.load()) return;
  try {
    CmLoop::instance().post([qp_number] { pairs()->stop(qp_number); });
  } catch (const std::bad_alloc&) {  // no memory: the pair stays, but its attempt is over
  }
}

void after_fork_in_child() {
  // The parent's object is left undestroyed: a thread of the parent may have been changing it, and its destructor uses
  // CmLoop, which begins anew in the child.
  new (&shared->pairs) std::shared_ptr<Pairs>;
  listening.store(false);
}

}  // namespace uiw::provider::manual
