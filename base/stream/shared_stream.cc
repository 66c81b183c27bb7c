// SPDX-License-Identifier: MIT
#include "base/stream/shared_stream.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/descriptor.h"
#include "base/guarded_copy.h"
#include "base/stream/descriptor_message.h"

namespace uiw {

namespace {

RingSide written_by(bool caller) { return caller ? RingSide::first : RingSide::second; }

// Adds one to a counter. Only one thread at a time changes the counter, so no atomic read-modify-write is needed; other
// threads may read it.
void count(std::atomic<std::uint64_t>& counter) {
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// Sends the frame by which an end switches to shared memory (switch_format.h). TCP has carried only the few octets of
// the MPA start-up so far, so the socket buffer has room for the whole frame.
bool send_frame(TcpStream& tcp, const SwitchNonce& nonce) {
  SwitchFrame frame = encode(nonce);
  iovec vector{frame.data(), frame.size()};
  return tcp.send_untapped({&vector, 1}) == static_cast<ssize_t>(frame.size());
}

}  // namespace

SharedStream::SharedStream(TcpStream& tcp, SharedOffer&& offer, bool copies)
    : tcp_(tcp),
      offer_(std::move(offer)),
      copies_(copies),
      mode_(offer_.caller ? Mode::taken : Mode::offered),
      writer_(offer_.memory->control(written_by(offer_.caller)), offer_.memory->ring(written_by(offer_.caller))),
      reader_(offer_.memory->control(written_by(!offer_.caller)), offer_.memory->ring(written_by(!offer_.caller))) {}

int SharedStream::begin() {
  if (!offer_.caller || send_frame(tcp_, offer_.peers)) return 0;
  return ECONNRESET;
}

ssize_t SharedStream::send(std::span<iovec> vectors) {
  switch (mode_.load(std::memory_order_acquire)) {
    case Mode::offered:
    case Mode::taken: return -EAGAIN;
    case Mode::tcp: return tcp_.send(vectors);
    case Mode::broken: return -ECONNRESET;
    case Mode::rings: break;
  }
  const ssize_t taken = writer_.write(vectors, [this] { ring(); });
  if (taken > 0) {
    count(writes_);
    if (StreamTap* const tap = tcp_.tap())
      tap->passed(StreamTap::Direction::sent, vectors, static_cast<std::size_t>(taken));
  }
  return taken == -EPROTO ? break_off() : taken;
}

// Before the switch nothing can be sent until the peer's frame arrives on the socket; epoll reports that. On TCP epoll
// reports room in the socket buffer.
bool SharedStream::await_room() { return mode_.load(std::memory_order_acquire) != Mode::rings || writer_.await_room(); }

ssize_t SharedStream::receive(MutableOctets wanted, MutableOctets staging, Octets& rest) {
  rest = {};
  Mode mode = mode_.load(std::memory_order_relaxed);
  if (mode == Mode::offered || mode == Mode::taken) {
    const ssize_t n = receive_frame(staging, rest);
    mode = mode_.load(std::memory_order_relaxed);
    if (n != 0 || mode == Mode::offered || mode == Mode::taken) return n;
  }
  switch (mode) {
    case Mode::tcp: return tcp_.receive(wanted, staging, rest);
    case Mode::rings: return receive_ring(wanted, staging, rest);
    default: return -ECONNRESET;
  }
}

// Receives the peer's switch frame, or, at the called end, the first octets of a caller that has not accepted the
// memory. No FPDU has been received in part yet, so the argument `wanted` of receive() is empty.
ssize_t SharedStream::receive_frame(MutableOctets staging, Octets& rest) {
  const ssize_t n = tcp_.receive_untapped(MutableOctets(frame_).subspan(frame_size_));
  if (n <= 0) return n;
  frame_size_ += static_cast<std::size_t>(n);
  const Octets come = Octets(frame_).first(frame_size_);
  if (begins_switch_frame(come)) return frame_size_ < frame_.size() ? -EAGAIN : switch_over();
  if (offer_.caller) return break_off();
  stay_on_tcp();
  rest = staging.first(come.size());
  std::copy(come.begin(), come.end(), staging.begin());
  show_received({}, rest);
  return static_cast<ssize_t>(come.size());
}

// Called when the peer's whole frame has arrived. Goes on in the rings, or on TCP if the called end refuses the rings;
// returns 0 then. If the frame has a wrong number, or the answer cannot be sent, breaks off and returns the error.
ssize_t SharedStream::switch_over() {
  const SwitchNonce said = decode_switch_frame(frame_);
  const bool told_to_stay = offer_.caller && said == kSwitchRefused;
  if (said != offer_.own && !told_to_stay) return break_off();
  if (!offer_.caller) {
    caller_has_taken_ = true;
    if (!find_peer() || !send_frame(tcp_, refused_ ? kSwitchRefused : offer_.peers)) return break_off();
  }
  if (refused_ || told_to_stay)
    stay_on_tcp();
  else
    mode_.store(Mode::rings, std::memory_order_release);
  return 0;
}

// At the called end: receives the caller's random number and the descriptors of the caller's doorbell, by which the
// caller is woken. False if the number has not arrived. If the doorbell cannot be used, this end refuses the rings.
bool SharedStream::find_peer() {
  std::array<int, 2> fds;
  const OwnedDescriptor socket = std::move(offer_.socket);
  DescriptorChange change;
  if (!receive_message(change, socket.get(), offer_.peers, fds)) return false;
  offer_.peer = offer_.find_doorbell(change, fds[0], fds[1]);
  if (!offer_.peer) refused_ = true;
  return true;
}

// The shared memory can be freed here, since other functions use it only in Mode::rings.
void SharedStream::stay_on_tcp() {
  mode_.store(Mode::tcp, std::memory_order_release);
  offer_.memory.reset();
  offer_.peer.reset();
  offer_.socket.reset();
}

ssize_t SharedStream::receive_ring(MutableOctets wanted, MutableOctets staging, Octets& rest) {
  for (;;) {
    Octets found;
    switch (reader_.look(found)) {
      case RingReader::Look::octets: empty_looks_ = 0; return take(found, wanted, staging, rest);
      case RingReader::Look::closed: show_end(StreamTap::End::fin); return 0;
      case RingReader::Look::broken: return break_off();
      case RingReader::Look::nothing: break;
    }
    if (reader_.unreleased() > 0) release();
    if (end_) return *end_;
    // All octets that the peer wrote before it ended TCP are visible by now, so the ring is looked at once more.
    if (++empty_looks_ % kLookAtTcp != 0 || !tcp_has_ended()) return -EAGAIN;
  }
}

ssize_t SharedStream::take(Octets found, MutableOctets wanted, MutableOctets staging, Octets& rest) {
  const std::size_t filled = std::min(wanted.size(), found.size());
  if (filled > 0 && !guarded_copy_unordered(wanted.data(), found.data(), filled)) return break_off();
  rest = found.subspan(filled);
  if (copies_) {
    rest = rest.first(std::min(rest.size(), staging.size()));
    if (!rest.empty() && !guarded_copy_unordered(staging.data(), rest.data(), rest.size())) return break_off();
    rest = Octets(staging).first(rest.size());
  }
  reader_.advance(filled + rest.size());
  show_received(wanted.first(filled), rest);
  return static_cast<ssize_t>(filled + rest.size());
}

void SharedStream::show_received(Octets first, Octets second) const {
  StreamTap* const tap = tcp_.tap();
  if (tap == nullptr) return;
  const std::array<iovec, 2> vectors = {
      {{const_cast<std::byte*>(first.data()), first.size()}, {const_cast<std::byte*>(second.data()), second.size()}}};
  tap->passed(StreamTap::Direction::received, vectors, first.size() + second.size());
}

void SharedStream::show_end(StreamTap::End end) const {
  if (StreamTap* const tap = tcp_.tap()) tap->ended(StreamTap::Direction::received, end);
}

// True if the TCP connection has ended, or has carried octets, which it must not carry after the switch. Sets end_
// then.
bool SharedStream::tcp_has_ended() {
  std::array<std::byte, 1> octet;
  const ssize_t n = tcp_.receive_untapped(MutableOctets(octet));
  if (n == -EAGAIN) return false;
  show_end(n == 0 ? StreamTap::End::fin : StreamTap::End::rst);
  end_ = n > 0 ? -EPROTO : n;
  return true;
}

void SharedStream::used() {
  if (mode_.load(std::memory_order_relaxed) != Mode::rings) return;
  if (reader_.read() == received_.load(std::memory_order_relaxed)) return;
  received_.store(reader_.read(), std::memory_order_relaxed);
  count(takes_);
  if (reader_.unreleased() >= kReleased) release();
}

// Wakes the peer. If that fails, the peer's process is gone, or some process has shut down the socket of the peer's
// doorbell. Then this end sends FIN on TCP, which ends the stream, and wakes a peer that is still there.
void SharedStream::ring() {
  if (offer_.peer->ring(writer_.readers_bell())) return;
  std::uint64_t not_cut = kNotCut;
  placed_at_cut_.compare_exchange_strong(not_cut, reader_.placed_by_peer());
  tcp_.shutdown_send();
}

void SharedStream::release() {
  reader_.release();
  if (reader_.peer_waits()) ring();
}

// The end of TCP is checked last: epoll reports an end that comes after this check.
bool SharedStream::await_octets(bool look_for_end) {
  if (mode_.load(std::memory_order_relaxed) != Mode::rings) return true;
  if (end_) return false;
  return reader_.await_octets() && !(look_for_end && tcp_has_ended());
}

void SharedStream::shutdown_send() {
  if (mode_.load(std::memory_order_acquire) == Mode::rings) {
    writer_.close();
    if (writer_.peer_sleeps()) ring();
  }
  tcp_.shutdown_send();
}

// Called if the peer has violated the protocol, octets of a ring cannot be copied (the system has no memory for the
// ring), or the switch frame cannot be sent. Shuts TCP down: epoll reports that, and the receiver then ends the stream.
ssize_t SharedStream::break_off() {
  mode_.store(Mode::broken, std::memory_order_release);
  tcp_.shutdown();
  return -EPROTO;
}

// Called by the sender, since only the sender knows that no thread writes to the ring now.
bool SharedStream::give_back_idle_memory() {
  if (mode_.load(std::memory_order_acquire) != Mode::rings) return false;
  const std::uint64_t written = writer_.written();
  if (written - given_back_ < kWorthGivingBack) return false;
  if (written != std::exchange(idle_since_, written)) return true;
  // If the peer has not read everything, or madvise() fails, the ring keeps its memory until a later call.
  const MutableOctets ring = writer_.memory();
  if (writer_.is_empty() && ::madvise(ring.data(), ring.size(), MADV_REMOVE) == 0) given_back_ = written;
  return false;
}

StreamTraffic SharedStream::traffic() const {
  StreamTraffic traffic = tcp_.traffic();
  if (mode_.load(std::memory_order_acquire) != Mode::rings) return traffic;
  traffic.octets_sent += writer_.written();
  traffic.octets_received += received_.load(std::memory_order_relaxed);
  traffic.segments_sent += writes_.load(std::memory_order_relaxed);
  traffic.segments_received += takes_.load(std::memory_order_relaxed);
  return traffic;
}

std::optional<PeerSigns> SharedStream::peer_signs() const {
  auto signs = tcp_.peer_signs();
  if (!signs || mode_.load(std::memory_order_acquire) != Mode::rings) return signs;
  signs->taken += writer_.read_by_peer();
  signs->come += received_.load(std::memory_order_relaxed);
  return signs;
}

}  // namespace uiw
