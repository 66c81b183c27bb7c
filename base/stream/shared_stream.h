// SPDX-License-Identifier: MIT
// A stream in memory that two processes of one host share. Its TCP connection stays: its end is the stream's end.
//
// The switch. When the start-up of MPA is over, the called end has offered memory to the caller by a Unix socket, with
// a number; the caller has sent a number of its own there. The caller attaches, sends the frame of switch_format.h over
// TCP, and waits. The called end, whose first octets are this frame, answers with its frame. From here on both use the
// rings, and TCP carries nothing but its end. Where the called end gets something else first, the caller has not taken
// the memory, and the stream stays on TCP; so it does where the called end refuses. A wrong number ends the stream; so
// does an octet behind the frame of a switch, at the latest when TCP ends. From the switch on an end needs no
// descriptor but that of TCP: the peer's doorbells are those of all streams between the two.
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

// What the two ends have exchanged when the start-up is over.
struct SharedOffer {
  // The doorbells of a peer of which these two descriptors have come during this change, the page's and the socket's,
  // or -1. Takes or drops both. Null if it cannot use them.
  using FindDoorbell = std::shared_ptr<PeerDoorbell> (*)(DescriptorChange& change, int page, int socket);

  explicit SharedOffer(bool calls) : caller(calls) {}

  std::unique_ptr<SharedMemory> memory;
  std::shared_ptr<PeerDoorbell> peer;
  const bool caller;    // this end has called
  SwitchNonce own{};    // the number that this end has made
  SwitchNonce peers{};  // that of the peer
  // At the called end: where the peer's number and doorbells are to be found once its frame has come, and what finds
  // its doorbells.
  OwnedDescriptor socket;
  FindDoorbell find_doorbell = nullptr;
};

class SharedStream final : public ByteStream {
 public:
  // `tcp` must remain live as long as this stream. `copies`: receive() copies octets out of the ring, so that the peer
  // cannot change them, and is_shared() is false.
  SharedStream(TcpStream& tcp, SharedOffer&& offer, bool copies);

  // To be called once, before any other function: the caller of the connection says that it goes over. 0 or an errno.
  int begin();
  // Instead of begin(), at the called end: it cannot use the memory after all.
  void refuse() { refused_ = true; }

  // Before begin(): where this end looks for news of the stream, in the page that the peer has got.
  void set_place(DoorbellPage::Place place) { reader_.set_place(place); }
  // Whether the rings are used.
  bool is_switched() const { return mode_.load(std::memory_order_relaxed) == Mode::rings; }
  // For the receiver: whether the peer has yet to show which way the octets go.
  bool is_undecided() const {
    const Mode mode = mode_.load(std::memory_order_relaxed);
    return mode == Mode::offered || mode == Mode::taken;
  }
  // The peer has broken the rules, and the stream ends.
  bool is_broken() const { return mode_.load(std::memory_order_relaxed) == Mode::broken; }
  // At the called end, for its receiver: the caller's frame has come, so the reply of MPA has reached the caller.
  bool caller_has_taken() const { return caller_has_taken_; }

  // Called by the sender from time to time while nothing happens: gives memory of the ring that it writes back to the
  // system, if nothing has been written since the call before, and the peer has read everything. True if there is more
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
    offered,  // the called end: nothing has come yet
    taken,    // the caller: the peer has not answered yet
    rings,
    tcp,
    broken,
  };
  // TCP is asked whether it has ended in one of so many looks at an empty ring.
  static constexpr unsigned kLookAtTcp = 128;
  // Octets that have been read are released in so large parts, or when there is nothing left to read: the program waits
  // for the message that has been read, and not for its room.
  static constexpr std::size_t kReleased = SharedMemory::kRing / 4;
  // For fewer octets of an idle ring it is not worth while: the next ones would need a page of memory again.
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
  void ring() const;

  TcpStream& tcp_;
  SharedOffer offer_;
  const bool copies_;
  std::atomic<Mode> mode_;
  RingWriter writer_;
  std::atomic<std::uint64_t> writes_{0};  // that have put octets into the ring
  // Up to which position the ring had been written at the last call of give_back_idle_memory(), and when memory was
  // last given back.
  std::uint64_t idle_since_ = 0, given_back_ = 0;
  // Of the receiver.
  alignas(64) RingReader reader_;
  unsigned empty_looks_ = 0;
  std::optional<ssize_t> end_;                         // what TCP has said when it ended
  std::atomic<std::uint64_t> received_{0}, takes_{0};  // octets, and how often some were taken
  std::size_t frame_size_ = 0;                         // octets of the frame that have come
  bool refused_ = false;                               // does not change once the caller's frame has come
  bool caller_has_taken_ = false;
  SwitchFrame frame_{};
};

}  // namespace uiw
