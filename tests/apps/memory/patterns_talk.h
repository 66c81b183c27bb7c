// SPDX-License-Identifier: MIT
// How the ends of uiw_patterns tell each other of their memory and of what they have done: Sends on the connection that
// is tried. Checks that completions come in the order of the work. One thread uses it, and the endpoint must remain
// live as long as it.
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "tests/apps/support/endpoint.h"

namespace apps::patterns {

enum class Word : std::uint32_t { hello = 1, check, verdict, end };

struct Message {
  Word word;
  std::uint32_t rkey, readable_rkey;
  std::uint64_t number, address, readable_address;
};

// Control messages: Sends of their own memory, on the same QP, so they arrive after the data.
class Talk {
 public:
  Talk(Endpoint& end, bool events) : end_(end), events_(events) {
    mr_ = reg(end.pd(), in_, sizeof in_, IBV_ACCESS_LOCAL_WRITE);
    out_mr_ = reg(end.pd(), &out_, sizeof out_, 0);
  }
  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;
  ~Talk() {
    ibv_dereg_mr(mr_);
    ibv_dereg_mr(out_mr_);
  }

  // Receives complete in the order they were posted; `tag` tells which.
  void post_recv(std::vector<ibv_sge> list, std::uint64_t tag) {
    post_receive(end_.qp(), std::move(list), tag);
    receives_.push_back(tag);
  }
  // The peer may speak twice before we look, so receives rotate among boxes.
  void post_control() {
    post_recv({{reinterpret_cast<std::uint64_t>(&in_[posted_++ % kBoxes]), sizeof(Message), mr_->lkey}}, kControl);
  }

  std::uint32_t take_recv() {
    ibv_wc wc{};
    if (!end_.recv_completion(wc, events_)) die("no receive completion in time");
    if (wc.status != IBV_WC_SUCCESS) die("receive completes with %s", ibv_wc_status_str(wc.status));
    if (receives_.empty()) die("a receive completes that was not posted");
    if (wc.wr_id != receives_.front())
      die("receives complete out of order: %llx, not %llx", ull(wc.wr_id), ull(receives_.front()));
    receives_.pop_front();
    if (wc.opcode != IBV_WC_RECV) die("a receive's opcode is %d", wc.opcode);
    if (wc.qp_num != end_.qp()->qp_num) die("a completion's qp_num is 0x%x", wc.qp_num);
    return wc.byte_len;
  }
  Message take_message(Word word) {
    const std::uint32_t length = take_recv();
    if (length != sizeof(Message)) die("a message of %u octets, not %zu", length, sizeof(Message));
    const Message message_in = in_[taken_++ % kBoxes];
    if (message_in.word != word)
      die("message %u, not %u", static_cast<unsigned>(message_in.word), static_cast<unsigned>(word));
    return message_in;
  }

  // A send request for this message; valid until the next call.
  ibv_send_wr& message(const Message& content) {
    out_ = content;
    sge_ = {reinterpret_cast<std::uint64_t>(&out_), sizeof(Message), out_mr_->lkey};
    request_ = {};
    request_.sg_list = &sge_;
    request_.num_sge = 1;
    request_.opcode = IBV_WR_SEND;
    request_.send_flags = IBV_SEND_SIGNALED;
    request_.wr_id = next_++;
    return request_;
  }
  std::uint64_t next_id() { return next_++; }

  // Posts a chain; the signaled ones must complete in this order.
  void post(ibv_send_wr& first) {
    for (ibv_send_wr* each = &first; each != nullptr; each = each->next)
      if (each->send_flags & IBV_SEND_SIGNALED) sends_.push_back({each->wr_id, each->opcode});
    ibv_send_wr* bad = nullptr;
    good("ibv_post_send", ibv_post_send(end_.qp(), &first, &bad));
  }
  void complete_all() {
    while (!sends_.empty()) {
      ibv_wc wc{};
      if (!end_.send_completion(wc, events_)) die("no send completion in time");
      const auto [id, opcode] = sends_.front();
      sends_.pop_front();
      if (wc.status != IBV_WC_SUCCESS)
        die("work request %llu completes with %s", ull(wc.wr_id), ibv_wc_status_str(wc.status));
      if (wc.wr_id != id)
        die("completion of work request %llu, where %llu is next (unsignaled, or out of order)", ull(wc.wr_id),
            ull(id));
      const ibv_wc_opcode wanted = opcode == IBV_WR_SEND         ? IBV_WC_SEND
                                   : opcode == IBV_WR_RDMA_WRITE ? IBV_WC_RDMA_WRITE
                                                                 : IBV_WC_RDMA_READ;
      if (wc.opcode != wanted) die("a completion's opcode is %d, not %d", wc.opcode, wanted);
    }
  }

  static constexpr std::uint64_t kControl = 0xC0;
  static constexpr std::uint64_t kData = 0xDA;

 private:
  Endpoint& end_;
  bool events_;
  static constexpr std::size_t kBoxes = 4;
  Message in_[kBoxes] = {};
  Message out_ = {};
  std::size_t posted_ = 0, taken_ = 0;
  ibv_mr* mr_;
  ibv_mr* out_mr_;
  ibv_sge sge_{};
  ibv_send_wr request_{};
  std::uint64_t next_ = 1;
  std::deque<std::uint64_t> receives_;
  std::deque<std::pair<std::uint64_t, ibv_wr_opcode>> sends_;
};

}  // namespace apps::patterns
