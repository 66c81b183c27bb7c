// SPDX-License-Identifier: MIT
// What a provider does with what a program asks for, a line each. Runs on the kernel's rxe and siw and on uiw, and what
// it prints there is compared (tests/kernel/differences.py).
//
// usage: uiw_observe SUBJECT ADDRESS [PEER]
//   PEER: of the subject "calls", the address of the process whose subject is "called"
#include "tests/kernel/observe/observe.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <vector>

namespace observe {

namespace {

template <typename Pointer>
Pointer needed(const char* what, Pointer pointer) {
  if (pointer != nullptr) return pointer;
  std::fprintf(stderr, "uiw_observe: %s: %s\n", what, std::strerror(errno));
  std::exit(2);
}

}  // namespace

sockaddr_in address_of(const char* text, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, text, &address.sin_addr);
  return address;
}

Device::Device(const char* text) : address(address_of(text)) {
  channel_ = needed("rdma_create_event_channel", rdma_create_event_channel());
  rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP);
  needed("rdma_create_id", id_);
  rdma_bind_addr(id_, reinterpret_cast<sockaddr*>(&address));
  context = needed("rdma_bind_addr", id_->verbs);
  pd = needed("ibv_alloc_pd", ibv_alloc_pd(context));
  cq = needed("ibv_create_cq", ibv_create_cq(context, 128, nullptr, nullptr, 0));
  ibv_query_device(context, &limits);
  ibv_gid wanted{};
  wanted.raw[10] = wanted.raw[11] = 0xFF;
  std::memcpy(wanted.raw + 12, &address.sin_addr, 4);
  for (std::uint8_t i = 0; i < 16; ++i) {
    ibv_gid one{};
    if (ibv_query_gid(context, 1, i, &one) != 0 || std::memcmp(&one, &wanted, sizeof one) != 0) continue;
    gid_index = i;
    break;
  }
  ibv_query_gid(context, 1, gid_index, &gid);
}

Device::~Device() {
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
  rdma_destroy_id(id_);
  rdma_destroy_event_channel(channel_);
}

std::string await_events(const Device& device, int quiet,
                         const std::function<std::string(const ibv_async_event&)>& text) {
  const int fd = device.context->async_fd;
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  std::vector<std::string> all;
  for (pollfd ready{fd, POLLIN, 0}; poll(&ready, 1, quiet) == 1;) {
    ibv_async_event event{};
    if (ibv_get_async_event(device.context, &event) != 0) break;
    all.push_back(text(event));
    ibv_ack_async_event(&event);
  }
  std::sort(all.begin(), all.end());
  std::string told;
  for (const std::string& one : all) told += (told.empty() ? "" : ", ") + one;
  return told.empty() ? "none" : told;
}

}  // namespace observe

int main(int argc, char** argv) {
  const std::map<std::string, void (*)(const observe::Device&)> subjects{
      {"called", observe::observe_called},       {"connections", observe::observe_connections},
      {"datagrams", observe::observe_datagrams}, {"events", observe::observe_events},
      {"interface", observe::observe_interface}, {"lifetimes", observe::observe_lifetimes},
      {"objects", observe::observe_objects},     {"posts", observe::observe_posts},
      {"steps", observe::observe_steps},         {"windows", observe::observe_windows}};
  const auto subject = argc == 3 ? subjects.find(argv[1]) : subjects.end();
  const bool calls = argc == 4 && std::strcmp(argv[1], "calls") == 0;
  if (subject == subjects.end() && !calls) {
    std::fprintf(stderr, "usage: uiw_observe SUBJECT ADDRESS [PEER]\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const observe::Device device(argv[2]);
  if (calls) {
    observe::observe_calls(device, observe::address_of(argv[3], observe::kPort));
  } else {
    subject->second(device);
  }
  return 0;
}
