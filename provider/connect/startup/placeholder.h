// SPDX-License-Identifier: MIT
// The endpoint of an rdma_cm connection that has no connected queue pair. The program (UCX, for example) passes the
// number of a queue pair for datagrams, or a number without a queue pair: it wants only the events and the private data
// of rdma_cm, in order to connect queue pairs manually afterwards. InfiniBand allows this, since its CM messages do not
// pass through the connection.
//
// The TCP connection stays open without an RDMAP stream, so that each end sees when the other closes. The caller sends
// the ready-to-receive message (RFC 6581 section 9) when its program confirms the reply. This message establishes the
// called side, as an RTU does on InfiniBand. It is never an RDMA Read, since a placeholder cannot answer one
// (Proposal::read_as_rtr). If more than 64 octets arrive, which no such message has, the connection is reset, since no
// queue pair could receive them.
//
// Thread-safe. attach() is called once. The owner is told once that the connection has ended, and is not kept alive
// afterwards.
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

  // Implements Attachable. attach() also fails with EPROTO if the peer waits for an RDMA Read as ready-to-receive
  // message, and with an errno of CmLoop::watch().
  int attach(TcpStream& socket, const Attachment& attachment) override;
  bool can_attach(const manual::Attempt*) override { return true; }
  bool is_for(std::uint32_t) override { return true; }
  int disconnect(const ConnectionOwner* owner) override;
  void arrived(const ConnectionOwner*) override { const LockGuard lock(mutex_); }
  void no_first_message(const ConnectionOwner* owner) override;
  bool check_retry_timer(std::chrono::nanoseconds) override { return false; }
  void restart_retry_timer() override {}

  // On the calling side: sends the ready-to-receive message if one was agreed on and was not sent yet.
  void confirm();

  // Called when the peer has sent something or has closed.
  void ready(std::uint32_t epoll_events) override;
  // Called when the peer has not closed within five seconds after disconnect().
  void run() override;

 private:
  enum class By { fin, reset };
  void end(By how) UIW_REQUIRES(mutex_);

  Mutex mutex_;  // taken after CallBase::mutex_
  TcpStream socket_ UIW_GUARDED_BY(mutex_);
  std::shared_ptr<ConnectionOwner> owner_ UIW_GUARDED_BY(mutex_);  // null before attach() and after the end
  mpa::Agreement agreement_ UIW_GUARDED_BY(mutex_);
  bool initiator_ UIW_GUARDED_BY(mutex_) = false;
  bool confirmed_ UIW_GUARDED_BY(mutex_) = false;
  std::size_t received_ UIW_GUARDED_BY(mutex_) = 0;  // octets
};

}  // namespace uiw::provider
