// SPDX-License-Identifier: MIT
// uiw-setup ADDRESS SECONDS: measures how long it takes to set up a queue pair that is connected with ibv_modify_qp.
// `uiw bench` runs it.
//
// uiw-setup is an ordinary program of libibverbs, without rdma_cm. In each round it creates 200 pairs of queue pairs on
// the device with ADDRESS, takes each queue pair to RTR and RTS, and sends a message in each direction; the time ends
// when all messages have arrived and all Sends have completed. It prints the median of the rounds, in microseconds for
// each queue pair.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPairs = 200;
constexpr std::chrono::seconds kConnectTimeout{10};

[[noreturn]] void fail(const char* what, int error = 0) {
  std::printf("%s%s%s\n", what, error != 0 ? ": " : "", error != 0 ? std::strerror(error) : "");
  std::exit(1);
}

struct Device {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_gid gid{};
  std::uint8_t gid_index = 0;
};

Device open(const std::string& address) {
  ibv_gid wanted{};
  const std::string text = address.find(':') == std::string::npos ? "::ffff:" + address : address;
  if (inet_pton(AF_INET6, text.c_str(), wanted.raw) != 1) fail("this is no address");
  Device device;
  ibv_device** list = ibv_get_device_list(nullptr);
  for (ibv_device** each = list; each != nullptr && *each != nullptr && device.context == nullptr; ++each) {
    ibv_context* context = ibv_open_device(*each);
    if (context == nullptr) fail("ibv_open_device", errno);
    for (int index = 0; index < 256 && ibv_query_gid(context, 1, index, &device.gid) == 0; ++index) {
      if (std::memcmp(device.gid.raw, wanted.raw, sizeof wanted.raw) != 0) continue;
      device.context = context;
      device.gid_index = static_cast<std::uint8_t>(index);
      break;
    }
    if (device.context == nullptr) ibv_close_device(context);
  }
  if (device.context == nullptr) fail("no device has this address");
  ibv_free_device_list(list);
  device.pd = ibv_alloc_pd(device.context);
  device.cq = ibv_create_cq(device.context, 8 * kPairs, nullptr, nullptr, 0);
  if (device.pd == nullptr || device.cq == nullptr) fail("ibv_alloc_pd or ibv_create_cq", errno);
  return device;
}

ibv_qp* make_qp(const Device& device) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = device.cq;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 4;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  ibv_qp* qp = ibv_create_qp(device.pd, &attributes);
  if (qp == nullptr) fail("ibv_create_qp", errno);
  return qp;
}

// Takes a queue pair to RTS, and posts a receive and a Send. The messages have no octets, so they need no memory.
void connect(const Device& device, ibv_qp* qp, std::uint32_t peer) {
  ibv_qp_attr attributes{};
  const auto modify = [&](ibv_qp_state state, int mask) {
    attributes.qp_state = state;
    if (const int error = ibv_modify_qp(qp, &attributes, IBV_QP_STATE | mask); error != 0) fail("ibv_modify_qp", error);
  };
  attributes.port_num = 1;
  modify(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  ibv_recv_wr receive{};
  ibv_recv_wr* bad_receive = nullptr;
  if (const int error = ibv_post_recv(qp, &receive, &bad_receive); error != 0) fail("ibv_post_recv", error);
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = peer;
  attributes.max_dest_rd_atomic = 1;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.dgid = device.gid;
  attributes.ah_attr.grh.sgid_index = device.gid_index;
  modify(IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                          IBV_QP_MIN_RNR_TIMER);
  attributes.timeout = 14;
  attributes.retry_cnt = attributes.rnr_retry = 7;
  attributes.max_rd_atomic = 1;
  modify(IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad_send = nullptr;
  if (const int error = ibv_post_send(qp, &send, &bad_send); error != 0) fail("ibv_post_send", error);
}

// Measures one round. Returns microseconds for each queue pair.
double round(const Device& device) {
  std::vector<ibv_qp*> qps(2 * kPairs);
  const auto start = Clock::now();
  for (ibv_qp*& qp : qps) qp = make_qp(device);
  for (std::size_t i = 0; i < qps.size(); ++i) connect(device, qps[i], qps[i ^ 1]->qp_num);
  for (std::size_t left = 2 * qps.size(); left > 0;) {
    ibv_wc completion{};
    const int got = ibv_poll_cq(device.cq, 1, &completion);
    if (got < 0) fail("ibv_poll_cq");
    if (got == 0) {
      if (Clock::now() - start > kConnectTimeout) fail("not all are connected in time");
      sched_yield();
      continue;
    }
    if (completion.status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(completion.status));
    --left;
  }
  const std::chrono::duration<double, std::micro> took = Clock::now() - start;
  for (ibv_qp* qp : qps) ibv_destroy_qp(qp);
  return took.count() / static_cast<double>(qps.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: uiw-setup ADDRESS SECONDS; `uiw bench` runs it\n");
    return 2;
  }
  const Device device = open(argv[1]);
  const auto end = Clock::now() + std::chrono::seconds(std::atoi(argv[2]));
  round(device);  // not counted, since the first round also creates what uiw creates only once
  std::vector<double> rounds;
  do rounds.push_back(round(device));
  while (Clock::now() < end);
  std::nth_element(rounds.begin(), rounds.begin() + static_cast<std::ptrdiff_t>(rounds.size() / 2), rounds.end());
  std::printf("%.3f us a queue pair\n", rounds[rounds.size() / 2]);
  return 0;
}
