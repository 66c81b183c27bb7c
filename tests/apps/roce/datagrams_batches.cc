// SPDX-License-Identifier: MIT
// Datagrams that are posted together. The kernel takes those of one size for one place as one (UDP_SEGMENT), and the
// receiver gets them as one (UDP_GRO), but each must arrive as what it was.
#include <algorithm>
#include <random>

#include "tests/apps/roce/datagrams.h"

namespace apps::datagrams {

namespace {

constexpr std::size_t kLongest = 4096, kRoom = kGrh + kLongest, kMost = 32;

std::uint8_t octet(std::uint64_t message, std::size_t at) {
  return static_cast<std::uint8_t>(message * 31 + at * 7 + (at >> 8));
}

struct Region {
  Region(const Device& device, std::size_t slots) : octets(slots * kRoom) {
    mr = reg(device.pd, octets.data(), octets.size(), IBV_ACCESS_LOCAL_WRITE);
  }
  ~Region() { expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  std::uint8_t* slot(std::size_t index) { return octets.data() + index * kRoom; }
  std::vector<std::uint8_t> octets;
  ibv_mr* mr;
};

// A queue pair that receives, and what it is to receive: messages with their sizes, in this order.
struct Receiver {
  explicit Receiver(const Device& device) : queue(device), qp(device, queue.cq), memory(device, kMost) {
    for (std::size_t slot = 0; slot < kMost; ++slot) post(slot);
  }
  void post(std::size_t slot) { post_receive(qp.qp, {{number(memory.slot(slot)), kRoom, memory.mr->lkey}}, slot); }
  void check() {
    for (const auto& [message, size] : due) {
      const ibv_wc wc = queue.next();
      if (wc.byte_len != kGrh + size) die("message %llu has %u octets", ull(message), wc.byte_len);
      const std::uint8_t* const octets = memory.slot(wc.wr_id) + kGrh;
      for (std::size_t at = 0; at < size; ++at)
        if (octets[at] != octet(message, at)) die("octet %zu of message %llu is another", at, ull(message));
      post(wc.wr_id);
    }
    due.clear();
    expect(queue.empty(), "more has come than was sent");
  }
  Queue queue;
  Qp qp;
  Region memory;
  std::vector<std::pair<std::uint64_t, std::size_t>> due;
};

class Sender {
 public:
  explicit Sender(const Device& device) : queue_(device), qp_(device, queue_.cq), memory_(device, kMost) {}

  // Posts messages of these sizes, each to the receiver of the same index, in one call. With `to` null nobody gets
  // them, whichever number they have.
  void send(const std::vector<std::size_t>& sizes, const std::vector<Receiver*>& receivers, ibv_ah* to = nullptr) {
    std::vector<ibv_sge> sges(sizes.size());
    std::vector<ibv_send_wr> requests(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::uint64_t message = next_++;
      std::uint8_t* const octets = memory_.slot(i);
      for (std::size_t at = 0; at < sizes[i]; ++at) octets[at] = octet(message, at);
      sges[i] = {number(octets), static_cast<std::uint32_t>(sizes[i]), memory_.mr->lkey};
      requests[i] = {};
      requests[i].next = i + 1 < sizes.size() ? &requests[i + 1] : nullptr;
      requests[i].sg_list = &sges[i];
      requests[i].num_sge = 1;
      requests[i].opcode = IBV_WR_SEND;
      requests[i].send_flags = IBV_SEND_SIGNALED;
      requests[i].wr.ud = {to != nullptr ? to : qp_.to, receivers[i]->qp.qp->qp_num, kQkey};
      if (to == nullptr) receivers[i]->due.emplace_back(message, sizes[i]);
    }
    ibv_send_wr* bad = nullptr;
    expect_error("ibv_post_send", ibv_post_send(qp_.qp, requests.data(), &bad), 0);
    for (std::size_t i = 0; i < sizes.size(); ++i) queue_.next();
  }

 private:
  Queue queue_;
  Qp qp_;
  Region memory_;
  std::uint64_t next_ = 1;
};

void batches() {
  const Device device;
  Receiver receiver(device), other(device);
  Sender sender(device);
  const auto to_one = [&](const std::vector<std::size_t>& sizes) {
    sender.send(sizes, std::vector<Receiver*>(sizes.size(), &receiver));
    receiver.check();
  };
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{1000}, kLongest})
    to_one(std::vector<std::size_t>(kMost, size));
  to_one({100, 100, 100, 50});           // the last is shorter
  to_one({100, 100, 50, 100, 100});      // one in the middle is
  to_one({50, 100, 100, 50, 50, 0, 0});  // a longer one follows; empty ones do
  to_one({kLongest, kLongest, 1, kLongest});
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::size_t> sizes(1 + random() % kMost);
    std::vector<Receiver*> receivers;
    const std::size_t usual = random() % (kLongest + 1);
    for (std::size_t& size : sizes) {
      size = random() % 4 != 0 ? usual : random() % (kLongest + 1);
      receivers.push_back(random() % 5 != 0 ? &receiver : &other);
    }
    sender.send(sizes, receivers);
    receiver.check();
    other.check();
  }
}

// What the kernel refuses is lost, and says nothing of what follows.
void batches_refused() {
  const Device device;
  Receiver receiver(device);
  Sender sender(device);
  const std::vector<std::size_t> sizes(kMost, 500);
  const std::vector<Receiver*> receivers(kMost, &receiver);
  ibv_ah_attr attributes{};  // 203.0.113.1, where no way leads from a loopback address
  attributes.port_num = 1;
  attributes.is_global = 1;
  const std::uint8_t nowhere[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 203, 0, 113, 1};
  std::copy(std::begin(nowhere), std::end(nowhere), attributes.grh.dgid.raw);
  ibv_ah* const handle = ibv_create_ah(device.pd, &attributes);
  expect(handle != nullptr, "ibv_create_ah");
  for (int round = 0; round < 3; ++round) {
    sender.send(sizes, receivers, handle);
    sender.send(sizes, receivers);
    receiver.check();
  }
  expect_error("ibv_destroy_ah", ibv_destroy_ah(handle), 0);
}

}  // namespace

void batch_cases(Cases& cases) { cases.insert({{"batches", batches}, {"batches_refused", batches_refused}}); }

}  // namespace apps::datagrams
