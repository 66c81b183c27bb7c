// SPDX-License-Identifier: MIT
// The commands that make the device and memory, and look into it.
#include <fcntl.h>
#include <sys/mman.h>

#include <atomic>
#include <cinttypes>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>

#include "tests/wire/target/target.h"

namespace target {

namespace {

std::uint32_t crc32(const std::uint8_t* octets, std::size_t count) {  // the one of zlib
  std::uint32_t crc = ~0U;
  for (std::size_t i = 0; i < count; ++i) {
    crc ^= octets[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0xEDB88320U & (0U - (crc & 1U)));
  }
  return ~crc;
}

void open_device(const Words& word) {  // open ADDRESS
  // An id that is only bound to a loopback address has no device; one that has a destination does.
  must(rdma_create_id(nullptr, &g_target.anchor, nullptr, RDMA_PS_TCP), "create_id");
  sockaddr_storage address = parse_address(word[1], "1");
  must(rdma_resolve_addr(g_target.anchor, nullptr, reinterpret_cast<sockaddr*>(&address), 2000), "resolve_addr");
  g_target.verbs = made(g_target.anchor->verbs, "verbs");
  for (const int descriptor : {g_target.verbs->async_fd, g_target.channel->fd})
    must(fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK), "fcntl");
  g_target.pds["pd"] = made(ibv_alloc_pd(g_target.verbs), "alloc_pd");
  g_target.completions = made(ibv_create_comp_channel(g_target.verbs), "create_comp_channel");
  must(fcntl(g_target.completions->fd, F_SETFL, O_NONBLOCK), "fcntl");
  g_target.cq = made(ibv_create_cq(g_target.verbs, 4096, nullptr, g_target.completions, 0), "create_cq");
  arm();
  ibv_device_attr attributes{};
  must(ibv_query_device(g_target.verbs, &attributes), "query_device");
  say("ok device=%s max_mw=%d atomic=%d", ibv_get_device_name(g_target.verbs->device), attributes.max_mw,
      static_cast<int>(attributes.atomic_cap));
}

void add_pd(const Words& word) {  // pd NAME
  g_target.pds[word[1]] = made(ibv_alloc_pd(g_target.verbs), "alloc_pd");
  say("ok");
}

int access_of(const std::string& letters) {
  int access = 0;
  for (const char letter : letters)
    access |= letter == 'l'   ? IBV_ACCESS_LOCAL_WRITE
              : letter == 'r' ? IBV_ACCESS_REMOTE_READ
              : letter == 'w' ? IBV_ACCESS_REMOTE_WRITE
              : letter == 'a' ? IBV_ACCESS_REMOTE_ATOMIC
              : letter == 'b' ? IBV_ACCESS_MW_BIND
              : letter == '0' ? IBV_ACCESS_ZERO_BASED
                              : 0;
  return access;
}

void add_mr(const Words& word) {  // mr NAME SIZE ACCESS(lrwab) [PD [IOVA]]
  const int access = access_of(word[3]);
  Memory memory;
  memory.size = number(word[2]);
  void* base = mmap(nullptr, memory.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) must(-1, "mmap");
  memory.base = static_cast<std::uint8_t*>(base);
  ibv_pd* pd = find(g_target.pds, word.size() > 4 ? word[4] : "pd");
  memory.address = reinterpret_cast<std::uint64_t>(base);
  if (word.size() > 5) {
    memory.address = number(word[5]);
    memory.mr = ibv_reg_mr_iova(pd, base, memory.size, memory.address, static_cast<unsigned>(access));
  } else {
    memory.mr = ibv_reg_mr(pd, base, memory.size, access);
  }
  if (memory.mr == nullptr) {
    const int error = errno;
    munmap(base, memory.size);
    must(error, "reg_mr");
  }
  g_target.memories[word[1]] = memory;
  say("ok addr=0x%" PRIx64 " lkey=0x%x rkey=0x%x", memory.address, memory.mr->lkey, memory.mr->rkey);
}

void dereg(const Words& word) {  // dereg NAME
  Memory& memory = find(g_target.memories, word[1]);
  must(ibv_dereg_mr(memory.mr), "dereg_mr");
  memory.mr = nullptr;
  say("ok");
}

void rereg(const Words& word) {  // rereg NAME ACCESS: other rights for the same memory
  must(ibv_rereg_mr(find(g_target.memories, word[1]).mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                    access_of(word[2])),
       "rereg_mr");
  say("ok");
}

void unmap(const Words& word) {  // unmap NAME: the memory goes while it is registered; no other takes its place
  Memory& memory = find(g_target.memories, word[1]);
  void* const hole = mmap(memory.base, memory.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (hole == MAP_FAILED) must(-1, "mmap");
  say("ok");
}

void add_mw(const Words& word) {  // mw NAME TYPE(1|2) [PD]
  ibv_pd* pd = find(g_target.pds, word.size() > 3 ? word[3] : "pd");
  ibv_mw* mw = made(ibv_alloc_mw(pd, word[2] == "1" ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2), "alloc_mw");
  g_target.windows[word[1]] = mw;
  say("ok rkey=0x%x", mw->rkey);
}

void free_mw(const Words& word) {  // mw_free NAME
  ibv_mw* mw = find(g_target.windows, word[1]);
  must(ibv_dealloc_mw(mw), "dealloc_mw");
  g_target.windows.erase(word[1]);
  say("ok");
}

// mw_bind CONNECTION WR_ID NAME MEMORY OFFSET LENGTH ACCESS(rwa0): 0 for tagged offsets from zero; length 0 ends the
// binding of a window of type 1. Says the new STag.
void bind_mw(const Words& word) {
  ibv_qp* qp = queue_pair(word[1]);
  ibv_mw* mw = find(g_target.windows, word[3]);
  const Memory& memory = find(g_target.memories, word[4]);
  const ibv_mw_bind_info info{memory.mr, memory.address + number(word[5]), number(word[6]),
                              static_cast<unsigned>(access_of(word[7]))};
  if (mw->type == IBV_MW_TYPE_1) {
    ibv_mw_bind bind{number(word[2]), IBV_SEND_SIGNALED, info};
    must(ibv_bind_mw(qp, mw, &bind), "bind_mw");
  } else {
    ibv_send_wr request{}, *bad = nullptr;
    request.wr_id = number(word[2]);
    request.opcode = IBV_WR_BIND_MW;
    request.send_flags = IBV_SEND_SIGNALED;
    request.bind_mw = {mw, ibv_inc_rkey(mw->rkey), info};
    must(ibv_post_send(qp, &request, &bad), "post_send");
    mw->rkey = request.bind_mw.rkey;
  }
  say("ok rkey=0x%x", mw->rkey);
}

void fill(const Words& word) {  // fill NAME SEED: octet i is (seed + i) mod 251
  Memory& memory = find(g_target.memories, word[1]);
  std::size_t value = number(word[2]) % 251;
  for (std::size_t i = 0; i < memory.size; ++i, value = value == 250 ? 0 : value + 1)
    memory.base[i] = static_cast<std::uint8_t>(value);
  say("ok");
}

void poke(const Words& word) {  // poke NAME OFFSET HEX
  const auto octets = from_hex(word[3]);
  std::memcpy(span_of(word[1], number(word[2]), octets.size()), octets.data(), octets.size());
  say("ok");
}

void dump(const Words& word) {  // dump NAME OFFSET LENGTH
  const std::size_t length = number(word[3]);
  say("ok %s", to_hex(span_of(word[1], number(word[2]), length), length).c_str());
}

void read_file(const Words& word) {  // file PATH: its first line
  std::ifstream file(word[1]);
  std::string line;
  if (!std::getline(file, line)) throw std::runtime_error("0 cannot be read");
  say("ok %s", line.c_str());
}

void hash(const Words& word) {  // hash NAME OFFSET LENGTH
  const std::size_t length = number(word[3]);
  say("ok 0x%08x", crc32(span_of(word[1], number(word[2]), length), length));
}

void hammer(const Words& word) {  // hammer NAME OFFSET: until `rest`
  std::uint8_t* place = span_of(word[1], number(word[2]), sizeof(std::uint64_t));
  if (g_target.hammer.thread.joinable()) throw std::runtime_error("0 the hammer is busy");
  g_target.hammer.count = 0;
  g_target.hammer.thread = std::jthread([place](const std::stop_token& stop) {
    std::atomic_ref<std::uint64_t> value(*reinterpret_cast<std::uint64_t*>(place));
    for (; !stop.stop_requested(); ++g_target.hammer.count) value.fetch_add(1);
  });
  say("ok");
}

void rest(const Words&) {  // rest: says how often the hammer added
  if (!g_target.hammer.thread.joinable()) throw std::runtime_error("0 the hammer rests");
  g_target.hammer.thread.request_stop();
  g_target.hammer.thread.join();
  say("ok %" PRIu64, g_target.hammer.count);
}

}  // namespace

std::span<const Command> memory_commands() {
  static constexpr Command kCommands[] = {
      {"open", 2, open_device}, {"pd", 2, add_pd},       {"mr", 4, add_mr},     {"dereg", 2, dereg},
      {"fill", 3, fill},        {"rereg", 3, rereg},     {"unmap", 2, unmap},   {"mw", 3, add_mw},
      {"mw_free", 2, free_mw},  {"mw_bind", 8, bind_mw}, {"poke", 4, poke},     {"dump", 4, dump},
      {"file", 2, read_file},   {"hash", 4, hash},       {"hammer", 3, hammer}, {"rest", 1, rest},
  };
  return kCommands;
}

}  // namespace target
