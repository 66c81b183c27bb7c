// SPDX-License-Identifier: MIT
// A stream in memory that two processes of one host share. The TCP connection stays open: its end is the stream's end.
//
// The switch. During the start-up of MPA the called end offers memory and a number to the caller over a Unix socket,
// and the caller sends a number of its own there. A caller that takes the memory maps it, sends the frame of
// switch_format.h over TCP, and waits. The called end answers with its frame. From here on both use the rings, and TCP
// carries nothing but its end. The stream stays on TCP if the called end refuses, or if it first receives octets that
// are no such frame, which shows that the caller has not taken the memory. A wrong number ends the stream. So does an
// octet that TCP carries after the switch; it may be noticed only when TCP ends. After the switch an end needs no
// descriptor but that of TCP: all streams between two processes share their doorbells.
//
// Octets in a ring are as hostile as those of TCP, and the peer may change them while they are looked at: see
// ByteStream::receive().
//
// Threads: one sender and one receiver at a time. Both use the functions of the switch, which synchronises them.
#pragma once

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

// What the two ends have exchanged by the end of the start-up.
struct SharedOffer {
  // Finds or makes the doorbell of a peer from two descriptors that have arrived during this change, the page's and the
  // socket's (-1: none). Takes or drops both. Null if it cannot use them.
  using FindDoorbell = std::shared_ptr<PeerDoorbell> (*)(DescriptorChange& change, int page, int socket);

  explicit SharedOffer(bool calls) : caller(calls) {}

  std::unique_ptr<SharedMemory> memory;
  std::shared_ptr<PeerDoorbell> peer;
  const bool caller;    // this end is the calling one
  SwitchNonce own{};    // the number that this end has made
  SwitchNonce peers{};  // the number that the peer has made
  // At the called end: the Unix socket. Once the caller's frame has arrived, its number and doorbell can be read here.
  OwnedDescriptor socket;
  FindDoorbell find_doorbell = nullptr;
};

class SharedStream final : public ByteStream {
 public:
  // `tcp` must remain live as long as this stream. `copies`: receive() copies octets out of the ring, so that the peer
  // cannot change them, and is_shared() is false.
  SharedStream(TcpStream& tcp, SharedOffer&& offer, bool copies);

  // Starts the switch: the calling end sends its frame. To be called once, before any function but the next two. 0 or
  // an errno.
  int begin();
  // Instead of begin(): a called end that cannot use the memory after all keeps the stream on TCP.
  void refuse() { refused_ = true; }

  // Sets the bit of this stream in this process's page of doorbells. To be called before begin().
  void set_bell(DoorbellPage::Bell bell) { reader_.set_bell(bell); }
  // Whether the rings are used.
  bool is_switched() const { return mode_.load(std::memory_order_relaxed) == Mode::rings; }
  // For the receiver: whether the peer has yet to decide between the rings and TCP.
  bool is_undecided() const {
    const Mode mode = mode_.load(std::memory_order_relaxed);
    return mode == Mode::offered || mode == Mode::taken;
  }
  // Whether the stream ends since the peer has violated the protocol or the rings have no memory.
  bool is_broken() const { return mode_.load(std::memory_order_relaxed) == Mode::broken; }
  // For the receiver of the called end: whether the caller's frame has arrived, so that the MPA Reply has reached the
  // caller.
  bool caller_has_taken() const { return caller_has_taken_; }

  // ---- What has been placed: positions in the octets of a direction. Nothing is said of octets that TCP carries ----
  // The sender wants to know what the peer places. To be called before begin().
  void follow_peer() { reader_.follow_peer(); }
  // The peer says that it has placed everything that was sent before this position. A hostile peer may say that of
  // octets that it has not got, or that were not sent. After this end has cut the connection, since it could not wake
  // the peer, nothing counts as placed. A receiver that sleeps is woken when the peer has placed more than was found
  // here. Any thread may call this; only after follow_peer().
  std::uint64_t placed_by_peer() {
    reader_.await_placement();
    return cut_.load(std::memory_order_relaxed) ? 0 : reader_.placed_by_peer();
  }
  // For the receiver: it has placed all octets before this position. The peer hears of it together with what is sent
  // next, or by say_placed().
  void note_placed(std::uint64_t position) {
    if (is_switched()) writer_.note_placed(position);
  }
  bool has_to_say() const { return writer_.has_placed_to_show(); }
  // Any thread may call this.
  void say_placed() {
    if (writer_.show_placed()) ring();
  }

  // Called by the sender from time to time while nothing happens: gives memory of the ring that it writes back to the
  // system, if nothing has been written since the previous call and the peer has read everything. True if there is more
  // to give back at another call.
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
    offered,  // the called end: nothing has arrived yet
    taken,    // the caller: the peer has not answered yet
    rings,
    tcp,
    broken,
  };
  // TCP is checked for its end once in this many looks at an empty ring.
  static constexpr unsigned kLookAtTcp = 128;
  // Octets that were read are released once there are this many, or when nothing is left to read. Releasing each
  // message would delay it, and the program waits for the message, not for the room.
  static constexpr std::size_t kReleased = SharedMemory::kRing / 4;
  // An idle ring is given back only if at least this much was written, since the next octets need new pages of memory.
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
  std::atomic<bool> cut_{false};          // ring() has failed
  // The position of the writer at the last call of give_back_idle_memory(), and when memory was last given back.
  std::uint64_t idle_since_ = 0, given_back_ = 0;
  // The members of the receiver.
  alignas(64) RingReader reader_;
  unsigned empty_looks_ = 0;
  std::optional<ssize_t> end_;                         // 0 or the error with which TCP has ended
  std::atomic<std::uint64_t> received_{0}, takes_{0};  // octets, and the number of reads that took some
  std::size_t frame_size_ = 0;                         // octets of the frame that have arrived
  bool refused_ = false;                               // does not change once the caller's frame has come
  bool caller_has_taken_ = false;
  SwitchFrame frame_{};
};

}  // namespace uiw
