// SPDX-License-Identifier: MIT
#include "provider/datagram/datagram_port.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <memory>
#include <utility>

#include "base/descriptor.h"
#include "base/grace_period.h"
#include "base/immortal.h"
#include "base/mutex.h"
#include "base/stream/tcp_stream.h"
#include "provider/connect/qp_port.h"
#include "provider/connect/qp_table.h"
#include "provider/progress/io_scratch.h"

namespace uiw::provider {

namespace {

// The open ports. The key is the engine of the context and the UDP port (0 for the multicast port).
struct Opened {
  Mutex mutex;
  std::map<std::pair<const Engine*, std::uint16_t>, std::weak_ptr<DatagramPort>> ports UIW_GUARDED_BY(mutex);
};
Opened& opened() {
  static Immortal<Opened> instance;
  return *instance;
}

constexpr unsigned kMostRounds = 64;

}  // namespace

std::shared_ptr<DatagramPort> DatagramPort::open(Engine& engine, std::uint16_t port) { return open(engine, port, 0); }

std::shared_ptr<DatagramPort> DatagramPort::open_multicast(Engine& engine, unsigned ifindex) {
  return open(engine, destination_port(kMulticastQp), ifindex);
}

std::shared_ptr<DatagramPort> DatagramPort::open(Engine& engine, std::uint16_t port, unsigned multicast) {
  Opened& all = opened();
  const LockGuard lock(all.mutex);
  std::erase_if(all.ports, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<DatagramPort>& known = all.ports[{&engine, multicast != 0 ? 0 : port}];
  if (auto found = known.lock()) return found;
  const int fd = multicast != 0 ? multicast_socket(multicast) : datagram_descriptor(port);
  if (fd < 0) {
    errno = -fd;
    return nullptr;
  }
  TcpStream owner(fd);  // closes the descriptor
  std::unique_ptr<DatagramPort> unshared(new DatagramPort(engine, fd, multicast));
  owner.release();
  std::shared_ptr<DatagramPort> made(std::move(unshared));
  made->number_ = take_qp_number(*made);
  if (made->number_ == 0) {
    made.reset();
    errno = ENOMEM;
    return nullptr;
  }
  if (const int error = engine.add(*made, fd); error != 0) {
    made.reset();
    errno = error;
    return nullptr;
  }
  known = made;
  return made;
}

void lock_datagram_ports() UIW_ACQUIRE(opened().mutex) { opened().mutex.lock(); }
void unlock_datagram_ports() UIW_RELEASE(opened().mutex) { opened().mutex.unlock(); }

void forget_datagram_ports() UIW_RELEASE(opened().mutex) {
  opened().ports.clear();
  opened().mutex.unlock();
}

DatagramPort::DatagramPort(Engine& engine, int fd, unsigned multicast)
    : engine_(engine), fd_(fd), generation_(fork_generation()), multicast_(multicast), joins_(can_join_datagrams(fd)) {
  want_joined_datagrams(fd_);
}

DatagramPort::~DatagramPort() {
  if (generation_ != fork_generation()) return;
  if (number_ != 0) {
    hide_qp(number_);
    engine_.remove(*this);
    wait_for_readers();
    // Other descriptors of this socket stay open, in qp_port.cc and in the child of a fork, so close() would not remove
    // fd_ from the epoll set. If a later descriptor of this socket got the same number, EPOLL_CTL_ADD would then fail
    // (EEXIST).
    engine_.release(fd_);
    free_qp_number(number_);
  }
  close_descriptor(fd_);
}

void DatagramPort::after_fork_in_child() { close_descriptor(fd_); }

void DatagramPort::join(DatagramTarget& target) {
  const LockGuard lock(targets_mutex_);
  targets_.push_back(&target);
}

void DatagramPort::leave(DatagramTarget& target) {
  const LockGuard lock(targets_mutex_);
  std::erase(targets_, &target);
}

int DatagramPort::attach(DatagramTarget& target, const Gid& group) {
  const LockGuard lock(members_mutex_);
  const bool first =
      std::none_of(members_.begin(), members_.end(), [&](const Member& one) { return one.group == group; });
  members_.reserve(members_.size() + 1);
  if (first) {
    if (const int error = change_membership(fd_, group, multicast_, true); error != 0) return error;
  }
  members_.push_back({group, &target});
  return 0;
}

void DatagramPort::detach(DatagramTarget& target, const Gid& group) {
  const LockGuard lock(members_mutex_);
  std::erase_if(members_, [&](const Member& one) { return one.group == group && one.target == &target; });
  const bool last =
      std::none_of(members_.begin(), members_.end(), [&](const Member& one) { return one.group == group; });
  if (last) change_membership(fd_, group, multicast_, false);
}

// For multicast, holds members_mutex_ while the members of the group receive the datagram, so that detach() cannot
// return before they have received it.
void DatagramPort::hand_over(const IncomingDatagram& datagram) {
  const DecodedDatagram decoded = decode_datagram(datagram.octets);
  if (decoded.error != DatagramError::none) return drop(DatagramDrop::malformed);
  if (!comes_from_holder(decoded.header, datagram.port)) return drop(DatagramDrop::source);
  const Arrival arrival{decoded.header, decoded.payload, datagram.from, datagram.to, datagram.ip};
  if (multicast_ == 0) {
    Numbered* const found = find_numbered(decoded.header.destination_qp);
    DatagramTarget* const target = found == nullptr ? nullptr : found->datagrams();
    return target == nullptr ? drop(DatagramDrop::destination) : target->deliver(arrival);
  }
  if (decoded.header.destination_qp != kMulticastQp) return drop(DatagramDrop::destination);
  const LockGuard lock(members_mutex_);
  for (const Member& member : members_) {
    if (member.group == datagram.to) member.target->deliver(arrival);
  }
}

// If the socket has no room for all datagrams, sets `blocked_` and tries once more. The second attempt uses room that
// has become free in between. Epoll reports room that becomes free later, and then progress() calls may_send().
std::size_t DatagramPort::send(std::span<const OutgoingDatagram> datagrams) {
  const std::size_t most = std::min(datagrams.size(), kDatagramBatch);
  std::size_t sent = send_datagrams(fd_, datagrams, joins_);
  if (sent == most) {
    count_sent(datagrams.first(sent));
    return sent;
  }
  blocked_.store(true);
  sent += send_datagrams(fd_, datagrams.subspan(sent, most - sent), joins_);
  count_sent(datagrams.first(sent));
  return sent;
}

void DatagramPort::count_sent(std::span<const OutgoingDatagram> sent) {
  std::size_t octets = 0;
  for (const OutgoingDatagram& one : sent) octets += one.octets.size();
  engine_.counters().add(PortCounter::datagrams_sent, sent.size());
  engine_.counters().add(PortCounter::octets_sent, octets);
}

void DatagramPort::count_received(std::span<const IncomingPiece> received) {
  std::size_t count = 0, octets = 0;
  for (const IncomingPiece& one : received) {
    count += one.count();
    octets += one.all.octets.size();
  }
  engine_.counters().add(PortCounter::datagrams_received, count);
  engine_.counters().add(PortCounter::octets_received, octets);
}

void DatagramPort::drop(DatagramDrop why) { engine_.counters().add(counter_of(why)); }

void DatagramPort::take_over() {
  blocked_.store(true);
  engine_.take_over(number_);
}

void DatagramPort::send_what_waits() {
  if (!blocked_.load(std::memory_order_relaxed) || !blocked_.exchange(false)) return;
  const LockGuard lock(targets_mutex_);
  for (DatagramTarget* target : targets_) target->may_send();
}

bool DatagramPort::progress(Driver driver) noexcept {
  const ReadSection section;
  send_what_waits();
  return receive(driver);
}

// After an event of epoll this reads all that has arrived, or requests another turn after kMostRounds batches, since
// epoll does not repeat the event (EPOLLET). A poll of the program reads only one batch.
bool DatagramPort::receive(Driver driver) {
  UniqueLock lock(receive_mutex_, std::defer_lock);
  if (driver == Driver::poll) {
    if (!lock.try_lock()) return false;  // the thread that receives may need this processor, so do not wait for it
  } else {
    lock.lock();
  }
  IoScratch* const scratch = io_scratch();
  if (scratch == nullptr) {
    engine_.take_over(number_);
    return false;
  }
  std::array<IncomingPiece, kIncomingPieces> arrived;
  bool any = false;
  unsigned rounds = 0;
  for (std::size_t count = kIncomingPieces; count == kIncomingPieces;) {
    if (++rounds > kMostRounds) {  // so that other sockets are served, too
      engine_.request_turn(number_);
      break;
    }
    count = receive_datagrams(fd_, {scratch->staging.get(), IoScratch::kStaging}, arrived);
    if (count > 0) count_received({arrived.data(), count});
    for (std::size_t i = 0; i < count; ++i)
      arrived[i].for_each([this](const IncomingDatagram& datagram) { hand_over(datagram); });
    any = any || count > 0;
    if (driver == Driver::poll) break;
  }
  return any;
}

}  // namespace uiw::provider
