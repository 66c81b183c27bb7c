// SPDX-License-Identifier: MIT
#include "provider/connect/rendezvous.h"

#include <arpa/inet.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include "base/descriptor.h"
#include "base/random.h"
#include "base/stream/descriptor_message.h"
#include "base/system_calls.h"
#include "provider/connect/attachable.h"
#include "provider/connect/local_address.h"
#include "provider/connect/socket_owner.h"
#include "provider/process/device.h"
#include "provider/process/doorbells.h"
#include "provider/process/settings.h"

namespace uiw::provider {

namespace {

constexpr char kPurpose[] = "shared memory";
constexpr int kBacklog = 8;

// "uiw-shared/<address and port of the caller>/<those of the called end>", or "uiw-call/..." for a caller that only
// shows that it is in this network namespace (Purpose::presence).
class Name {
 public:
  Name(RingRendezvous::Purpose purpose, const sockaddr_storage& caller, const sockaddr_storage& called) {
    const Text one = text_of(caller), other = text_of(called);
    name_.sun_family = AF_UNIX;
    const char* const prefix = purpose == RingRendezvous::Purpose::sharing ? "shared" : "call";
    const int length =
        std::snprintf(name_.sun_path + 1, sizeof name_.sun_path - 1, "uiw-%s/%s/%s", prefix, one.data(), other.data());
    size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
  }
  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&name_); }
  socklen_t size() const { return size_; }

 private:
  using Text = std::array<char, INET6_ADDRSTRLEN + sizeof ".65535">;

  // Both ends write an address in the same form, even if one of them has it as an IPv4-mapped IPv6 address.
  static Text text_of(const sockaddr_storage& address) {
    sockaddr_storage plain = plain_address(address);
    Text text{};
    const void* octets = plain.ss_family == AF_INET6
                             ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(plain).sin6_addr)
                             : &reinterpret_cast<const sockaddr_in&>(plain).sin_addr;
    ::inet_ntop(plain.ss_family, octets, text.data(), INET6_ADDRSTRLEN);
    const std::size_t length = std::strlen(text.data());
    std::snprintf(text.data() + length, text.size() - length, ".%u", ntohs(port_of(plain)));
    return text;
  }

  sockaddr_un name_{};
  socklen_t size_ = 0;
};

OwnedDescriptor open_socket() {
  constexpr int kType = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  return OwnedDescriptor(DescriptorChange().take(sys::socket(AF_UNIX, kType, 0), kPurpose));
}

// Each stream in shared memory needs one mapping more than a stream over TCP. Linux allows a process 65530 mappings
// (vm.max_map_count), and the program must keep enough of them.
bool has_room() {
  constexpr unsigned kMost = 32'768;
  return SharedMemory::count() < kMost;
}

bool may_share() { return settings().values.same_host != SameHost::tcp && has_room(); }

// Whether the other end of this Unix socket belongs to this process's user. False for the overflow user id, by which a
// user namespace shows all users that it does not map.
bool is_own_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != ::geteuid()) return false;
  return known_user(peer.uid).has_value();
}

// Makes an offer of shared memory with a random number of this end. Null if there is no memory or no random number.
std::shared_ptr<SharedOffer> make_offer(bool caller) {
  try {
    auto offer = std::make_shared<SharedOffer>(caller);
    return fill_random(offer->own.data(), offer->own.size()) ? offer : nullptr;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace

std::unique_ptr<RingRendezvous> RingRendezvous::listen(const sockaddr_storage& local, const sockaddr_storage& remote,
                                                       Wishes wishes) {
  const Purpose purpose = wishes.sharing && may_share() ? Purpose::sharing : Purpose::presence;
  if ((purpose == Purpose::presence && !wishes.presence) || !is_within_host(local, remote)) return nullptr;
  OwnedDescriptor socket = open_socket();
  if (!socket) return nullptr;
  const Name name(purpose, local, remote);
  if (::bind(socket.get(), name.address(), name.size()) != 0 || ::listen(socket.get(), kBacklog) != 0) return nullptr;
  return std::unique_ptr<RingRendezvous>(new (std::nothrow) RingRendezvous(std::move(socket), purpose));
}

// Accepts a connection from a process of this user. Any user may connect to the name; others' connections are closed.
OwnedDescriptor RingRendezvous::accept() const {
  for (int tries = 0; tries < kBacklog; ++tries) {
    OwnedDescriptor accepted(
        DescriptorChange().take(sys::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK), kPurpose));
    if (!accepted || is_own_user(accepted.get())) return accepted;
  }
  return {};
}

std::shared_ptr<SharedOffer> RingRendezvous::take(Attachable& end) {
  if (purpose_ == Purpose::presence) return nullptr;
  const OwnedDescriptor socket = accept();
  if (!socket) return nullptr;
  const std::array<int, 2> own = {Doorbells::of_process().descriptor(), end.doorbell()};
  if (own[0] < 0 || own[1] < 0) return nullptr;
  auto offer = make_offer(true);
  if (!offer) return nullptr;
  {
    DescriptorChange change;
    std::array<int, 3> come;
    if (!receive_message(change, socket.get(), offer->peers, come)) return nullptr;
    offer->memory = SharedMemory::attach(come[0]);
    change.drop(come[0]);
    offer->peer = Doorbells::of_peer(change, come[1], come[2]);
  }
  if (!offer->peer || !offer->memory) return nullptr;
  return send_message(socket.get(), offer->own, own) ? offer : nullptr;
}

RingContact::RingContact(const sockaddr_storage& local, const sockaddr_storage& remote) {
  if (!is_within_host(local, remote)) return;
  OwnedDescriptor socket = open_socket();
  if (!socket) return;
  for (const auto purpose : {RingRendezvous::Purpose::sharing, RingRendezvous::Purpose::presence}) {
    const Name name(purpose, remote, local);
    if (::connect(socket.get(), name.address(), name.size()) != 0) continue;
    socket_ = std::move(socket);
    sharing_ = purpose == RingRendezvous::Purpose::sharing;
    return;
  }
}

std::shared_ptr<SharedOffer> RingContact::offer(Attachable& end) {
  if (!sharing_ || !may_share() || !is_own_user(socket_.get())) return nullptr;
  const int page = Doorbells::of_process().descriptor(), doorbell = end.doorbell();
  auto offer = make_offer(false);
  if (!offer || page < 0 || doorbell < 0) return nullptr;
  int fd = -1;
  offer->memory = SharedMemory::create(fd);
  const OwnedDescriptor memory(fd);
  if (!offer->memory || !send_message(socket_.get(), offer->own, std::array{fd, page, doorbell})) return nullptr;
  offer->socket = std::move(socket_);
  offer->find_doorbell = Doorbells::of_peer;
  return offer;
}

}  // namespace uiw::provider
