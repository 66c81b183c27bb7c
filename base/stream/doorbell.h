// SPDX-License-Identifier: MIT
// Wakes a thread of another process that sleeps on an epoll set, by a connected pair of Unix stream sockets. The
// process that sleeps watches one end (Doorbell) and passes copies of the other to all its peers, each of which keeps
// its copy with its mapping of the doorbell page (PeerDoorbell, doorbell_page.h). The octets have no meaning. Nothing
// blocks, whatever a peer does. If a peer shuts the pair down, each other peer that then has to wake a thread ends its
// stream instead. Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "base/descriptor.h"
#include "base/stream/doorbell_page.h"

namespace uiw {

class Doorbell {
 public:
  Doorbell() = default;  // none
  // Empty if the system does not allow it.
  static Doorbell create();

  explicit operator bool() const { return static_cast<bool>(watched_); }
  // To be watched for EPOLLIN.
  int watched() const { return watched_.get(); }
  // The end whose copies are passed to the peers.
  int passed_on() const { return passed_on_.get(); }

  // Reads what has arrived. False if a peer has shut the pair down, after which it wakes nobody.
  bool drain() const;
  // Wakes this process itself, as a peer would.
  void ring() const;
  // Closes the watched end. The other end stays open, since another thread may be passing it on.
  void shut() { watched_.reset(); }
  // Gives up both descriptors, since the program has closed them.
  void forget() { watched_.release(), passed_on_.release(); }

 private:
  OwnedDescriptor watched_, passed_on_;
};

// How this process rings a peer: the peer's page of doorbells, and a copy of the end that its Doorbell passes on.
class PeerDoorbell {
 public:
  PeerDoorbell(std::unique_ptr<DoorbellPage> page, OwnedDescriptor socket)
      : page_(std::move(page)), socket_(std::move(socket)) {}

  // Reports news of the stream that has bit `at` in the peer's page. `at` comes from the peer and may be any number.
  // False if the peer sleeps and cannot be woken.
  bool ring(DoorbellPage::Bell at) const { return page_->ring(at) || wake(); }
  int socket() const { return socket_.get(); }

 private:
  bool wake() const;

  const std::unique_ptr<DoorbellPage> page_;
  const OwnedDescriptor socket_;
};

}  // namespace uiw
