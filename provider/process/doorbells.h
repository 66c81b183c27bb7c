// SPDX-License-Identifier: MIT
// The doorbells of this process (base/stream/doorbell_page.h): one page of them, made when the first stream in shared
// memory is set up. The list of an engine's queue pairs takes words of it. This class also knows the doorbells of
// peers, which all streams to one context of a peer share. Thread-safe; nothing throws.
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

  // The descriptor of the page, to be passed on, which stays this object's. -1 if there can be none.
  int descriptor();
  // A word that nobody else has, until give_back(): its number in the page. Nothing if there is none.
  std::optional<std::size_t> take();
  void give_back(std::size_t word);
  // Of a word that was taken.
  DoorbellPage::Word& word(std::size_t number) const { return page_.load()->word(number); }

  // As SharedOffer::FindDoorbell.
  static std::shared_ptr<PeerDoorbell> of_peer(DescriptorChange& change, int page, int socket);

  // In the child of a fork: the page is the parent's.
  void after_fork_in_child();

 private:
  // The doorbells of one context of a peer, found by the files that the two descriptors stand for. Both have to be the
  // same: a peer may pass on a descriptor that it has got from another one.
  struct Peer {
    using File = std::pair<dev_t, ino_t>;

    File page, socket;
    std::weak_ptr<PeerDoorbell> doorbell;
  };

  bool make();
  static std::optional<Peer> identify(int page, int socket);
  std::shared_ptr<PeerDoorbell> known(const Peer& peer);
  std::shared_ptr<PeerDoorbell> find(DescriptorChange& change, int page, int& socket);

  Mutex mutex_;
  std::atomic<DoorbellPage*> page_{nullptr};  // lives as long as the process
  int fd_ = -1;
  std::array<bool, DoorbellPage::kWords> taken_{};
  std::vector<Peer> peers_;
};

}  // namespace uiw::provider
