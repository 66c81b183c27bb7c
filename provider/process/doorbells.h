// SPDX-License-Identifier: MIT
// The doorbells of this process: bits in a shared page (base/stream/doorbell_page.h), by which peers on this host
// report that a shared-memory stream has octets to read or room to write. The page is made for the first such stream.
// Each engine (progress/engine.h) takes words of the page for the bits of its queue pairs. This class also keeps the
// doorbells of peers: all streams to one context of a peer share one PeerDoorbell. Thread-safe; nothing throws.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/stream/doorbell.h"
#include "base/stream/doorbell_page.h"

namespace uiw::provider {

class Doorbells {
 public:
  static Doorbells& of_process();

  // The descriptor of the page, to be passed to peers; this object owns it. The first call makes the page. -1 if the
  // page cannot be made.
  int descriptor();
  // Reserves a word of the page until give_back(), and returns its number. Returns nullopt if no word is free or the
  // page cannot be made.
  std::optional<std::size_t> take();
  void give_back(std::size_t word);
  // The word with this number, which take() has returned.
  DoorbellPage::Word& word(std::size_t number) const { return page_.load()->word(number); }

  // Finds or makes the doorbell of a peer that has sent these two descriptors, of its page and of the socket by which
  // its threads are woken. Takes or closes both descriptors, which have arrived during `change`. Null if it cannot use
  // them.
  static std::shared_ptr<PeerDoorbell> of_peer(DescriptorChange& change, int page, int socket);

  // In the child of a fork: gives up the page, which belongs to the parent.
  void after_fork_in_child();

 private:
  // The doorbell of one context of a peer, identified by the device and inode numbers of its two descriptors. Both must
  // match, since a peer may pass on a descriptor that it has received from another peer.
  struct Peer {
    using File = std::pair<dev_t, ino_t>;

    File page, socket;
    std::weak_ptr<PeerDoorbell> doorbell;
  };

  bool make() UIW_REQUIRES(mutex_);
  static std::optional<Peer> identify(int page, int socket);
  std::shared_ptr<PeerDoorbell> known(const Peer& peer);
  std::shared_ptr<PeerDoorbell> find(DescriptorChange& change, int page, int& socket);

  Mutex mutex_;
  std::atomic<DoorbellPage*> page_{nullptr};  // lives as long as the process
  int fd_ UIW_GUARDED_BY(mutex_) = -1;
  std::array<bool, DoorbellPage::kWords> taken_ UIW_GUARDED_BY(mutex_){};
  std::vector<Peer> peers_ UIW_GUARDED_BY(mutex_);
};

}  // namespace uiw::provider
