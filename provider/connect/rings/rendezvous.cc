// SPDX-License-Identifier: MIT
#include "provider/connect/rings/rendezvous.h"

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "mpa/descriptor.h"
#include "mpa/stream/descriptor_message.h"
#include "provider/connect/local_address.h"
#include "provider/connect/socket_owner.h"
#include "provider/process/device.h"
#include "provider/process/doorbells.h"
#include "provider/process/random.h"
#include "provider/process/settings.h"

namespace uiw::provider {

namespace {

constexpr char kPurpose[] = "shared memory";
constexpr int kBacklog = 8;

// "uiw-rings/<address and port of the caller>/<those of the called end>", or "uiw-call/..." of one that shares nothing.
class Name {
 public:
  Name(RingRendezvous::Purpose purpose, const sockaddr_storage& caller, const sockaddr_storage& called) {
    const Text one = text_of(caller), other = text_of(called);
    name_.sun_family = AF_UNIX;
    const char* const prefix = purpose == RingRendezvous::Purpose::sharing ? "rings" : "call";
    const int length =
        std::snprintf(name_.sun_path + 1, sizeof name_.sun_path - 1, "uiw-%s/%s/%s", prefix, one.data(), other.data());
    size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
  }
  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&name_); }
  socklen_t size() const { return size_; }

 private:
  using Text = std::array<char, INET6_ADDRSTRLEN + sizeof ".65535">;

  // Both ends write an address in the same way, though a socket of IPv6 may have one of IPv4.
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

int open_socket() {
  return mpa::DescriptorChange().take(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), kPurpose);
}

// Each stream in shared memory has a descriptor and two mappings (its rings, and the peer's doorbells) more than one
// over TCP. Both are limited, and belong to the program first: connections that would not be there without them come
// before faster ones.
bool has_room() {
  constexpr rlim_t kMost = 24'576;  // of the 65530 mappings that Linux allows (vm.max_map_count)
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return false;
  return mpa::SharedMemory::count() < std::min(descriptors.rlim_cur / 4, kMost);
}

bool may_share() { return settings().values.same_host != SameHost::tcp && has_room(); }

// A user whom this process's user namespace does not know has the number of all such users.
bool is_own_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != ::geteuid()) return false;
  return known_user(peer.uid).has_value();
}

bool fill(mpa::SwitchNonce& nonce) { return fill_random(nonce.data(), nonce.size()); }

// Takes over the socket, unless that is -1.
std::shared_ptr<mpa::SharedOffer> make_offer(int fd, bool caller) {
  if (fd < 0) return nullptr;
  mpa::Doorbell doorbell(fd);
  try {
    return std::make_shared<mpa::SharedOffer>(std::move(doorbell), caller);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace

std::unique_ptr<RingRendezvous> RingRendezvous::listen(const sockaddr_storage& local, const sockaddr_storage& remote,
                                                       Wishes wishes) {
  const Purpose purpose = wishes.sharing && may_share() ? Purpose::sharing : Purpose::presence;
  if ((purpose == Purpose::presence && !wishes.presence) || !is_within_host(local, remote)) return nullptr;
  const int fd = open_socket();
  if (fd < 0) return nullptr;
  std::unique_ptr<RingRendezvous> made(new (std::nothrow) RingRendezvous(fd, purpose));
  if (!made) {
    mpa::close_descriptor(fd);
    return nullptr;
  }
  const Name name(purpose, local, remote);
  if (::bind(fd, name.address(), name.size()) != 0 || ::listen(fd, kBacklog) != 0) return nullptr;
  return made;
}

RingRendezvous::~RingRendezvous() { mpa::close_descriptor(fd_); }

// Any user may connect to the name.
int RingRendezvous::accept() const {
  for (int tries = 0; tries < kBacklog; ++tries) {
    const int fd =
        mpa::DescriptorChange().take(::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK), kPurpose);
    if (fd < 0 || is_own_user(fd)) return fd;
    mpa::close_descriptor(fd);
  }
  return -1;
}

std::shared_ptr<mpa::SharedOffer> RingRendezvous::take() {
  if (purpose_ == Purpose::presence) return nullptr;
  const int fd = accept();
  auto offer = make_offer(fd, true);
  if (!offer || !fill(offer->own)) return nullptr;
  std::array<int, mpa::kMostDescriptors> fds;
  if (!mpa::receive_message(fd, offer->peers, fds)) return nullptr;
  const auto [memory, page] = fds;
  if (memory >= 0) offer->memory = mpa::SharedMemory::attach(memory);
  if (page >= 0) offer->peers_page = mpa::DoorbellPage::attach(page);
  for (const int one : fds)
    if (one >= 0) mpa::close_descriptor(one);
  const int own_page = Doorbells::of_process().descriptor();
  const std::span<const int> sent(&own_page, own_page >= 0 ? 1 : 0);
  if (!offer->memory || !mpa::send_message(fd, offer->own, sent)) return nullptr;
  return offer;
}

RingContact::RingContact(const sockaddr_storage& local, const sockaddr_storage& remote) {
  if (!is_within_host(local, remote)) return;
  const int fd = open_socket();
  if (fd < 0) return;
  for (const auto purpose : {RingRendezvous::Purpose::sharing, RingRendezvous::Purpose::presence}) {
    const Name name(purpose, remote, local);
    if (::connect(fd, name.address(), name.size()) != 0) continue;
    fd_ = fd;
    sharing_ = purpose == RingRendezvous::Purpose::sharing;
    return;
  }
  mpa::close_descriptor(fd);
}

RingContact::~RingContact() {
  if (fd_ >= 0) mpa::close_descriptor(fd_);
}

std::shared_ptr<mpa::SharedOffer> RingContact::offer() {
  if (!sharing_ || !may_share()) return nullptr;
  const int fd = std::exchange(fd_, -1);
  auto offer = make_offer(fd, false);
  if (!offer || !is_own_user(fd) || !fill(offer->own)) return nullptr;
  int memory = -1;
  offer->memory = mpa::SharedMemory::create(memory);
  if (!offer->memory) return nullptr;
  const std::array<int, 2> fds = {memory, Doorbells::of_process().descriptor()};
  const bool sent = mpa::send_message(fd, offer->own, {fds.data(), fds[1] >= 0 ? 2U : 1U});
  mpa::close_descriptor(memory);
  return sent ? offer : nullptr;
}

}  // namespace uiw::provider
