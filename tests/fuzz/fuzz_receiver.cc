// SPDX-License-Identifier: MIT
// A whole receiving end (deframer, receiver, transmitter) with a scripted host, CRC off and on, with and without Send
// with immediate, an XRC_RECV queue pair and another: whatever a peer sends, nothing outside the exposed memory
// changes, and the end goes on or stops with a Terminate. Input: 2 octets of control, then records: an octet of what
// the host does, a 16-bit length, and so many octets of ULPDU, which are framed here. STags and offsets that start with
// 0xAA name the real ones, and STags that start with 0xAB are kSharedQueue.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "mpa/crc32c.h"
#include "mpa/deframer.h"
#include "mpa/fpdu_buffer.h"
#include "rdmap/receiver.h"
#include "rdmap/transmit/transmitter.h"

using namespace uiw;

namespace {

void check(bool condition) {
  if (!condition) std::abort();
}

// Of all inputs, since it has much memory.
ddp::StagTable& the_stags() {
  static ddp::StagTable stags(1);
  return stags;
}
rdmap::OutgoingBatch& the_batch() {
  static rdmap::OutgoingBatch batch;
  return batch;
}

struct Host final : rdmap::SendHost, rdmap::ReceiveHost {
  Host(bool crc, mpa::PeerKind peer, bool xrc_target)
      : queue(8, 4, 0), tx(queue, {stags, this}, *this), rx({stags, this}, *this), reads(2, 2) {
    rules.crc = crc;
    rules.mulpdu = rules.mulpdu_to_uiw = 256;
    rules.ord = rules.ird = rules.requests_out = rules.requests_in = 2;
    rules.peer = peer;
    rules.xrc_target = xrc_target;
    tx.start(rules, reads);
    rx.start(reads, rules);
    deframer.start(crc);
    memory.resize(64 + 256 + 64, std::byte{0x11});
    stag = *stags.add(
        {memory.data() + 64, 0xAA000000, 256, ddp::kLocalWrite | ddp::kRemoteRead | ddp::kRemoteWrite, this});
  }
  ~Host() {
    for (const ddp::Stag mine : {stag, inbox_stag, sink_stag}) {
      stags.retire(mine);  // unless that has been done
      stags.recycle(mine);
    }
  }
  void send_complete(const rdmap::SendWork&, rdmap::Status) override { ++completions; }
  bool next_receive(rdmap::ReceiveBuffer& buffer) override {
    if (posted == 0 || (rules.xrc_target && !queue_there)) return false;
    buffer = {7, static_cast<std::uint32_t>(inbox.size()), inbox_sges, this};
    return true;
  }
  void receive_complete(const rdmap::ReceiveBuffer& buffer, rdmap::Status, const Message& message) override {
    check(posted > 0 && buffer.id == 7 && message.length <= buffer.length);
    --posted;
  }
  void read_complete() override { tx.read_complete(); }
  void read_requested(bool) override {}
  const void* choose_queue(std::uint64_t number) override {
    queue_there = number % 2 != 0;
    return queue_there ? this : nullptr;
  }
  std::optional<rdmap::ErrorCode> invalidate(rdmap::Stag which) override {
    if (which == stag && stags.retire(which)) return std::nullopt;
    return rdmap::ErrorCode::cannot_invalidate;
  }

  ddp::Stag expose(std::vector<std::byte>& of) { return *stags.add({of.data(), 0, of.size(), ddp::kLocalWrite, this}); }
  rdmap::Sge named(ddp::Stag which, std::uint64_t offset, std::uint32_t length) {
    return {which, length, offset, stags.registered(which, this, offset, length, ddp::kLocalWrite)};
  }

  void post_read() {
    if (!queue.has_room(queue.tail())) return;
    rdmap::SendWork& work = queue.at(queue.tail());
    work = {};
    work.kind = rdmap::WorkKind::read;
    work.length = 100;
    work.sges = 2;
    work.sink_stag = rdmap::Stag{0xAA000001};
    work.sink_offset = 0xAA000000;
    queue.sge_room(queue.tail())[0] = named(sink_stag, 0, 33);
    queue.sge_room(queue.tail())[1] = named(sink_stag, 33, 67);
    queue.push();
    ++work_posted;
  }
  void transmit(std::size_t most) {
    for (int i = 0; i < 1000; ++i) {
      const auto fill = tx.fill(batch);
      if (fill == rdmap::Transmitter::Fill::local_error) {
        tx.flush(tx.failure()->sequence, tx.failure()->status);
        continue;
      }
      broken = broken || fill == rdmap::Transmitter::Fill::broken;
      if (fill != rdmap::Transmitter::Fill::ready) return;
      const std::size_t take = std::min(most, batch.fpdus.bytes());
      tx.sent(batch, take);
      most -= take;
      if (most == 0) return;
    }
    check(false);  // it must come to an end
  }

  ddp::StagTable& stags = the_stags();
  rdmap::SendQueue queue;
  rdmap::Transmitter tx;
  rdmap::Receiver rx;
  rdmap::ConnectionRules rules;
  rdmap::SharedReads reads;
  mpa::Deframer deframer;
  ddp::Stag stag;
  std::vector<std::byte> memory;
  std::vector<std::byte> inbox = std::vector<std::byte>(120), sink = std::vector<std::byte>(100);
  ddp::Stag inbox_stag = expose(inbox), sink_stag = expose(sink);
  rdmap::Sge inbox_sges[3] = {named(inbox_stag, 0, 20), named(inbox_stag, 20, 0), named(inbox_stag, 20, 100)};
  bool queue_there = false;
  unsigned posted = 0;
  unsigned completions = 0, work_posted = 0;
  bool broken = false;  // an FPDU that was begun cannot be finished
  rdmap::OutgoingBatch& batch = the_batch();
};

// What the program does before the ULPDU comes.
void act(Host& host, unsigned what, std::minstd_rand& random) {
  if ((what & 1) != 0 && host.posted < 4) ++host.posted;
  if ((what & 2) != 0) host.post_read();
  if ((what & 4) != 0) host.transmit(random() % 300);
  if ((what & 8) != 0 && (what & 0x70) == 0x70) host.stags.retire(host.stag);
  if ((what & 8) != 0 && (what & 0x70) == 0x60) host.stags.retire(host.inbox_stag);
  if ((what & 8) != 0 && (what & 0x70) == 0x50) host.stags.retire(host.sink_stag);
}

// An STag of 0xAA... is the real one, which no fuzzer would find.
void name_stags(std::vector<std::byte>& ulpdu, ddp::Stag stag) {
  const auto name = [&](std::size_t place) {
    if (ulpdu.size() >= place + 4 && ulpdu[place] == std::byte{0xAA}) {
      store_be(ulpdu.data() + place, static_cast<std::uint32_t>(stag));
    }
    if (ulpdu.size() >= place + 4 && ulpdu[place] == std::byte{0xAB}) {
      store_be(ulpdu.data() + place, static_cast<std::uint32_t>(rdmap::kSharedQueue));
    }
  };
  if (!ulpdu.empty() && (ulpdu[0] & std::byte{0x80}) != std::byte{0}) {
    if (ulpdu.size() < 2 || (ulpdu[1] & std::byte{0x0F}) == std::byte{0}) name(2);
  } else {
    name(2);
    name(18 + 16);
  }
}

void add_fpdu(std::vector<std::byte>& wire, const std::vector<std::byte>& ulpdu) {
  const std::size_t start = wire.size();
  wire.resize(start + mpa::fpdu_size(ulpdu.size()));
  store_be<std::uint16_t>(wire.data() + start, static_cast<std::uint16_t>(ulpdu.size()));
  std::copy(ulpdu.begin(), ulpdu.end(), wire.begin() + static_cast<std::ptrdiff_t>(start + 2));
  mpa::Crc32c sum;
  sum.add(wire.data() + start, wire.size() - start - mpa::kCrcSize);
  mpa::store_crc(wire.data() + wire.size() - mpa::kCrcSize, sum.value());
}

struct Reading {
  std::vector<std::byte> wire;  // what has come and is not consumed
  bool stopped = false, paused = false;
};

void take_result(mpa::Deframer::Result result, Reading& in) {
  check(result != mpa::Deframer::Result::bad_crc);
  in.paused = result == mpa::Deframer::Result::paused;
  in.stopped = result == mpa::Deframer::Result::stopped;
}

void receive(Host& host, Reading& in, std::minstd_rand& random) {
  while (!in.stopped && (in.paused ? host.posted > 0 : !in.wire.empty())) {
    const MutableOctets wanted = host.deframer.wanted(host.rx);
    if (!in.paused && !wanted.empty() && random() % 2 == 0) {
      const std::size_t take = std::min({wanted.size(), in.wire.size(), 1 + random() % 200});
      std::copy_n(in.wire.begin(), take, wanted.begin());
      in.wire.erase(in.wire.begin(), in.wire.begin() + static_cast<std::ptrdiff_t>(take));
      take_result(host.deframer.filled(take, host.rx), in);
      continue;
    }
    const std::size_t give = in.paused ? in.wire.size() : std::min<std::size_t>(in.wire.size(), 1 + random() % 200);
    const std::vector<std::byte> segment(in.wire.begin(), in.wire.begin() + static_cast<std::ptrdiff_t>(give));
    const auto [result, consumed] = host.deframer.receive(segment, host.rx);
    check(consumed <= give);
    in.wire.erase(in.wire.begin(), in.wire.begin() + static_cast<std::ptrdiff_t>(consumed));
    take_result(result, in);
  }
}

void end_stream(Host& host) {
  check(host.rx.error().has_value() != host.rx.peer_terminate().has_value());
  if (host.rx.peer_terminate()) (void)host.tx.find_terminated(*host.rx.peer_terminate());
  if (host.rx.error()) {
    host.tx.terminate(*host.rx.error());
    host.transmit(~std::size_t{0});
    check(host.tx.terminate_sent() || host.broken);
  }
  host.rx.abandon(rdmap::Status::flushed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  mpa::keep_spare_fpdu_buffers(true);  // new ones for each input take long
  const bool crc = (data[0] & 1) != 0;
  std::minstd_rand random(1U + data[1]);
  const auto host_owner =
      std::make_unique<Host>(crc, (data[0] & 2) != 0 ? mpa::PeerKind::uiw : mpa::PeerKind::other, (data[0] & 4) != 0);
  Host& host = *host_owner;
  const auto* at = reinterpret_cast<const std::byte*>(data) + 2;
  const auto* const end = reinterpret_cast<const std::byte*>(data) + size;
  Reading in;
  while (end - at >= 3 && !in.stopped) {
    const auto what = std::to_integer<unsigned>(at[0]);
    const std::size_t length =
        std::min<std::size_t>(load_be<std::uint16_t>(at + 1), static_cast<std::size_t>(end - at - 3));
    at += 3;
    act(host, what, random);
    std::vector<std::byte> ulpdu(at, at + length);
    at += length;
    name_stags(ulpdu, host.stag);
    add_fpdu(in.wire, ulpdu);
    receive(host, in, random);
  }
  if (in.stopped) {
    end_stream(host);
  } else {
    host.transmit(~std::size_t{0});
  }
  host.tx.flush(std::nullopt, rdmap::Status::flushed);
  check(host.completions == host.work_posted);
  for (std::size_t i = 0; i < 64; ++i) {
    check(host.memory[i] == std::byte{0x11} && host.memory[host.memory.size() - 1 - i] == std::byte{0x11});
  }
  return 0;
}
