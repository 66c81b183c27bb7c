// SPDX-License-Identifier: MIT
#include "provider/connect/startup/placeholder.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/mutex.h"
#include "mpa/framer.h"
#include "rdmap/rdmap_format.h"

namespace uiw::provider {

namespace {

// How long the peer may take to close after disconnect(). A socket that lingers gives its peer the same time
// (Movement::kPatience).
constexpr std::chrono::seconds kCloseTime{5};
// No ready-to-receive message has this many octets: the longest that may be agreed on is an RDMA Write or Send of no
// octets.
constexpr std::size_t kMostReceived = 64;

}  // namespace

Placeholder::~Placeholder() {
  if (socket_.is_open()) CmLoop::instance().unwatch(socket_.fd());
}

int Placeholder::attach(TcpStream& socket, const Attachment& attachment) {
  if (attachment.initiator && attachment.agreement.rtr == mpa::ReadyToReceive::read) return EPROTO;
  const LockGuard lock(mutex_);
  const int error = CmLoop::instance().watch(socket.fd(), EPOLLIN | EPOLLRDHUP, weak_from_this());
  if (error != 0) return error;
  socket_ = std::move(socket);
  owner_ = attachment.owner;
  agreement_ = attachment.agreement;
  initiator_ = attachment.initiator;
  return 0;
}

void Placeholder::confirm() {
  const LockGuard lock(mutex_);
  if (!owner_ || !initiator_ || std::exchange(confirmed_, true)) return;
  if (agreement_.rtr == mpa::ReadyToReceive::none) return;
  // An RDMA Write of no octets; its STag and offset mean nothing (RFC 6581 section 9.2). Only the request was sent
  // before, so the message fits into the socket's buffer.
  std::array<std::byte, ddp::kTaggedHeaderSize> header;
  encode(ddp::TaggedHeader{true, rdmap::control_of(rdmap::Opcode::write), {}, 0}, header.data());
  mpa::Batch batch;
  mpa::Framer framer;
  framer.start(agreement_.crc, agreement_.marks);
  if (framer.add(batch, Octets(header), {}) == mpa::Framer::Result::added) socket_.send(batch.vectors());
}

int Placeholder::disconnect(const ConnectionOwner* owner) {
  const LockGuard lock(mutex_);
  if (!owner_ || (owner != nullptr && owner != owner_.get())) return ENOTCONN;
  socket_.shutdown_send();
  CmLoop::instance().after(kCloseTime, shared_from_this());
  return 0;
}

void Placeholder::no_first_message(const ConnectionOwner* owner) {
  const LockGuard lock(mutex_);
  if (owner_ && owner == owner_.get() && !initiator_) end(By::reset);
}

void Placeholder::ready(std::uint32_t) {
  const LockGuard lock(mutex_);
  while (owner_) {
    std::array<std::byte, kMostReceived> dropped;
    const ssize_t n = socket_.receive(MutableOctets(dropped));
    if (n == -EAGAIN) return;
    if (n <= 0) return end(n == 0 ? By::fin : By::reset);
    received_ += static_cast<std::size_t>(n);
    if (received_ > kMostReceived) return end(By::reset);
    if (!initiator_ && agreement_.rtr != mpa::ReadyToReceive::none) owner_->connection_established();
  }
}

void Placeholder::run() {
  const LockGuard lock(mutex_);
  if (owner_) end(By::reset);
}

void Placeholder::end(By how) {
  CmLoop::instance().unwatch(socket_.fd());
  CmLoop::instance().cancel(*this);
  if (how == By::fin) {
    socket_.shutdown_send();  // before the close, since a child of the program may hold the descriptor
    socket_.close();
  } else {
    socket_.abort();
  }
  std::exchange(owner_, nullptr)->connection_ended();
}

}  // namespace uiw::provider
