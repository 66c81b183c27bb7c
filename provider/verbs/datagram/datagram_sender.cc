// SPDX-License-Identifier: MIT
#include "provider/verbs/datagram/datagram_sender.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/guarded_copy.h"
#include "mpa/crc32c.h"
#include "provider/progress/io_scratch.h"
#include "provider/verbs/context.h"
#include "provider/verbs/datagram/address_handle.h"
#include "rdmap/scatter_gather.h"

namespace uiw::provider {

namespace {

// If the Q_Key of a request has this bit set, the Q_Key of the sending queue pair is used instead.
constexpr std::uint32_t kOwnQkey = 0x80000000;

constexpr std::size_t kPart = IoScratch::kStaging / kDatagramBatch;

}  // namespace

DatagramSender::DatagramSender(QpIdentity& qp, WorkQueues& queues, const ibv_qp_cap& granted, std::size_t most_octets)
    : qp_(qp),
      queues_(queues),
      sends_(queues.sends()),
      most_octets_(std::min(most_octets, kPart - kDatagramOverhead)),
      destinations_(std::make_unique_for_overwrite<Destination[]>(granted.max_send_wr)) {}

int DatagramSender::build(std::uint64_t sequence, const ibv_send_wr& request) {
  if (request.opcode != IBV_WR_SEND && request.opcode != IBV_WR_SEND_WITH_IMM) return EINVAL;
  if (const int error = queues_.build(sequence, request, {}); error != 0) return error;
  address(sequence, request.wr.ud.ah, request.wr.ud.remote_qpn, request.wr.ud.remote_qkey);
  return 0;
}

void DatagramSender::address(std::uint64_t sequence, const ibv_ah* handle, std::uint32_t number, std::uint32_t qkey) {
  Destination& to = destination(sequence);
  to.known = handle != nullptr;
  if (to.known) to.route = route_of(handle);
  to.number = number & kMulticastQp;
  to.qkey = qkey;
}

// Copies the message, so that the CRC is right for the octets that are sent even if the program changes its memory
// meanwhile.
bool DatagramSender::copy_out(std::uint64_t sequence, std::byte* to) {
  rdmap::MemorySegment pieces[rdmap::kMaxPieces];
  std::uint32_t size = sends_.at(sequence).length;
  const std::size_t count = rdmap::gather(queues_.memory(), sends_, sequence, 0, size, pieces);
  if (count == rdmap::kUnavailable || size != sends_.at(sequence).length) return false;
  for (const rdmap::MemorySegment& piece : std::span(pieces, count)) {
    if (!guarded_copy_unordered(to, piece.data, piece.size)) return false;
    to += piece.size;
  }
  return true;
}

rdmap::Status DatagramSender::encode_work(std::uint64_t sequence, std::uint32_t own_qkey, MutableOctets to) {
  const rdmap::SendWork& work = sends_.at(sequence);
  const Destination& destination = this->destination(sequence);
  if (work.status != rdmap::Status::success) return work.status;
  if (!destination.known) return rdmap::Status::local_operation;
  if (work.length > most_octets_) return rdmap::Status::local_length;
  DatagramHeader header;
  header.destination_qp = destination.number;
  header.source_qp = qp_.number;
  header.qkey = (destination.qkey & kOwnQkey) != 0 ? own_qkey : destination.qkey;
  header.solicited = work.solicited;
  if (work.has_immediate) header.immediate = load_be<std::uint32_t>(work.immediate.data());
  header.msn = static_cast<ddp::Msn>(++msn_);
  const DatagramHeaderOctets octets = encode(header);
  std::memcpy(to.data(), octets.data(), octets.size());
  if (!copy_out(sequence, to.data() + octets.size())) return rdmap::Status::local_protection;
  const std::size_t covered = octets.size() + work.length;
  mpa::Crc32c crc;
  crc.add(to.first(covered));
  mpa::store_crc(to.data() + covered, crc.value());
  return rdmap::Status::success;
}

bool DatagramSender::send(DatagramPort& port, std::uint32_t own_qkey) {
  if (sends_.empty()) return true;
  IoScratch* const scratch = io_scratch();
  if (scratch == nullptr) {
    port.take_over();
    return true;
  }
  while (!sends_.empty()) {
    std::array<OutgoingDatagram, kDatagramBatch> batch;
    std::size_t count = 0;
    rdmap::Status status = rdmap::Status::success;
    for (; count < kDatagramBatch && count < sends_.size(); ++count) {
      const std::uint64_t sequence = sends_.head() + count;
      std::byte* const part = scratch->staging.get() + count * kPart;
      status = encode_work(sequence, own_qkey, {part, kPart});
      if (status != rdmap::Status::success) break;
      const Destination& to = destination(sequence);
      batch[count] = {&to.route, destination_port(to.number), {part, sends_.at(sequence).length + kDatagramOverhead}};
    }
    const std::size_t sent = count == 0 ? 0 : port.send({batch.data(), count});
    for (std::size_t i = 0; i < sent; ++i) {
      const rdmap::SendWork work = sends_.at(sends_.head());
      sends_.pop();  // before the program can learn of the completion and post again
      queues_.send_complete(work, rdmap::Status::success);
    }
    if (sent < count) return true;
    if (status == rdmap::Status::success) continue;
    const rdmap::SendWork work = sends_.at(sends_.head());
    sends_.pop();
    queues_.send_complete(work, status);
    return false;
  }
  return true;
}

}  // namespace uiw::provider
