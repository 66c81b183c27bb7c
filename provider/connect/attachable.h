// SPDX-License-Identifier: MIT
// What the making of connections knows of a queue pair: whether it may have a stream, and how it is given one. Qp is
// the only one there is; through this interface connect/ can stand below it.
//
// Thread-safe: all functions take the locks of the queue pair by themselves. A queue pair that was found by its number
// (qp_table.h) lives until the ReadSection closes inside which that was done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "mpa/startup.h"
#include "mpa/tcp_stream.h"
#include "provider/connect/attempt.h"
#include "provider/stream/stream_owner.h"
#include "rdmap/transmitter.h"

namespace uiw::provider {

// What has been settled about a connection when its queue pair is given the stream.
struct Attachment {
  mpa::Agreement agreement;
  bool initiator = false;
  std::size_t mulpdu = 0;  // largest ULPDU to send; 0 follows the TCP segment size
  // Manual connection: the attempt that has led to it; the queue pair's state and attributes are what its program
  // says. nullptr: rdma_cm's.
  std::shared_ptr<manual::Attempt> attempt;
  std::uint32_t peer_psn = 0;  // manual: the peer's rq_psn, 0 if it has said none
  rdmap::Completion completion = rdmap::Completion::local;
  // What the program knows of the depths agreed on, at most; the rest is for probes (rdmap/transmitter.h).
  std::uint32_t ord = ~0U, ird = ~0U;
  std::shared_ptr<StreamOwner> owner;
};

class Attachable {
 public:
  // Gives the queue pair its stream. EINVAL where its state does not allow it, EISCONN where it has one; the socket is
  // then untouched.
  virtual int attach(mpa::TcpStream& socket, const Attachment& attachment) = 0;
  // Would it be given one by this attempt, or, for nullptr, by rdma_cm?
  virtual bool can_attach(const manual::Attempt* attempt) = 0;
  // Does the peer that says this PSN (Attachment) mean this queue pair, as far as is known?
  virtual bool is_for(std::uint32_t peer_psn) = 0;
  // Orderly end: what is posted is sent, then TCP is closed; a peer that does not close in time is reset. ENOTCONN if
  // the stream is not this owner's or not there; nullptr stands for any.
  virtual int disconnect(const StreamOwner* owner) = 0;
  // The peer has had its time to begin.
  virtual void abort_beginning(const StreamOwner* owner) = 0;
  // Work posted to a queue pair that its program has connected fails once it has waited for too long. False if there is
  // none.
  virtual bool check_retry_timer() = 0;
  // This is the child of a fork, and the queue pair the parent's.
  virtual void after_fork_in_child() = 0;

 protected:
  ~Attachable() = default;
};

}  // namespace uiw::provider
