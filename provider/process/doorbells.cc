// SPDX-License-Identifier: MIT
#include "provider/process/doorbells.h"

#include <sys/stat.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

#include "mpa/descriptor.h"

namespace uiw::provider {

Doorbells& Doorbells::of_process() {
  static Doorbells doorbells;
  return doorbells;
}

// Called with the lock held.
bool Doorbells::make() {
  if (page_.load() == nullptr) page_.store(mpa::DoorbellPage::create(fd_).release());
  return page_.load() != nullptr;
}

int Doorbells::descriptor() {
  const std::lock_guard lock(mutex_);
  return make() ? fd_ : -1;
}

std::optional<std::size_t> Doorbells::take() {
  const std::lock_guard lock(mutex_);
  if (!make()) return std::nullopt;
  const auto free = std::ranges::find(taken_, false);
  if (free == taken_.end()) return std::nullopt;
  *free = true;
  return static_cast<std::size_t>(free - taken_.begin());
}

void Doorbells::give_back(std::size_t word) {
  const std::lock_guard lock(mutex_);
  taken_[word] = false;
}

std::shared_ptr<mpa::PeerDoorbell> Doorbells::of_peer(mpa::DescriptorChange& change, int page, int socket) {
  auto found = of_process().find(change, page, socket);
  for (const int fd : {page, socket}) change.drop(fd);
  return found;
}

// Where it takes the socket, it leaves -1.
std::shared_ptr<mpa::PeerDoorbell> Doorbells::find(mpa::DescriptorChange& change, int page, int& socket) {
  struct stat of_page {};
  struct stat of_socket {};
  if (::fstat(page, &of_page) != 0 || ::fstat(socket, &of_socket) != 0) return nullptr;
  Peer peer{of_page.st_ino, of_socket.st_ino, {}};
  try {
    const std::lock_guard lock(mutex_);
    std::erase_if(peers_, [](const Peer& one) { return one.doorbell.expired(); });
    const auto known = std::ranges::find_if(peers_, [&](const Peer& one) { return one.is_same(peer); });
    if (known != peers_.end()) {
      if (auto doorbell = known->doorbell.lock()) return doorbell;
    }
    auto view = mpa::DoorbellPage::attach(page);
    mpa::OwnedDescriptor taken(change.take(std::exchange(socket, -1), "shared memory"));
    if (!view || !taken) return nullptr;
    auto made = std::make_shared<mpa::PeerDoorbell>(std::move(view), std::move(taken));
    peer.doorbell = made;
    peers_.push_back(std::move(peer));
    return made;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

// Another thread may have been at the vector.
void Doorbells::after_fork_in_child() {
  new (&peers_) std::vector<Peer>;
  page_.store(nullptr);  // not mapped here
  if (fd_ >= 0) mpa::close_descriptor(fd_);
  fd_ = -1;
  taken_ = {};
}

}  // namespace uiw::provider
