// SPDX-License-Identifier: MIT
// What the commands of uiw_wire_target share: the objects that it has made, by name, and the words of a command. The
// program has one thread, besides the one of Hammer.
#pragma once

#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace target {

using Words = std::vector<std::string>;

struct Memory {
  std::uint8_t* base = nullptr;
  std::size_t size = 0;
  ibv_mr* mr = nullptr;
  std::uint64_t address = 0;  // as SGEs and the peer name its first octet
};

struct Work {
  ibv_send_wr request{};
  std::vector<ibv_sge> list;
};

// A thread of the program that adds 1 to a word of memory all the time and knows of no adapter.
struct Hammer {
  std::uint64_t count = 0;
  std::jthread thread;
};

struct Target {
  rdma_event_channel* channel = nullptr;
  rdma_cm_id* anchor = nullptr;  // keeps the device
  ibv_context* verbs = nullptr;
  ibv_comp_channel* completions = nullptr;
  ibv_cq* cq = nullptr;
  std::map<std::string, ibv_pd*> pds;
  std::map<std::string, Memory> memories;
  std::map<std::string, ibv_mw*> windows;
  std::map<std::string, rdma_cm_id*> ids;
  std::map<std::string, ibv_qp*> datagram_qps;  // of type UD; their names are not those of ids
  std::map<std::string, ibv_ah*> address_handles;
  std::vector<Work> chain;  // waits for the work that is posted with it
  Hammer hammer;
  int calls = 0;
  int notify = 0;  // what ibv_req_notify_cq is told: 1 solicited only
  bool spin = false;
  bool done = false;
};
extern Target g_target;

// A line on standard output.
__attribute__((format(printf, 1, 2))) void say(const char* format, ...);

// A call that says 0, or a positive errno, or -1 with errno.
void must(int result, const char* call);

template <class T>
T* made(T* object, const char* call) {
  if (object == nullptr) must(-1, call);
  return object;
}

template <class Map>
auto& find(Map& map, const std::string& name) {
  const auto at = map.find(name);
  if (at == map.end()) throw std::runtime_error("0 nothing is called " + name);
  return at->second;
}

std::uint64_t number(const std::string& text);

// Octets as hexadecimal digits; "-" is none.
std::string to_hex(const std::uint8_t* octets, std::size_t count);
std::vector<std::uint8_t> from_hex(const std::string& text);

sockaddr_storage parse_address(const std::string& host, const std::string& port);
// The octets of a memory by name.
std::uint8_t* span_of(const std::string& name, std::size_t offset, std::size_t length);

// Asks for the next notification of the completion queue, unless it is polled all the time.
void arm();

// The queue pair of an id, or the one of type UD, that has this name.
ibv_qp* queue_pair(const std::string& name);

// The SGEs among the words, NAME:OFFSET:LENGTH each.
std::vector<ibv_sge> parse_sges(const Words& word, std::size_t first);
// NAME=NUMBER among the words; 0 where it is missing.
std::uint64_t value_of(const Words& word, std::string_view name);
unsigned flags_of(const std::string& letters);
// Posts the work, together with what waits in `chain`, or lets it wait there too: where `flags` has a c.
void post_work(ibv_qp* qp, Work work, const std::string& flags);

struct Command {
  const char* name;
  std::size_t words;  // at least, with its name
  void (*run)(const Words&);
};
// Each ends with a line "ok ...", or throws what becomes a line "error ...".
std::span<const Command> memory_commands();
std::span<const Command> connection_commands();
std::span<const Command> work_commands();
std::span<const Command> datagram_commands();

}  // namespace target
