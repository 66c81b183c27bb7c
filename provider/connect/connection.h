// SPDX-License-Identifier: MIT
// A connection as its consumer sees it, from the call to the news of its end. Who calls uses connect() of
// outgoing_call.h, who is called listen() of listener.h.
//
// Ownership: the consumer owns the connection, until it is established: from then on its queue pair does, and the
// consumer's reference is for disconnect() alone. Observers are held weakly: once the last shared_ptr is gone, no
// further callback starts.
//
// Threads and locks: all functions are thread-safe and do not block. Start-up happens on one thread of the process,
// "uiw-cm" (provider/process/cm_loop.h), which starts with the first listen or connect. Every observer callback runs on
// that thread, with no lock of this folder held; it may call any function here except to destroy the object that is
// calling it.
//
// Errors: functions return 0 or an errno.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "provider/connect/attempt.h"
#include "provider/export.h"

namespace uiw::provider {

constexpr std::size_t kMaxPrivateData = 508;  // 512 less the enhanced header (RFC 6581 section 4)

// What one side says of itself in its start-up frame, and what the consumer is told of the peer.
struct ConnectionParameters {
  std::uint32_t qp_num = 0;             // the local QP that shall own the stream; unused in what a peer said
  unsigned responder_resources = 0;     // IRD: incoming RDMA Reads this side holds at a time
  unsigned initiator_depth = 0;         // ORD: outgoing RDMA Reads this side wants to have outstanding
  std::vector<std::byte> private_data;  // of the consumer, at most kMaxPrivateData octets
  // Manual connection: the program of the QP sets it up itself, and its state is left alone. nullptr for rdma_cm.
  std::shared_ptr<manual::Attempt> attempt;
  std::uint32_t peer_psn = 0;  // of such a QP (Attachment)
  // Of a reply to such a QP's call, by its private data and both addresses of the connection: has the wanted peer given
  // it? Then its PSN (Attachment).
  using ReplyCheck = std::function<std::optional<std::uint32_t>(
      const std::vector<std::byte>& private_data, const sockaddr_storage& local, const sockaddr_storage& remote)>;
  ReplyCheck check_reply;
};

class ConnectionObserver {
 public:
  virtual ~ConnectionObserver() = default;
  // The stream stands and the QP is in RTS. On the active side `peer` is what the reply said.
  virtual void established(const ConnectionParameters& peer) = 0;
  // Set-up failed: ECONNREFUSED with `peer` (a rejection, its private data there), or with nullptr (nobody
  // listens), ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, EPROTO (a malformed or impossible start-up frame),
  // ECONNRESET. Nothing more follows.
  virtual void failed(int error, const ConnectionParameters* peer) = 0;
  // An established stream has ended, for whatever reason, by either side; the QP is in ERR. Nothing more follows.
  virtual void disconnected() = 0;
};

// One connection, of the caller or of who is called. Destroying the last reference to a call that is not established
// closes its socket without a callback; an established one goes on, owned by its QP.
class UIW_API Connection {
 public:
  virtual ~Connection() = default;

  // Passive side, once: answers the request with a reply and gives the stream to the QP.
  virtual int accept(const ConnectionParameters& own, std::weak_ptr<ConnectionObserver> observer) = 0;
  // Passive side, once: answers with a rejection.
  virtual int reject(const std::vector<std::byte>& private_data) = 0;
  // Orderly end of an established connection: work already posted is sent, then TCP is closed. ENOTCONN if it
  // does not stand.
  virtual int disconnect() = 0;

  virtual sockaddr_storage local_address() const = 0;
  virtual sockaddr_storage remote_address() const = 0;
};

}  // namespace uiw::provider
