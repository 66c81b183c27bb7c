// SPDX-License-Identifier: MIT
// Wakes a thread of another process that sleeps on an epoll set, by a connected pair of Unix stream sockets. The
// process that sleeps watches one end (Doorbell) and passes copies of the other end to all its peers. Each peer keeps
// its copy together with its mapping of the doorbell page (PeerDoorbell, doorbell_page.h). The octets that are sent
// have no meaning. No function blocks, whatever a peer does. If one peer shuts the pair down, the other peers can wake
// no thread through it. A peer that finds this when it has to wake a thread ends its stream. Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "base/descriptor.h"
#include "base/stream/doorbell_page.h"

namespace uiw {

class Doorbell {
 public:
  Doorbell() = default;  // empty: without descriptors
  // Empty if the descriptors cannot be created.
  static Doorbell create();

  explicit operator bool() const { return static_cast<bool>(watched_); }
  // To be watched for EPOLLIN.
  int watched() const { return watched_.get(); }
  // The end whose copies are passed to the peers.
  int passed_on() const { return passed_on_.get(); }

  // Reads the octets that have arrived. False if a peer has shut the pair down; the pair then wakes nobody any more.
  bool drain() const;
  // Wakes this process itself, as a peer would.
  void ring() const;
  // Closes the watched end. The other end stays open, since another thread may be passing it on.
  void shut() { watched_.reset(); }
  // Gives up both descriptors without closing them. To be called if the program has closed them.
  void forget() { watched_.release(), passed_on_.release(); }

 private:
  OwnedDescriptor watched_, passed_on_;
};

// Wakes a peer: the peer's page of doorbells, and a copy of the descriptor that the peer's Doorbell passes on.
class PeerDoorbell {
 public:
  PeerDoorbell(std::unique_ptr<DoorbellPage> page, OwnedDescriptor socket)
      : page_(std::move(page)), socket_(std::move(socket)) {}

  // Tells the peer to look at the stream that has bit `at` in the peer's page. `at` comes from the peer and may be any
  // number. False if a thread of the peer has to be woken and cannot be.
  bool ring(DoorbellPage::Bell at) const { return page_->ring(at) || wake(); }
  int socket() const { return socket_.get(); }

 private:
  bool wake() const;

  const std::unique_ptr<DoorbellPage> page_;
  const OwnedDescriptor socket_;
};

}  // namespace uiw
