// SPDX-License-Identifier: MIT
// One end of a connection, from the TCP connect to the end of the stream, as its consumer (rdma_cm or connect/manual/)
// sees it. The active side uses connect() of outgoing_call.h, the passive side listen() of listener.h.
//
// Ownership: the consumer owns the call until the call gives its stream to the queue pair. From then on the stream
// keeps the call alive, and the consumer needs its reference only to call functions of the call. A call has a weak
// reference to its observer: after the last shared_ptr to the observer is gone, no further callback starts.
//
// Threads and locks: all functions are thread-safe and do not block. What arrives from the peer is handled on the
// thread "uiw-cm" (provider/process/cm_loop.h), which starts when it is first needed. Every callback of an observer
// runs on that thread, with no lock of this folder held. A callback may call any function here, but must not destroy
// its own observer.
//
// Errors: functions that return an int return 0 or an errno.
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
#include "provider/connect/startup/retry_counts_format.h"

namespace uiw::provider {

constexpr std::size_t kMaxPrivateData = 508;  // 512 octets less the enhanced header (RFC 6581 section 9)

// What one side says in its start-up frame, and what the consumer learns of the peer.
struct CallParameters {
  // The number of the local QP for the stream; in the RoCE view rdma_cm may connect without one
  // (startup/placeholder.h). In the answer to a look-up (lookup/lookup.h) the number of the service's QP.
  std::uint32_t qp_num = 0;
  unsigned responder_resources = 0;     // IRD: RDMA Reads of the peer that this side accepts at a time
  unsigned initiator_depth = 0;         // ORD: RDMA Reads that this side wants to have outstanding
  std::vector<std::byte> private_data;  // of the consumer, at most kMaxPrivateData octets
  // The attempt of a manual connection (connect/manual/); the program itself sets the state of the QP. nullptr for
  // rdma_cm.
  std::shared_ptr<manual::Attempt> attempt;
  std::uint32_t peer_psn = 0;  // manual connections: the peer's rq_psn; 0: not known
  // For manual connections: checks whether the reply to a call comes from the wanted peer. Gets the private data of the
  // reply and both addresses of the connection. Returns the peer's rq_psn (0: not known), or nothing if the reply comes
  // from another end.
  using ReplyCheck = std::function<std::optional<std::uint32_t>(
      const std::vector<std::byte>& private_data, const sockaddr_storage& local, const sockaddr_storage& remote)>;
  ReplyCheck check_reply;
  RetryCounts retries;     // used only in the RoCE view
  std::uint32_t qkey = 0;  // in a look-up: the Q_Key of the QP `qp_num`
};

class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // The connection is established; if rdma_cm has connected a QP, the QP has reached RTS. `peer` is what the peer has
  // said: on the active side in its reply, on the passive side in its request.
  virtual void established(const CallParameters& peer) = 0;
  // Set-up has failed, and no callback follows. ECONNREFUSED with `peer`: the peer has rejected, and `peer` has its
  // private data. ECONNREFUSED with nullptr: no process listens. Some other errors: ETIMEDOUT, EHOSTUNREACH,
  // ENETUNREACH, EPROTO (a malformed or impossible start-up frame), ECONNRESET, ENOMEM, and those of attach().
  virtual void failed(int error, const CallParameters* peer) = 0;
  // An established stream has ended, for whatever reason and by whichever side. A QP that rdma_cm has connected is no
  // longer in RTS. No callback follows.
  virtual void disconnected() = 0;
};

// Destroying the last reference to a call closes the call's socket without a callback. Once the call has given its
// stream to the QP, the stream has a reference, too.
class Call {
 public:
  virtual ~Call() = default;

  // Passive side: answers the request with a reply and gives the stream to the QP. EINVAL if the QP cannot have a
  // stream now, or if the request is answered already.
  virtual int accept(const CallParameters& own, std::weak_ptr<CallObserver> observer) = 0;
  // Passive side: answers the request with a rejection. Called at most once.
  virtual int reject(const std::vector<std::byte>& private_data) = 0;
  // Ends the stream in order: posted work is sent, then TCP is closed. ENOTCONN if this call has given no stream to a
  // QP, or if the stream has ended. Returns 0 for a look-up (lookup/lookup.h), which has no stream.
  virtual int disconnect() = 0;
  // Active side: the consumer has seen the reply and is ready. Has an effect only if the caller's stream belongs to a
  // Placeholder (startup/placeholder.h), which sends its ready-to-receive message only then.
  virtual void confirm() {}
  // In the child of a fork: closes the child's copy of the socket, so that the peer notices when the parent ends. Does
  // nothing if a queue pair has the socket.
  virtual void abandon() {}

  virtual sockaddr_storage local_address() const = 0;
  virtual sockaddr_storage remote_address() const = 0;
};

}  // namespace uiw::provider
