// SPDX-License-Identifier: MIT
// The placeholder endpoint of an rdma_cm connection that has no RC queue pair. The program passes the number of a queue
// pair for datagrams, or a number without a queue pair. It wants only the events and the private data of the connection
// manager, in order to connect queue pairs without rdma_cm afterwards. UCX does that. InfiniBand allows it, since there
// the messages of the connection manager do not pass through the connection.
//
// The TCP connection stays open without an RDMAP stream, and tells when the peer leaves. The caller sends the
// ready-to-receive message (RFC 6581 section 9) when its program confirms the reply. This message establishes the
// called side, as an RTU does on InfiniBand. It is never an RDMA Read, since a placeholder cannot answer one
// (Proposal::read_as_rtr). Anything else that arrives resets the connection, since it is for no queue pair.
//
// Thread-safe. attach() is called once. The owner is told of the end once, and not kept alive after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/mutex.h"
#include "base/stream/tcp_stream.h"
#include "mpa/startup.h"
#include "provider/connect/attachable.h"
#include "provider/process/cm_loop.h"

namespace uiw::provider {

class Placeholder final : public Attachable,
                          public CmLoop::Handler,
                          public CmLoop::TimedTask,
                          public std::enable_shared_from_this<Placeholder> {
 public:
  ~Placeholder() override;

  // Attachable. attach() also fails with EPROTO if the peer waits for an RDMA Read as ready-to-receive message, and
  // with an errno of CmLoop::watch().
  int attach(TcpStream& socket, const Attachment& attachment) override;
  bool can_attach(const manual::Attempt*) override { return true; }
  bool is_for(std::uint32_t) override { return true; }
  int disconnect(const ConnectionOwner* owner) override;
  void arrived(const ConnectionOwner*) override { const LockGuard lock(mutex_); }
  void no_first_message(const ConnectionOwner* owner) override;
  bool check_retry_timer(std::chrono::nanoseconds) override { return false; }
  void restart_retry_timer() override {}

  // The calling side: sends the ready-to-receive message if one was agreed on and it was not sent yet.
  void confirm();

  // The peer has sent something, or has left.
  void ready(std::uint32_t epoll_events) override;
  // The peer has not closed in time.
  void run() override;

 private:
  enum class By { fin, reset };
  void end(By how) UIW_REQUIRES(mutex_);

  Mutex mutex_;  // taken after that of the owner's connection
  TcpStream socket_ UIW_GUARDED_BY(mutex_);
  std::shared_ptr<ConnectionOwner> owner_ UIW_GUARDED_BY(mutex_);  // null before attach() and after the end
  mpa::Agreement agreement_ UIW_GUARDED_BY(mutex_);
  bool initiator_ UIW_GUARDED_BY(mutex_) = false;
  bool confirmed_ UIW_GUARDED_BY(mutex_) = false;
  std::size_t received_ UIW_GUARDED_BY(mutex_) = 0;  // octets
};

}  // namespace uiw::provider
