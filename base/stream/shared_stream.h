// SPDX-License-Identifier: MIT
// A stream in memory that two processes of one host share. The TCP connection stays open: its end is the stream's end.
//
// How the ends switch to shared memory: during the start-up of MPA the called end offers memory and a random number to
// the caller over a Unix socket, and the caller sends a random number of its own there. A caller that accepts the
// memory maps it, sends a switch frame (switch_format.h) over TCP, and waits. The called end answers with its own
// switch frame. From then on both ends send through the rings only, and TCP shows when the stream ends. The stream
// stays on TCP if the called end refuses, or if its first octets from the caller are no switch frame: then the caller
// has not accepted the memory. A wrong number in a frame ends the stream. An octet that arrives on TCP after the switch
// also ends it, but may be noticed only when TCP ends. After the switch the TCP socket is the only descriptor of a
// stream: all streams between two processes share their doorbells (doorbell.h).
//
// Octets in a ring are as little trusted as those of TCP, and the peer may change them even while this end reads them:
// see ByteStream::receive().
//
// Threads: one sender and one receiver at a time. The receiver carries out the switch; the sender learns of it from an
// atomic variable.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/stream/byte_stream.h"
#include "base/stream/doorbell.h"
#include "base/stream/doorbell_page.h"
#include "base/stream/shared_memory.h"
#include "base/stream/switch_format.h"
#include "base/stream/tcp_stream.h"

namespace uiw {

// What the two ends have exchanged during the start-up, so that they can switch to shared memory.
struct SharedOffer {
  // Finds or makes the PeerDoorbell that uses two descriptors of the peer: the peer's doorbell page, and the socket
  // that wakes the peer (-1: not sent). Both have arrived during `change`. The function takes ownership of both. Null
  // if they cannot be used.
  using FindDoorbell = std::shared_ptr<PeerDoorbell> (*)(DescriptorChange& change, int page, int socket);

  explicit SharedOffer(bool calls) : caller(calls) {}

  std::unique_ptr<SharedMemory> memory;
  std::shared_ptr<PeerDoorbell> peer;
  const bool caller;    // this end has initiated the connection
  SwitchNonce own{};    // the random number that this end has made
  SwitchNonce peers{};  // the random number that the peer has made
  // At the called end: the Unix socket to the caller. Once the caller's switch frame has arrived, the caller's number
  // and the descriptors of its doorbell can be read from this socket.
  OwnedDescriptor socket;
  FindDoorbell find_doorbell = nullptr;
};

class SharedStream final : public ByteStream {
 public:
  // `tcp` must remain live as long as this stream. `copies`: receive() copies octets out of the ring, so that the peer
  // cannot change them, and is_shared() is false.
  SharedStream(TcpStream& tcp, SharedOffer&& offer, bool copies);

  // Starts the switch: the end that has initiated the connection sends its switch frame; at the called end this does
  // nothing. To be called once; of the other functions only set_bell() and follow_peer() may be called before. Returns
  // 0, or ECONNRESET if the frame cannot be sent.
  int begin();
  // To be called instead of begin() by a called end that cannot use the memory after all: the stream stays on TCP.
  void refuse() { refused_ = true; }

  // Tells the peer which bit of this process's doorbell page (doorbell_page.h) it must set to wake this end. To be
  // called before begin().
  void set_bell(DoorbellPage::Bell bell) { reader_.set_bell(bell); }
  // Whether octets go through the rings now.
  bool is_switched() const { return mode_.load(std::memory_order_relaxed) == Mode::rings; }
  // For the receiver: true until the peer has chosen between the rings and TCP.
  bool is_undecided() const {
    const Mode mode = mode_.load(std::memory_order_relaxed);
    return mode == Mode::offered || mode == Mode::taken;
  }
  // Whether the stream ends because the peer has violated the protocol, octets of a ring cannot be copied (the system
  // has no memory for the ring), or the switch frame cannot be sent.
  bool is_broken() const { return mode_.load(std::memory_order_relaxed) == Mode::broken; }
  // For the receiver of the called end: whether the caller's switch frame has arrived, which shows that the caller has
  // received the MPA Reply.
  bool caller_has_taken() const { return caller_has_taken_; }

  // ---- How far octets have been placed: positions in the rings. Octets that TCP carries are not counted ----
  // Asks the peer to store in the shared memory how far it has placed the octets of this end. To be called before
  // begin().
  void follow_peer() { reader_.follow_peer(); }
  // The position before which the peer says that it has placed all octets that this end has sent. A hostile peer may
  // name octets that it has not received, or that were not sent. What the peer places after this end has sent FIN on
  // TCP, because it could not wake the peer, does not count. If the receiver of this end sleeps, the peer wakes the
  // receiver when it has placed octets beyond the returned position. Any thread may call this, after follow_peer().
  std::uint64_t placed_by_peer() {
    reader_.await_placement();
    return std::min(reader_.placed_by_peer(), placed_at_cut_.load(std::memory_order_relaxed));
  }
  // Once is_switched(): whether the peer has called follow_peer().
  bool is_followed() const { return writer_.is_followed(); }
  // To be called by the receiver, if is_followed(), when it has placed all octets before this position. The peer learns
  // of the position together with the octets that are sent next, or by say_placed().
  void note_placed(std::uint64_t position) { writer_.note_placed(position); }
  bool has_to_say() const { return writer_.has_placed_to_show(); }
  // Makes the position of note_placed() visible to the peer, and wakes the peer if it waits for that. Any thread may
  // call this.
  void say_placed() {
    if (writer_.show_placed()) ring();
  }

  // To be called by the sender from time to time: frees the memory of the ring that this end writes, if nothing has
  // been written since the previous call, the peer has read everything, and at least kWorthGivingBack octets were
  // written since the memory was last freed. True if the next call may free memory.
  bool give_back_idle_memory();

  ssize_t send(std::span<iovec> vectors) override;
  bool await_room() override;
  ssize_t receive(MutableOctets wanted, MutableOctets staging, Octets& rest) override;
  void used() override;
  bool await_octets(bool look_for_end) override;
  bool short_receive_is_last() const override { return mode_.load(std::memory_order_relaxed) == Mode::tcp; }
  bool is_shared() const override { return !copies_; }
  std::size_t octets_in_one_send() const override { return is_switched() ? 16 * 1024 : tcp_.octets_in_one_send(); }
  void shutdown_send() override;
  StreamTraffic traffic() const override;
  std::optional<PeerSigns> peer_signs() const override;

 private:
  enum class Mode : std::uint8_t {
    offered,  // at the called end: nothing has arrived from the caller yet
    taken,    // at the caller: the called end has not answered yet
    rings,
    tcp,
    broken,
  };
  // TCP is checked for its end once in this many looks at an empty ring.
  static constexpr unsigned kLookAtTcp = 128;
  // The reader releases octets to the writer once it has read this many, or when the ring is empty. Releasing the
  // octets of each message would delay the message, which the program waits for, only to give the writer room earlier.
  static constexpr std::size_t kReleased = SharedMemory::kRing / 4;
  // The memory of an idle ring is freed only if at least this many octets were written since it was last freed, because
  // the next octets need new pages.
  static constexpr std::size_t kWorthGivingBack = 8 * 1024;

  ssize_t receive_frame(MutableOctets staging, Octets& rest);
  ssize_t switch_over();
  bool find_peer();
  void stay_on_tcp();
  ssize_t receive_ring(MutableOctets wanted, MutableOctets staging, Octets& rest);
  ssize_t take(Octets found, MutableOctets wanted, MutableOctets staging, Octets& rest);
  void show_received(Octets first, Octets second) const;
  void show_end(StreamTap::End end) const;
  bool tcp_has_ended();
  ssize_t break_off();
  void release();
  void ring();

  TcpStream& tcp_;
  SharedOffer offer_;
  const bool copies_;
  std::atomic<Mode> mode_;
  RingWriter writer_;
  std::atomic<std::uint64_t> writes_{0};  // calls of send() that have put octets into the ring
  // The position before which the peer had placed all octets when ring() could not wake the peer and sent FIN on TCP;
  // kNotCut if ring() has not failed.
  static constexpr std::uint64_t kNotCut = ~std::uint64_t{0};
  std::atomic<std::uint64_t> placed_at_cut_{kNotCut};
  // The writer's position at the last call of give_back_idle_memory(), and at the last call that freed memory.
  std::uint64_t idle_since_ = 0, given_back_ = 0;
  // The members below belong to the receiver.
  alignas(64) RingReader reader_;
  unsigned empty_looks_ = 0;
  std::optional<ssize_t> end_;                         // 0 or the error with which TCP has ended
  std::atomic<std::uint64_t> received_{0}, takes_{0};  // octets received through the ring, and reads that got some
  std::size_t frame_size_ = 0;                         // octets of the peer's switch frame that have arrived
  bool refused_ = false;                               // constant once the caller's frame is answered
  bool caller_has_taken_ = false;
  SwitchFrame frame_{};
};

}  // namespace uiw
