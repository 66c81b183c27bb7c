// SPDX-License-Identifier: MIT
// What the two ends of a connection do until one of them dies: each keeps its queues full of Sends, Writes and Reads,
// and verifies what comes.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/apps/support/manual.h"

namespace apps::moments {

inline constexpr std::uint32_t kDepth = 8, kLength = 40'000;
inline constexpr std::uint64_t kReceive = std::uint64_t{1} << 63;

// What an end tells of its memory.
struct Introduction {
  Place place;
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  int port = 0;  // where it listens
};

class Work {
 public:
  explicit Work(const Rnic& rnic) : Work(rnic.context(), rnic.pd()) {}
  Work(ibv_context* context, ibv_pd* pd)
      : cq_(made("ibv_create_cq", ibv_create_cq(context, 4 * kDepth, nullptr, nullptr, 0))),
        mr_(reg(pd, memory_.data(), memory_.size(),
                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)) {
    write(part(kShown), 0, kLength);
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  // The queue pair has been destroyed.
  ~Work() {
    expect_error("ibv_dereg_mr", ibv_dereg_mr(mr_), 0);
    expect_error("ibv_destroy_cq", ibv_destroy_cq(cq_), 0);
  }

  ibv_qp_init_attr attributes() const {
    Capacity capacity;
    capacity.send_wr = capacity.recv_wr = kDepth;
    ibv_qp_init_attr attributes = qp_attributes(capacity);
    attributes.send_cq = attributes.recv_cq = cq_;
    return attributes;
  }
  Introduction introduction() const { return {{}, number(memory_.data()), mr_->rkey, 0}; }

  // Before the queue pair is connected.
  void prepare(ibv_qp* qp) {
    qp_ = qp;
    for (std::uint64_t i = 0; i < kDepth; ++i) receive();
  }
  // Keeps the queues full until something fails. `done` counts what has succeeded.
  void run(const Introduction& peer, std::atomic<std::uint64_t>& done, Clock::duration patience) {
    peer_ = peer;
    auto end = Clock::now() + patience;
    while (!failed_) {
      while (posted_ - completed_ < kDepth) post();
      ibv_wc wc{};
      if (ibv_poll_cq(cq_, 1, &wc) != 1) {
        if (Clock::now() > end) die("the peer neither works nor is it found to be dead");
        sched_yield();
        continue;
      }
      end = Clock::now() + patience;
      take(wc);
      if (!failed_) done.fetch_add(1);
    }
  }
  // The status of the first request that has failed, in words.
  const std::string& why() const { return why_; }
  // All that is posted has its completion, and nothing succeeds any more.
  void drain() {
    const auto end = Clock::now() + kPatience;
    while (completed_ < posted_ || received_ < receives_) {
      ibv_wc wc{};
      if (ibv_poll_cq(cq_, 1, &wc) == 1)
        take(wc);
      else if (Clock::now() > end)
        die("not all is flushed: %llu of %llu sends, %llu of %llu receives", ull(completed_), ull(posted_),
            ull(received_), ull(receives_));
    }
    ibv_wc wc{};
    if (ibv_poll_cq(cq_, 1, &wc) != 0) die("a completion too much");
  }

 private:
  enum Part : std::size_t { kInbox = 0, kOutbox = kDepth, kSinks = 2 * kDepth, kScratch = 3 * kDepth, kShown, kParts };

  unsigned char* part(std::size_t index) { return memory_.data() + index * kLength; }
  static std::uint64_t offset(std::size_t index) { return index * kLength; }

  static unsigned char octet(std::uint64_t seed, std::uint32_t at) {
    return static_cast<unsigned char>((seed * 37 + at * 7) ^ (at >> 8));
  }
  static void write(unsigned char* to, std::uint64_t seed, std::uint32_t length) {
    for (std::uint32_t i = 0; i < length; ++i) to[i] = octet(seed, i);
  }
  static bool holds(const unsigned char* from, std::uint64_t seed, std::uint32_t length) {
    for (std::uint32_t i = 0; i < length; ++i)
      if (from[i] != octet(seed, i)) return false;
    return true;
  }
  static std::uint32_t length_of(std::uint64_t message) {
    const std::uint64_t value = message * 0x9E3779B97F4A7C15 >> 33;
    return static_cast<std::uint32_t>(message % 3 == 0 ? value % kLength : value % 64);
  }

  void receive() {
    post_receive(qp_, {{number(part(kInbox + receives_ % kDepth)), kLength, mr_->lkey}}, kReceive + receives_);
    ++receives_;
  }

  static ibv_wr_opcode opcode_of(std::uint64_t index) {
    constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ};
    return kOpcodes[index % 4];
  }
  // The message that request `index` is, where it is a Send.
  static std::uint64_t message_of(std::uint64_t index) { return index / 2; }

  void post() {
    const std::uint64_t index = posted_++;
    const ibv_wr_opcode opcode = opcode_of(index);
    const std::uint32_t length = length_of(message_of(index));
    const std::size_t from = (opcode == IBV_WR_RDMA_READ ? kSinks : kOutbox) + index % kDepth;
    if (opcode == IBV_WR_SEND) write(part(from), message_of(index), length);
    if (opcode == IBV_WR_RDMA_READ) std::memset(part(from), 0, length);
    const std::size_t to = opcode == IBV_WR_RDMA_READ ? kShown : kScratch;
    SendRequest(opcode, {number(part(from)), length, mr_->lkey}, index)
        .at(peer_.address + offset(to), peer_.rkey)
        .post(qp_);
  }

  void take(const ibv_wc& wc) {
    const bool receives = wc.wr_id >= kReceive;
    const std::uint64_t due = receives ? kReceive + received_++ : completed_++;
    if (wc.wr_id != due) die("completion of %llx, not %llx", ull(wc.wr_id), ull(due));
    if (wc.status == IBV_WC_SUCCESS) {
      // What has come before the end may be found behind it, but a queue goes on with failures only.
      if (receives ? receive_failed_ : send_failed_) die("request %llx succeeds behind a failure", ull(wc.wr_id));
      receives ? arrived(wc) : succeeded(wc);
      return;
    }
    if (why_.empty()) why_ = ibv_wc_status_str(wc.status);
    // The first request that fails may say that the peer is gone; all else is flushed.
    const bool says = wc.status == IBV_WC_RETRY_EXC_ERR && !receives && !send_failed_;
    if (!says && wc.status != IBV_WC_WR_FLUSH_ERR) die("request %llx: %s", ull(wc.wr_id), ibv_wc_status_str(wc.status));
    (receives ? receive_failed_ : send_failed_) = true;
    failed_ = true;
  }

  void arrived(const ibv_wc& wc) {
    const std::uint64_t message = received_ - 1;
    const std::uint32_t length = length_of(message);
    if (wc.byte_len != length) die("message %llu has %u octets, not %u", ull(message), wc.byte_len, length);
    if (!holds(part(kInbox + message % kDepth), message, length)) die("the octets of message %llu", ull(message));
    if (!failed_) receive();
  }
  void succeeded(const ibv_wc& wc) {
    if (opcode_of(wc.wr_id) == IBV_WR_RDMA_READ &&
        !holds(part(kSinks + wc.wr_id % kDepth), 0, length_of(message_of(wc.wr_id))))
      die("the octets of Read %llu", ull(wc.wr_id));
  }

  std::vector<unsigned char> memory_ = std::vector<unsigned char>(std::size_t{kParts} * kLength);
  ibv_cq* cq_;
  ibv_mr* mr_;
  ibv_qp* qp_ = nullptr;
  Introduction peer_;
  std::uint64_t posted_ = 0, completed_ = 0, receives_ = 0, received_ = 0;
  std::string why_;
  bool failed_ = false, send_failed_ = false, receive_failed_ = false;
};

}  // namespace apps::moments
