// SPDX-License-Identifier: MIT
// Finds ULPDUs in the TCP byte stream: the receiving half of MPA full operation (RFC 5044 section 4; FPDU format
// section 4.1, markers section 4.3, CRC section 4.4).
//
// The caller passes in what TCP has delivered, in any segmentation. With CRC or markers, the sink gets each ULPDU as a
// whole, after the FPDU's CRC and markers have been checked. Without both, the sink gets each ULPDU in parts as they
// arrive, so that no payload needs to be kept; the first part has at least min(ULPDU, kHeadSize) octets, hence all DDP
// and RDMAP headers that the ULPDU has.
//
// The sink is used only during receive(), wanted() and filled(); the octets that it gets are valid only during the call
// of the sink. Not thread-safe; no I/O. Memory: a buffer for headers; with CRC one buffer for an FPDU that has arrived
// in part; with markers one buffer for each FPDU until the sink has taken it. If this buffer cannot be allocated, the
// result is no_memory and the stream is lost; nothing is thrown.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "mpa/mpa_format.h"

namespace uiw::mpa {

class UlpduSink {
 public:
  enum class Verdict {
    go_on,
    pause,  // the sink did not take the octets, since no receive is posted; the sink gets the same octets again later
    stop,   // the stream is over: the sink found an error or received a Terminate
  };
  // Takes a part of a ULPDU of `total` octets, starting at `offset` in the ULPDU. The parts come in order and without
  // gaps.
  virtual Verdict ulpdu(Octets piece, std::size_t offset, std::size_t total) = 0;

  // The memory into which the next octets of the ULPDU in progress are to be placed, at most `most` octets; empty if
  // the sink wants to get them by ulpdu(). The caller fills this memory from its first octet on, before it calls any
  // other function of the sink, and then calls placed() instead of ulpdu().
  virtual MutableOctets destination(std::size_t /*most*/) { return {}; }
  // Tells the sink of octets that were written to destination(). Never returns `pause`.
  virtual Verdict placed(std::size_t /*octets*/, std::size_t /*offset*/, std::size_t /*total*/) {
    return Verdict::go_on;
  }

 protected:
  ~UlpduSink() = default;
};

class Deframer {
 public:
  static constexpr std::size_t kHeadSize = 80;  // octets; rdmap/receiver.h checks that all headers fit

  enum class Result {
    more,        // all octets were consumed
    paused,      // the sink paused; the octets from `consumed` on must be given again
    stopped,     // the sink stopped
    bad_crc,     // the stream is lost (RFC 5044 section 4.4)
    bad_marker,  // the stream is lost: a marker does not point to the start of its FPDU (RFC 5044 section 8)
    no_memory,   // the stream is lost: no memory for a partial FPDU, or the shared memory is not accessible
  };
  struct Outcome {
    Result result;
    std::size_t consumed;
  };

  enum class Kind : std::uint8_t {
    plain,
    marked,  // the stream has markers, as start-up has negotiated
    // The octets that are passed in are in memory that the peer may change or take away at any time. Then the sink gets
    // a copy of the first octets of a ULPDU, at least min(ULPDU, kHeadSize), and the others in place. Not with CRCs.
    shared,
  };

  // Called once, before the first octets. `crc`: whether the stream carries CRCs, as start-up has negotiated.
  void start(bool crc, Kind kind = Kind::plain) { crc_ = crc, kind_ = kind; }

  // Takes octets that have arrived. Outcome::consumed is the number of octets that need not be passed in again.
  Outcome receive(Octets bytes, UlpduSink& sink);

  // The memory for the rest of an FPDU that has arrived in part, so that a socket can be read straight into it; empty
  // if there is no such FPDU, or if its rest is to be passed to receive(). After filling n octets, at least one, the
  // caller calls filled(n, sink). With CRC or markers, the memory is valid until the next call of receive() or
  // filled(); otherwise it is the memory that UlpduSink::destination() has returned.
  MutableOctets wanted(UlpduSink& sink);
  Result filled(std::size_t octets, UlpduSink& sink);

  // The number of octets in all FPDUs so far that have arrived as a whole and whose ULPDU the sink has taken.
  std::uint64_t taken() const { return taken_; }

 private:
  static constexpr std::size_t kCopied = 1024;  // octets that are copied at a time for Kind::shared

  bool keeps() const { return crc_ || kind_ == Kind::marked; }
  Outcome receive_checked(Octets bytes, UlpduSink& sink);
  Outcome receive_marked(Octets bytes, UlpduSink& sink);
  Outcome receive_unchecked(Octets bytes, UlpduSink& sink);
  Outcome receive_shared(Octets bytes, UlpduSink& sink);
  void begin_body(std::size_t ulpdu, std::size_t there);
  bool take_body(Octets bytes, UlpduSink& sink, Outcome& outcome);
  bool gather_head(std::size_t size, Octets bytes, Outcome& outcome);
  bool take_head(Octets bytes, UlpduSink& sink, Outcome& outcome);
  bool gather_kept(Octets bytes, std::size_t& done);
  Result check_kept();
  Result take_kept(UlpduSink& sink);

  bool crc_ = true;
  Kind kind_ = Kind::plain;
  std::uint64_t taken_ = 0;

  // Without CRC and markers: head_ has the first octets of an FPDU until its headers are complete; then the members
  // below it say how much of the FPDU is still to come.
  std::array<std::byte, kFpduLengthSize + kHeadSize> head_;
  std::size_t head_size_ = 0;
  bool in_body_ = false;
  std::size_t ulpdu_size_ = 0;
  std::size_t ulpdu_done_ = 0;
  std::size_t trailer_left_ = 0;

  // With CRC or markers: an FPDU that has arrived in part, or a whole FPDU that the sink has not taken yet (`pause`).
  std::unique_ptr<std::byte[]> kept_;
  std::size_t kept_size_ = 0;   // octets that have arrived
  std::size_t kept_total_ = 0;  // octets of the whole FPDU; 0 until its length field is known
  bool kept_checked_ = false;   // the FPDU is complete and correct, and its markers are removed
  std::size_t position_ = 0;    // the position of the FPDU's first octet (mpa/markers.h); 0 if there are no markers
};

}  // namespace uiw::mpa
