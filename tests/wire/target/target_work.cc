// SPDX-License-Identifier: MIT
// The commands that post work, and say how its completions are waited for.
#include <arpa/inet.h>

#include <sstream>
#include <string_view>

#include "tests/wire/target/target.h"

namespace target {

std::vector<ibv_sge> parse_sges(const Words& word, std::size_t first) {
  std::vector<ibv_sge> list;
  for (std::size_t i = first; i < word.size(); ++i) {
    if (word[i].find('=') != std::string::npos) continue;
    std::istringstream fields(word[i]);
    std::string name, offset, length;
    std::getline(fields, name, ':');
    std::getline(fields, offset, ':');
    std::getline(fields, length, ':');
    const Memory& memory = find(g_target.memories, name);
    list.push_back({memory.address + number(offset), static_cast<std::uint32_t>(number(length)),
                    memory.mr == nullptr ? 0 : memory.mr->lkey});
  }
  return list;
}

std::uint64_t value_of(const Words& word, std::string_view name) {
  for (const std::string& one : word)
    if (one.size() > name.size() && one.starts_with(name) && one[name.size()] == '=')
      return number(one.substr(name.size() + 1));
  return 0;
}

unsigned flags_of(const std::string& letters) {
  unsigned flags = IBV_SEND_SIGNALED;
  for (const char letter : letters) {
    if (letter == 'u') flags &= ~static_cast<unsigned>(IBV_SEND_SIGNALED);
    if (letter == 's') flags |= IBV_SEND_SOLICITED;
    if (letter == 'i') flags |= IBV_SEND_INLINE;
    if (letter == 'f') flags |= IBV_SEND_FENCE;
  }
  return flags;
}

void post_work(ibv_qp* qp, Work work, const std::string& flags) {
  g_target.chain.push_back(std::move(work));
  if (flags.find('c') != std::string::npos) return;
  std::vector<Work> chain = std::move(g_target.chain);
  g_target.chain.clear();
  for (std::size_t i = 0; i < chain.size(); ++i) {
    chain[i].request.sg_list = chain[i].list.data();
    chain[i].request.num_sge = static_cast<int>(chain[i].list.size());
    chain[i].request.next = i + 1 < chain.size() ? &chain[i + 1].request : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  must(ibv_post_send(qp, &chain.front().request, &bad), "post_send");
}

namespace {

void recv(const Words& word) {  // recv NAME WR_ID [SGE...]
  auto list = parse_sges(word, 3);
  ibv_recv_wr request{}, *bad = nullptr;
  request.wr_id = number(word[2]);
  request.sg_list = list.data();
  request.num_sge = static_cast<int>(list.size());
  must(ibv_post_recv(queue_pair(word[1]), &request, &bad), "post_recv");
  say("ok");
}

ibv_wr_opcode opcode_of(const std::string& name) {
  if (name == "send") return IBV_WR_SEND;
  if (name == "send_imm") return IBV_WR_SEND_WITH_IMM;
  if (name == "send_inv") return IBV_WR_SEND_WITH_INV;
  if (name == "write") return IBV_WR_RDMA_WRITE;
  if (name == "write_imm") return IBV_WR_RDMA_WRITE_WITH_IMM;
  if (name == "read") return IBV_WR_RDMA_READ;
  if (name == "local_inv") return IBV_WR_LOCAL_INV;
  if (name == "fetch_add") return IBV_WR_ATOMIC_FETCH_AND_ADD;
  if (name == "compare_swap") return IBV_WR_ATOMIC_CMP_AND_SWP;
  throw std::runtime_error("0 no operation " + name);
}

// post NAME WR_ID OPERATION FLAGS(u,s,i,f,c) RKEY ADDRESS [SGE... imm=|add=|compare=|swap=NUMBER...]
// c: this work is posted in one list with those that follow, up to the first without c.
void post(const Words& word) {
  const auto rkey = static_cast<std::uint32_t>(number(word[5]));
  Work work;
  ibv_send_wr& request = work.request;
  work.list = parse_sges(word, 7);
  request.wr_id = number(word[2]);
  request.opcode = opcode_of(word[3]);
  request.send_flags = flags_of(word[4]);
  switch (request.opcode) {
    case IBV_WR_LOCAL_INV:
    case IBV_WR_SEND_WITH_INV: request.invalidate_rkey = rkey; break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      request.wr.atomic.rkey = rkey;
      request.wr.atomic.remote_addr = number(word[6]);
      request.wr.atomic.compare_add = value_of(word, "add") | value_of(word, "compare");
      request.wr.atomic.swap = value_of(word, "swap");
      break;
    default:
      request.wr.rdma.rkey = rkey;
      request.wr.rdma.remote_addr = number(word[6]);
      if (request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM || request.opcode == IBV_WR_SEND_WITH_IMM)
        request.imm_data = htonl(static_cast<std::uint32_t>(value_of(word, "imm")));
  }
  post_work(queue_pair(word[1]), std::move(work), word[4]);
  say("ok");
}

void notify(const Words& word) {  // notify all|solicited
  g_target.notify = word[1] == "solicited";
  arm();
  say("ok");
}

void spin(const Words& word) {  // spin on|off: poll the CQ all the time, or sleep until it tells
  g_target.spin = word[1] == "on";
  arm();
  say("ok");
}

}  // namespace

std::span<const Command> work_commands() {
  static constexpr Command kCommands[] = {
      {"recv", 3, recv},
      {"post", 7, post},
      {"notify", 2, notify},
      {"spin", 2, spin},
  };
  return kCommands;
}

}  // namespace target
