// SPDX-License-Identifier: MIT
// The commands that make the device and memory, and look into it.
#include <fcntl.h>
#include <sys/mman.h>

#include <atomic>
#include <cinttypes>
#include <cstring>

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

void add_mr(const Words& word) {  // mr NAME SIZE ACCESS(lrwa) [PD [IOVA]]
  int access = 0;
  for (const char letter : word[3])
    access |= letter == 'l'   ? IBV_ACCESS_LOCAL_WRITE
              : letter == 'r' ? IBV_ACCESS_REMOTE_READ
              : letter == 'w' ? IBV_ACCESS_REMOTE_WRITE
              : letter == 'a' ? IBV_ACCESS_REMOTE_ATOMIC
                              : 0;
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
      {"open", 2, open_device}, {"pd", 2, add_pd}, {"mr", 4, add_mr}, {"dereg", 2, dereg},   {"fill", 3, fill},
      {"poke", 4, poke},        {"dump", 4, dump}, {"hash", 4, hash}, {"hammer", 3, hammer}, {"rest", 1, rest},
  };
  return kCommands;
}

}  // namespace target
