// SPDX-License-Identifier: MIT
#include "provider/process/doorbells.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/descriptor.h"
#include "base/immortal.h"
#include "base/mutex.h"

namespace uiw::provider {

Doorbells& Doorbells::of_process() {
  static const Immortal<Doorbells> doorbells;
  return *doorbells;
}

bool Doorbells::make() {
  if (page_.load() == nullptr) page_.store(DoorbellPage::create(fd_).release());
  return page_.load() != nullptr;
}

int Doorbells::descriptor() {
  const LockGuard lock(mutex_);
  return make() ? fd_ : -1;
}

std::optional<std::size_t> Doorbells::take() {
  const LockGuard lock(mutex_);
  if (!make()) return std::nullopt;
  const auto free = std::ranges::find(taken_, false);
  if (free == taken_.end()) return std::nullopt;
  *free = true;
  return static_cast<std::size_t>(free - taken_.begin());
}

void Doorbells::give_back(std::size_t word) {
  const LockGuard lock(mutex_);
  taken_[word] = false;
}

std::shared_ptr<PeerDoorbell> Doorbells::of_peer(DescriptorChange& change, int page, int socket) {
  auto found = of_process().find(change, page, socket);
  for (const int fd : {page, socket}) change.drop(fd);
  return found;
}

// Checks the types of the descriptors before it calls fstat(): a peer may pass any descriptor, and fstat() may block if
// the peer serves the file system (FUSE).
std::optional<Doorbells::Peer> Doorbells::identify(int page, int socket) {
  int domain = 0, type = 0;
  socklen_t size = sizeof domain;
  if (::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_UNIX) return std::nullopt;
  if (::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return std::nullopt;
  if (::fcntl(page, F_GET_SEALS) < 0) return std::nullopt;
  struct stat of_page {};
  struct stat of_socket {};
  if (::fstat(page, &of_page) != 0 || ::fstat(socket, &of_socket) != 0) return std::nullopt;
  return Peer{{of_page.st_dev, of_page.st_ino}, {of_socket.st_dev, of_socket.st_ino}, {}};
}

// Returns the doorbell that is known for this peer, or null. Checks that the doorbell's descriptor is still that of the
// peer's socket: the program may have closed the descriptor, which the guard (base/descriptor.h) may not have noticed.
std::shared_ptr<PeerDoorbell> Doorbells::known(const Peer& peer) {
  const LockGuard lock(mutex_);
  std::erase_if(peers_, [](const Peer& one) { return one.doorbell.expired(); });
  for (const Peer& one : peers_) {
    if (one.page != peer.page || one.socket != peer.socket) continue;
    auto doorbell = one.doorbell.lock();
    struct stat status {};
    const bool intact = doorbell && ::fstat(doorbell->socket(), &status) == 0;
    if (intact && Peer::File{status.st_dev, status.st_ino} == peer.socket) return doorbell;
  }
  return nullptr;
}

// Finds or makes the doorbell of a peer. Returns null if the descriptors cannot be used or there is no memory. The
// caller keeps both descriptors, unless this function takes the socket: then `socket` becomes -1.
std::shared_ptr<PeerDoorbell> Doorbells::find(DescriptorChange& change, int page, int& socket) {
  auto peer = identify(page, socket);
  if (!peer) return nullptr;
  if (auto doorbell = known(*peer)) return doorbell;
  auto view = DoorbellPage::attach(page);
  OwnedDescriptor taken(change.take(std::exchange(socket, -1), "shared memory"));
  if (!view || !taken) return nullptr;
  try {
    auto made = std::make_shared<PeerDoorbell>(std::move(view), std::move(taken));
    peer->doorbell = made;
    const LockGuard lock(mutex_);
    peers_.push_back(std::move(*peer));
    return made;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

// A thread of the parent may have been changing `peers_` at the fork, so the child gets a new vector.
void Doorbells::after_fork_in_child() {
  assume_held(mutex_);
  new (&peers_) std::vector<Peer>;
  page_.store(nullptr);  // the parent's page is not mapped in the child
  if (fd_ >= 0) close_descriptor(fd_);
  fd_ = -1;
  taken_ = {};
}

}  // namespace uiw::provider
