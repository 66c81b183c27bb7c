// SPDX-License-Identifier: MIT
// How a process wakes a thread of another one that sleeps on an epoll set: by a connected pair of Unix stream sockets.
// The process that sleeps watches one end (Doorbell) and passes copies of the other to all its peers. A peer keeps its
// copy with its view of the page of doorbells (PeerDoorbell, doorbell_page.h). The octets have no meaning. Nothing
// blocks, whatever a peer does. A peer that shuts the pair ends the streams of those peers that have to wake a thread.
// Thread-safe.
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
  // The end for the peers.
  int passed_on() const { return passed_on_.get(); }

  // Reads what has come. False if a peer has shut the pair, which wakes nobody any more.
  bool drain() const;
  // As a peer that rings.
  void ring() const;
  // Nothing is watched any more. The other end stays, since another thread may be passing it on.
  void shut() { watched_.reset(); }
  // The program has closed the descriptors.
  void forget() { watched_.release(), passed_on_.release(); }

 private:
  OwnedDescriptor watched_, passed_on_;
};

// How this process rings a peer: the peer's page of doorbells, and a copy of the end that its Doorbell passes on.
class PeerDoorbell {
 public:
  PeerDoorbell(std::unique_ptr<DoorbellPage> page, OwnedDescriptor socket)
      : page_(std::move(page)), socket_(std::move(socket)) {}

  // Something has been written for the stream whose news the peer looks for at this place, whatever number it is. False
  // if the peer sleeps and cannot be woken.
  bool ring(DoorbellPage::Place at) const { return page_->ring(at) || wake(); }
  int socket() const { return socket_.get(); }

 private:
  bool wake() const;

  const std::unique_ptr<DoorbellPage> page_;
  const OwnedDescriptor socket_;
};

}  // namespace uiw
