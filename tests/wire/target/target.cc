// SPDX-License-Identifier: MIT
// The system under test of the wire tests: a stock verbs and rdma_cm program that does what it is told on
// standard input, one command a line, and says on standard output what came of it: one line "ok ..." or
// "error ..." for each command, and unasked "event", "async" and "wc" lines for what the libraries report.
// See the tables of commands at the end of the files beside this one; "quit" is here.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "tests/wire/target/target.h"

namespace target {

Target g_target;

void arm() {
  if (g_target.cq != nullptr && !g_target.spin) must(ibv_req_notify_cq(g_target.cq, g_target.notify), "req_notify_cq");
}

namespace {

void drain() {
  ibv_wc wc{};
  int count;
  while ((count = ibv_poll_cq(g_target.cq, 1, &wc)) == 1)
    say("wc %" PRIu64 " %d %d %u %u 0x%x 0x%x 0x%x", wc.wr_id, static_cast<int>(wc.status), static_cast<int>(wc.opcode),
        wc.byte_len, wc.wc_flags, wc.qp_num,
        (wc.wc_flags & IBV_WC_WITH_IMM) != 0 ? ntohl(wc.imm_data) : wc.invalidated_rkey, wc.src_qp);
  must(count < 0 ? EIO : 0, "poll_cq");
}

void quit() {
  g_target.hammer.thread = {};
  while (!g_target.ids.empty()) {
    rdma_cm_id* id = g_target.ids.begin()->second;
    g_target.ids.erase(g_target.ids.begin());
    if (id->qp != nullptr) rdma_destroy_qp(id);
    must(rdma_destroy_id(id), "destroy_id");
  }
  for (auto& [name, qp] : g_target.datagram_qps) must(ibv_destroy_qp(qp), "destroy_qp");
  for (auto& [name, handle] : g_target.address_handles) must(ibv_destroy_ah(handle), "destroy_ah");
  for (auto& [name, mw] : g_target.windows) must(ibv_dealloc_mw(mw), "dealloc_mw");
  for (auto& [name, memory] : g_target.memories) {
    if (memory.mr != nullptr) must(ibv_dereg_mr(memory.mr), "dereg_mr");
    munmap(memory.base, memory.size);
  }
  if (g_target.cq != nullptr) must(ibv_destroy_cq(g_target.cq), "destroy_cq");
  if (g_target.completions != nullptr) must(ibv_destroy_comp_channel(g_target.completions), "destroy_comp_channel");
  for (auto& [name, pd] : g_target.pds) must(ibv_dealloc_pd(pd), "dealloc_pd");
  if (g_target.anchor != nullptr) must(rdma_destroy_id(g_target.anchor), "destroy_id");
  rdma_destroy_event_channel(g_target.channel);
  g_target.done = true;
  say("ok");
}

void obey(const std::string& line) {
  std::istringstream text(line);
  Words word;
  for (std::string one; text >> one;) word.push_back(one);
  if (word.empty()) return;
  say("> %.300s", line.c_str());
  try {
    if (word[0] == "quit") return quit();
    for (const auto& commands : {memory_commands(), connection_commands(), work_commands(), datagram_commands()})
      for (const Command& command : commands)
        if (word[0] == command.name && word.size() >= command.words) return command.run(word);
    throw std::runtime_error("0 no such command");
  } catch (const std::exception& error) {
    say("error %s", error.what());
  }
}

// What the libraries report.
void tell_cm_event() {
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(g_target.channel, &event) != 0) return;
  std::string name = "?";
  if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
    name = "c" + std::to_string(++g_target.calls);
    g_target.ids[name] = event->id;
  } else {
    for (const auto& [key, id] : g_target.ids)
      if (id == event->id) name = key;
  }
  const auto& conn = event->param.conn;
  const bool told = event->event == RDMA_CM_EVENT_CONNECT_REQUEST || event->event == RDMA_CM_EVENT_ESTABLISHED ||
                    event->event == RDMA_CM_EVENT_REJECTED;
  const std::string data = told && conn.private_data != nullptr
                               ? to_hex(static_cast<const std::uint8_t*>(conn.private_data), conn.private_data_len)
                               : "-";
  say("event %s %s %d %u %u %s", rdma_event_str(event->event) + std::strlen("RDMA_CM_EVENT_"), name.c_str(),
      event->status, told ? conn.responder_resources : 0U, told ? conn.initiator_depth : 0U, data.c_str());
  rdma_ack_cm_event(event);
}

void tell_async_event() {
  ibv_async_event event{};
  if (ibv_get_async_event(g_target.verbs, &event) != 0) return;
  const bool of_qp = event.event_type == IBV_EVENT_QP_FATAL || event.event_type == IBV_EVENT_QP_REQ_ERR ||
                     event.event_type == IBV_EVENT_QP_ACCESS_ERR || event.event_type == IBV_EVENT_COMM_EST ||
                     event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED;
  say("async %d 0x%x", static_cast<int>(event.event_type), of_qp ? event.element.qp->qp_num : 0);
  ibv_ack_async_event(&event);
}

void tell_completions() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  unsigned count = 0;
  while (ibv_get_cq_event(g_target.completions, &cq, &context) == 0) ++count;
  if (count == 0) return;
  ibv_ack_cq_events(g_target.cq, count);
  arm();
  drain();
}

void serve() {
  std::string input;
  while (!g_target.done) {
    pollfd descriptor[] = {{0, POLLIN, 0},
                           {g_target.channel->fd, POLLIN, 0},
                           {g_target.verbs != nullptr ? g_target.verbs->async_fd : -1, POLLIN, 0},
                           {g_target.completions != nullptr ? g_target.completions->fd : -1, POLLIN, 0}};
    if (poll(descriptor, 4, g_target.spin ? 0 : -1) < 0 && errno != EINTR) must(-1, "poll");
    if (descriptor[1].revents != 0) tell_cm_event();
    if (descriptor[2].revents != 0) tell_async_event();
    if (descriptor[3].revents != 0) tell_completions();
    if (g_target.spin) drain();
    if (descriptor[0].revents == 0) continue;
    char octets[65536];
    const ssize_t count = read(0, octets, sizeof octets);
    if (count <= 0) return;
    input.append(octets, static_cast<std::size_t>(count));
    for (std::size_t end; !g_target.done && (end = input.find('\n')) != std::string::npos;) {
      const std::string line = input.substr(0, end);
      input.erase(0, end + 1);
      obey(line);
    }
  }
}

}  // namespace

int run() {
  try {
    g_target.channel = made(rdma_create_event_channel(), "create_event_channel");
    serve();
  } catch (const std::exception& error) {
    say("error %s", error.what());
    return 1;
  }
  return g_target.done ? 0 : 1;
}

}  // namespace target

int main() { return target::run(); }
