// SPDX-License-Identifier: MIT
// The system under test of the wire tests: a stock verbs and rdma_cm program that does what it is told on
// standard input, one command a line, and says on standard output what came of it: one line "ok ..." or
// "error ..." for each command, and unasked "event", "async" and "wc" lines for what the libraries report.
// See kCommands at the end.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

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
  std::map<std::string, rdma_cm_id*> ids;
  std::vector<Work> chain;  // waits for the work that is posted with it
  Hammer hammer;
  int calls = 0;
  int notify = 0;  // what ibv_req_notify_cq is told: 1 solicited only
  bool spin = false;
  bool done = false;
} target;

__attribute__((format(printf, 1, 2))) void say(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::putchar('\n');
  std::fflush(stdout);
}

// A call that says 0, or a positive errno, or -1 with errno.
void must(int result, const char* call) {
  if (result == 0) return;
  const int error = result > 0 ? result : errno;
  throw std::runtime_error(std::to_string(error) + " " + call + " " + std::strerror(error));
}

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

std::uint64_t number(const std::string& text) { return std::strtoull(text.c_str(), nullptr, 0); }

std::string to_hex(const std::uint8_t* octets, std::size_t count) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * count);
  for (std::size_t i = 0; i < count; ++i) {
    text += digits[octets[i] >> 4];
    text += digits[octets[i] & 15];
  }
  return text.empty() ? "-" : text;
}

std::vector<std::uint8_t> from_hex(const std::string& text) {
  std::vector<std::uint8_t> octets;
  if (text == "-") return octets;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    octets.push_back(static_cast<std::uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
  return octets;
}

std::uint32_t crc32(const std::uint8_t* octets, std::size_t count) {  // the one of zlib
  std::uint32_t crc = ~0U;
  for (std::size_t i = 0; i < count; ++i) {
    crc ^= octets[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0xEDB88320U & (0U - (crc & 1U)));
  }
  return ~crc;
}

sockaddr_storage parse_address(const std::string& host, const std::string& port) {
  sockaddr_storage storage{};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  const auto order = htons(static_cast<std::uint16_t>(number(port)));
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = order;
  } else if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = order;
  } else {
    throw std::runtime_error("0 no address: " + host);
  }
  return storage;
}

std::uint8_t* span_of(const std::string& name, std::size_t offset, std::size_t length) {
  Memory& memory = find(target.memories, name);
  if (offset > memory.size || length > memory.size - offset) throw std::runtime_error("0 outside of " + name);
  return memory.base + offset;
}

void arm() {
  if (target.cq != nullptr && !target.spin)
    must(ibv_req_notify_cq(target.cq, target.notify), "req_notify_cq");
}

void drain() {
  ibv_wc wc{};
  int count;
  while ((count = ibv_poll_cq(target.cq, 1, &wc)) == 1)
    say("wc %" PRIu64 " %d %d %u %u 0x%x 0x%x", wc.wr_id, static_cast<int>(wc.status),
        static_cast<int>(wc.opcode), wc.byte_len, wc.wc_flags, wc.qp_num,
        (wc.wc_flags & IBV_WC_WITH_IMM) != 0 ? ntohl(wc.imm_data) : wc.invalidated_rkey);
  must(count < 0 ? EIO : 0, "poll_cq");
}

// ---- commands ----

void open_device(const Words& word) {  // open ADDRESS
  must(rdma_create_id(target.channel, &target.anchor, nullptr, RDMA_PS_TCP), "create_id");
  sockaddr_storage address = parse_address(word[1], "0");
  must(rdma_bind_addr(target.anchor, reinterpret_cast<sockaddr*>(&address)), "bind_addr");
  target.verbs = made(target.anchor->verbs, "verbs");
  for (const int descriptor : {target.verbs->async_fd, target.channel->fd})
    must(fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK), "fcntl");
  target.pds["pd"] = made(ibv_alloc_pd(target.verbs), "alloc_pd");
  target.completions = made(ibv_create_comp_channel(target.verbs), "create_comp_channel");
  must(fcntl(target.completions->fd, F_SETFL, O_NONBLOCK), "fcntl");
  target.cq = made(ibv_create_cq(target.verbs, 4096, nullptr, target.completions, 0), "create_cq");
  arm();
  ibv_device_attr attributes{};
  must(ibv_query_device(target.verbs, &attributes), "query_device");
  say("ok device=%s max_mw=%d atomic=%d", ibv_get_device_name(target.verbs->device), attributes.max_mw,
      static_cast<int>(attributes.atomic_cap));
}

void add_pd(const Words& word) {  // pd NAME
  target.pds[word[1]] = made(ibv_alloc_pd(target.verbs), "alloc_pd");
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
  ibv_pd* pd = find(target.pds, word.size() > 4 ? word[4] : "pd");
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
  target.memories[word[1]] = memory;
  say("ok addr=0x%" PRIx64 " lkey=0x%x rkey=0x%x", memory.address, memory.mr->lkey, memory.mr->rkey);
}

void dereg(const Words& word) {  // dereg NAME
  Memory& memory = find(target.memories, word[1]);
  must(ibv_dereg_mr(memory.mr), "dereg_mr");
  memory.mr = nullptr;
  say("ok");
}

void fill(const Words& word) {  // fill NAME SEED: octet i is (seed + i) mod 251
  Memory& memory = find(target.memories, word[1]);
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
  if (target.hammer.thread.joinable()) throw std::runtime_error("0 the hammer is busy");
  target.hammer.count = 0;
  target.hammer.thread = std::jthread([place](const std::stop_token& stop) {
    std::atomic_ref<std::uint64_t> value(*reinterpret_cast<std::uint64_t*>(place));
    for (; !stop.stop_requested(); ++target.hammer.count) value.fetch_add(1);
  });
  say("ok");
}

void rest(const Words&) {  // rest: says how often the hammer added
  if (!target.hammer.thread.joinable()) throw std::runtime_error("0 the hammer rests");
  target.hammer.thread.request_stop();
  target.hammer.thread.join();
  say("ok %" PRIu64, target.hammer.count);
}

void listen(const Words& word) {  // listen NAME ADDRESS PORT
  rdma_cm_id*& id = target.ids[word[1]];
  must(rdma_create_id(target.channel, &id, nullptr, RDMA_PS_TCP), "create_id");
  sockaddr_storage address = parse_address(word[2], word[3]);
  must(rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address)), "bind_addr");
  must(rdma_listen(id, 64), "listen");
  say("ok %u", ntohs(rdma_get_src_port(id)));
}

void resolve(const Words& word) {  // resolve NAME ADDRESS PORT
  rdma_cm_id* id = nullptr;
  must(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), "create_id");
  target.ids[word[1]] = id;
  sockaddr_storage address = parse_address(word[2], word[3]);
  must(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&address), 5000), "resolve_addr");
  must(rdma_resolve_route(id, 5000), "resolve_route");
  must(rdma_migrate_id(id, target.channel), "migrate_id");
  say("ok");
}

void add_qp(const Words& word) {  // qp NAME [PD [SEND_WR [RECV_WR]]]
  rdma_cm_id* id = find(target.ids, word[1]);
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = target.cq;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = word.size() > 3 ? static_cast<std::uint32_t>(number(word[3])) : 64;
  attributes.cap.max_recv_wr = word.size() > 4 ? static_cast<std::uint32_t>(number(word[4])) : 64;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 8;
  attributes.cap.max_inline_data = 256;
  must(rdma_create_qp(id, find(target.pds, word.size() > 2 ? word[2] : "pd"), &attributes), "create_qp");
  say("ok 0x%x", id->qp->qp_num);
}

void connect_or_accept(const Words& word) {  // connect|accept NAME IRD ORD PRIVATE_DATA
  rdma_cm_id* id = find(target.ids, word[1]);
  const auto data = from_hex(word[4]);
  rdma_conn_param parameters{};
  parameters.responder_resources = static_cast<std::uint8_t>(number(word[2]));
  parameters.initiator_depth = static_cast<std::uint8_t>(number(word[3]));
  parameters.private_data = data.data();
  parameters.private_data_len = static_cast<std::uint8_t>(data.size());
  parameters.retry_count = parameters.rnr_retry_count = 7;
  if (word[0] == "connect")
    must(rdma_connect(id, &parameters), "connect");
  else
    must(rdma_accept(id, &parameters), "accept");
  say("ok");
}

void reject(const Words& word) {  // reject NAME PRIVATE_DATA
  const auto data = from_hex(word[2]);
  must(rdma_reject(find(target.ids, word[1]), data.data(), static_cast<std::uint8_t>(data.size())), "reject");
  say("ok");
}

void disconnect(const Words& word) {  // disconnect NAME
  must(rdma_disconnect(find(target.ids, word[1])), "disconnect");
  say("ok");
}

void destroy(const Words& word) {  // destroy NAME
  rdma_cm_id* id = find(target.ids, word[1]);
  target.ids.erase(word[1]);
  if (id->qp != nullptr) rdma_destroy_qp(id);
  must(rdma_destroy_id(id), "destroy_id");
  say("ok");
}

void state(const Words& word) {  // state NAME
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  must(ibv_query_qp(find(target.ids, word[1])->qp, &attributes, IBV_QP_STATE, &initial), "query_qp");
  say("ok %d", static_cast<int>(attributes.qp_state));
}

void fail(const Words& word) {  // fail NAME: the program moves its QP to ERR
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  must(ibv_modify_qp(find(target.ids, word[1])->qp, &attributes, IBV_QP_STATE), "modify_qp");
  say("ok");
}

std::vector<ibv_sge> parse_sges(const Words& word, std::size_t first) {  // NAME:OFFSET:LENGTH ...
  std::vector<ibv_sge> list;
  for (std::size_t i = first; i < word.size(); ++i) {
    if (word[i].find('=') != std::string::npos) continue;
    std::istringstream fields(word[i]);
    std::string name, offset, length;
    std::getline(fields, name, ':');
    std::getline(fields, offset, ':');
    std::getline(fields, length, ':');
    const Memory& memory = find(target.memories, name);
    list.push_back({memory.address + number(offset), static_cast<std::uint32_t>(number(length)),
                    memory.mr == nullptr ? 0 : memory.mr->lkey});
  }
  return list;
}

void recv(const Words& word) {  // recv NAME WR_ID [SGE...]
  auto list = parse_sges(word, 3);
  ibv_recv_wr request{}, *bad = nullptr;
  request.wr_id = number(word[2]);
  request.sg_list = list.data();
  request.num_sge = static_cast<int>(list.size());
  must(ibv_post_recv(find(target.ids, word[1])->qp, &request, &bad), "post_recv");
  say("ok");
}

// NAME=NUMBER among the words; 0 where it is missing.
std::uint64_t value_of(const Words& word, std::string_view name) {
  for (const std::string& one : word)
    if (one.size() > name.size() && one.starts_with(name) && one[name.size()] == '=')
      return number(one.substr(name.size() + 1));
  return 0;
}

ibv_wr_opcode opcode_of(const std::string& name) {
  if (name == "send") return IBV_WR_SEND;
  if (name == "send_inv") return IBV_WR_SEND_WITH_INV;
  if (name == "write") return IBV_WR_RDMA_WRITE;
  if (name == "write_imm") return IBV_WR_RDMA_WRITE_WITH_IMM;
  if (name == "read") return IBV_WR_RDMA_READ;
  if (name == "fetch_add") return IBV_WR_ATOMIC_FETCH_AND_ADD;
  if (name == "compare_swap") return IBV_WR_ATOMIC_CMP_AND_SWP;
  throw std::runtime_error("0 no operation " + name);
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
    case IBV_WR_SEND_WITH_INV:
      request.invalidate_rkey = rkey;
      break;
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
      if (request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
        request.imm_data = htonl(static_cast<std::uint32_t>(value_of(word, "imm")));
  }
  target.chain.push_back(std::move(work));
  if (word[4].find('c') != std::string::npos) return say("ok");
  std::vector<Work> chain = std::move(target.chain);
  target.chain.clear();
  for (std::size_t i = 0; i < chain.size(); ++i) {
    chain[i].request.sg_list = chain[i].list.data();
    chain[i].request.num_sge = static_cast<int>(chain[i].list.size());
    chain[i].request.next = i + 1 < chain.size() ? &chain[i + 1].request : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  must(ibv_post_send(find(target.ids, word[1])->qp, &chain.front().request, &bad), "post_send");
  say("ok");
}

void notify(const Words& word) {  // notify all|solicited
  target.notify = word[1] == "solicited";
  arm();
  say("ok");
}

void spin(const Words& word) {  // spin on|off: poll the CQ all the time, or sleep until it tells
  target.spin = word[1] == "on";
  arm();
  say("ok");
}

void quit(const Words&) {
  target.hammer.thread = {};
  while (!target.ids.empty()) {
    rdma_cm_id* id = target.ids.begin()->second;
    target.ids.erase(target.ids.begin());
    if (id->qp != nullptr) rdma_destroy_qp(id);
    must(rdma_destroy_id(id), "destroy_id");
  }
  for (auto& [name, memory] : target.memories) {
    if (memory.mr != nullptr) must(ibv_dereg_mr(memory.mr), "dereg_mr");
    munmap(memory.base, memory.size);
  }
  if (target.cq != nullptr) must(ibv_destroy_cq(target.cq), "destroy_cq");
  if (target.completions != nullptr)
    must(ibv_destroy_comp_channel(target.completions), "destroy_comp_channel");
  for (auto& [name, pd] : target.pds) must(ibv_dealloc_pd(pd), "dealloc_pd");
  if (target.anchor != nullptr) must(rdma_destroy_id(target.anchor), "destroy_id");
  rdma_destroy_event_channel(target.channel);
  target.done = true;
  say("ok");
}

struct Command {
  const char* name;
  std::size_t words;  // at least, with its name
  void (*run)(const Words&);
};
constexpr Command kCommands[] = {
    {"open", 2, open_device},
    {"pd", 2, add_pd},
    {"mr", 4, add_mr},
    {"dereg", 2, dereg},
    {"fill", 3, fill},
    {"poke", 4, poke},
    {"dump", 4, dump},
    {"hash", 4, hash},
    {"hammer", 3, hammer},
    {"rest", 1, rest},
    {"listen", 4, listen},
    {"resolve", 4, resolve},
    {"qp", 2, add_qp},
    {"connect", 5, connect_or_accept},
    {"accept", 5, connect_or_accept},
    {"reject", 3, reject},
    {"disconnect", 2, disconnect},
    {"destroy", 2, destroy},
    {"state", 2, state},
    {"fail", 2, fail},
    {"recv", 3, recv},
    {"post", 7, post},
    {"notify", 2, notify},
    {"spin", 2, spin},
    {"quit", 1, quit},
};

void obey(const std::string& line) {
  std::istringstream text(line);
  Words word;
  for (std::string one; text >> one;) word.push_back(one);
  if (word.empty()) return;
  say("> %.300s", line.c_str());
  try {
    for (const Command& command : kCommands)
      if (word[0] == command.name && word.size() >= command.words) return command.run(word);
    throw std::runtime_error("0 no such command");
  } catch (const std::exception& error) {
    say("error %s", error.what());
  }
}

// ---- what the libraries report ----

void tell_cm_event() {
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(target.channel, &event) != 0) return;
  std::string name = "?";
  if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
    name = "c" + std::to_string(++target.calls);
    target.ids[name] = event->id;
  } else {
    for (const auto& [key, id] : target.ids)
      if (id == event->id) name = key;
  }
  const auto& conn = event->param.conn;
  const bool told = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ||
                    event->event == RDMA_CM_EVENT_ESTABLISHED || event->event == RDMA_CM_EVENT_REJECTED;
  const std::string data =
      told && conn.private_data != nullptr
          ? to_hex(static_cast<const std::uint8_t*>(conn.private_data), conn.private_data_len)
          : "-";
  say("event %s %s %d %u %u %s", rdma_event_str(event->event) + std::strlen("RDMA_CM_EVENT_"), name.c_str(),
      event->status, told ? conn.responder_resources : 0U, told ? conn.initiator_depth : 0U, data.c_str());
  rdma_ack_cm_event(event);
}

void tell_async_event() {
  ibv_async_event event{};
  if (ibv_get_async_event(target.verbs, &event) != 0) return;
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
  while (ibv_get_cq_event(target.completions, &cq, &context) == 0) ++count;
  if (count == 0) return;
  ibv_ack_cq_events(target.cq, count);
  arm();
  drain();
}

void serve() {
  std::string input;
  while (!target.done) {
    pollfd descriptor[] = {{0, POLLIN, 0},
                           {target.channel->fd, POLLIN, 0},
                           {target.verbs != nullptr ? target.verbs->async_fd : -1, POLLIN, 0},
                           {target.completions != nullptr ? target.completions->fd : -1, POLLIN, 0}};
    if (poll(descriptor, 4, target.spin ? 0 : -1) < 0 && errno != EINTR) must(-1, "poll");
    if (descriptor[1].revents != 0) tell_cm_event();
    if (descriptor[2].revents != 0) tell_async_event();
    if (descriptor[3].revents != 0) tell_completions();
    if (target.spin) drain();
    if (descriptor[0].revents == 0) continue;
    char octets[65536];
    const ssize_t count = read(0, octets, sizeof octets);
    if (count <= 0) return;
    input.append(octets, static_cast<std::size_t>(count));
    for (std::size_t end; !target.done && (end = input.find('\n')) != std::string::npos;) {
      const std::string line = input.substr(0, end);
      input.erase(0, end + 1);
      obey(line);
    }
  }
}

}  // namespace

int main() {
  try {
    target.channel = made(rdma_create_event_channel(), "create_event_channel");
    serve();
  } catch (const std::exception& error) {
    say("error %s", error.what());
    return 1;
  }
  return target.done ? 0 : 1;
}
