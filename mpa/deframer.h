// SPDX-License-Identifier: MIT
// From the TCP byte stream to ULPDUs: the receiving half of MPA full operation (RFC 5044 section 4).
//
// The caller hands over what TCP delivered, in any segmentation. With CRC on, a ULPDU reaches the sink whole and
// only after its CRC was right. With CRC off, it reaches the sink in pieces as it arrives, so that nothing needs
// to be kept: the first piece carries at least min(ULPDU, kHeadSize) octets, hence always the DDP and RDMAP headers.
// Not thread-safe; no I/O. Memory: a small head buffer, and with CRC on one FPDU while a part of it is missing; where
// that cannot be had the stream is lost, and nothing is thrown.
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
    pause,  // the piece was not taken: give the same one again later (no receive is posted)
    stop,   // the stream is over: an error was found, or a Terminate came
  };
  // A piece of a ULPDU of `total` octets, at `offset` in it. Pieces come in order and without a gap.
  virtual Verdict ulpdu(Octets piece, std::size_t offset, std::size_t total) = 0;

 protected:
  ~UlpduSink() = default;
};

class Deframer {
 public:
  static constexpr std::size_t kHeadSize = 80;  // rdmap/receiver.h checks it against the longest headers

  enum class Result {
    more,       // everything was consumed
    paused,     // the sink paused; the octets from `consumed` on must be given again
    stopped,    // the sink stopped
    bad_crc,    // the stream is lost (RFC 5044 section 4.4)
    no_memory,  // likewise: there is no place for an FPDU of which a part has come
  };
  struct Outcome {
    Result result;
    std::size_t consumed;
  };

  // Whether the calling thread keeps one buffer for the next stream that stops in the middle of an FPDU, so that none
  // is allocated then. A thread that does says before it ends that it does so no longer.
  static void keep_spare(bool on);

  void start(bool crc) { crc_ = crc; }

  Outcome receive(Octets bytes, UlpduSink& sink);

  // Where the rest of a partly received FPDU belongs, so that a socket can be read into it without a copy; empty
  // where none is open. After filling n octets the caller says filled(n, sink).
  MutableOctets wanted();
  Result filled(std::size_t octets, UlpduSink& sink);

  std::uint64_t fpdus() const { return fpdus_; }

 private:
  Outcome receive_checked(Octets bytes, UlpduSink& sink);
  Outcome receive_unchecked(Octets bytes, UlpduSink& sink);
  void begin_body(std::size_t ulpdu, std::size_t there);
  bool take_body(Octets bytes, UlpduSink& sink, Outcome& outcome);
  bool take_head(Octets bytes, UlpduSink& sink, Outcome& outcome);
  Result take_kept(UlpduSink& sink);

  bool crc_ = true;
  std::uint64_t fpdus_ = 0;

  // CRC off: the first octets of an FPDU until its headers are whole; then how much is left of it.
  std::array<std::byte, kFpduLengthSize + kHeadSize> head_;
  std::size_t head_size_ = 0;
  bool in_body_ = false;
  std::size_t ulpdu_size_ = 0;
  std::size_t ulpdu_done_ = 0;
  std::size_t trailer_left_ = 0;

  // CRC on: an FPDU of which a part has come.
  std::unique_ptr<std::byte[]> kept_;
  std::size_t kept_size_ = 0;   // octets there
  std::size_t kept_total_ = 0;  // octets of the whole FPDU; 0 until its length field is known
};

}  // namespace uiw::mpa
