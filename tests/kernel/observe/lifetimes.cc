// SPDX-License-Identifier: MIT
// What close, fork and exit do to what a process has made, and to its peer.
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "tests/kernel/observe/pair.h"

namespace observe {
namespace {

// Another context of the same device.
ibv_context* opened(const Device& device) { return ibv_open_device(device.context->device); }

void closes(const Device& device) {
  ibv_context* context = opened(device);
  say("lifetimes: the device is opened again", made(context));
  if (context == nullptr) return;
  ibv_pd* const pd = ibv_alloc_pd(context);
  ibv_cq* const cq = ibv_create_cq(context, 8, nullptr, nullptr, 0);
  char memory[64] = {};
  ibv_mr* const mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  ibv_qp_init_attr attributes = qp_attributes(device);
  attributes.send_cq = attributes.recv_cq = cq;
  ibv_qp* const qp = ibv_create_qp(pd, &attributes);
  say("lifetimes: objects of it", mr != nullptr && qp != nullptr ? "made" : "not made");

  // Objects of one context are nothing to the other.
  ibv_qp_init_attr mixed = qp_attributes(device);
  mixed.send_cq = mixed.recv_cq = cq;
  ibv_qp* const of_both = ibv_create_qp(device.pd, &mixed);
  say("lifetimes: a queue pair with a CQ of another context", of_both != nullptr ? "made" : "refused");
  if (of_both != nullptr) ibv_destroy_qp(of_both);

  say("lifetimes: the context is closed with all of its objects", result(ibv_close_device(context)));
  context = opened(device);
  say("lifetimes: the device is opened after that", made(context));
  if (context == nullptr) return;
  ibv_pd* const again = ibv_alloc_pd(context);
  say("lifetimes: a domain after that", made(again));
  ibv_dealloc_pd(again);
  say("lifetimes: it is closed", result(ibv_close_device(context)));
}

// What the child says on its way; nothing if it dies.
std::string in_child(const std::function<std::string()>& act) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string said = act();
    static_cast<void>(!::write(ends[1], said.data(), said.size()));
    ::_exit(0);
  }
  ::close(ends[1]);
  char text[256] = {};
  const ssize_t size = ::read(ends[0], text, sizeof text - 1);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return "died by signal " + std::to_string(WTERMSIG(status));
  return size > 0 ? text : "nothing";
}

bool exchange(Pair& pair) {
  const ibv_sge piece{reinterpret_cast<std::uint64_t>(pair.peers.data()), 8, pair.peers_mr->lkey};
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  if (post_receive(pair.far->qp, piece) != 0 || post(pair.near->qp, request) != 0) return false;
  const auto sent = Pair::next(pair.near_cq), came = Pair::next(pair.far_cq);
  return sent && came && sent->status == IBV_WC_SUCCESS && came->status == IBV_WC_SUCCESS;
}

void forks(const Device& device) {
  const auto child = [](const std::string& what, const std::function<std::string()>& act) {
    say("lifetimes: in a child, " + what, in_child(act));
  };
  child("ibv_query_device", [&] {
    ibv_device_attr attributes{};
    return result(ibv_query_device(device.context, &attributes));
  });
  child("ibv_query_port", [&] {
    ibv_port_attr attributes{};
    return result(ibv_query_port(device.context, 1, &attributes));
  });
  child("a domain", [&] { return made(ibv_alloc_pd(device.context)); });
  child("a CQ", [&] { return made(ibv_create_cq(device.context, 8, nullptr, nullptr, 0)); });
  child("a region and a domain", [&] {
    static char memory[64];
    ibv_pd* const pd = ibv_alloc_pd(device.context);
    ibv_mr* const mr = pd != nullptr ? ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE) : nullptr;
    return made(mr) + ", destroyed " + result(mr != nullptr ? ibv_dereg_mr(mr) : 0) + ", " + result(ibv_dealloc_pd(pd));
  });
  child("the device is opened", [&] {
    ibv_context* const context = opened(device);
    return made(context) + ", closed " + result(context != nullptr ? ibv_close_device(context) : 0);
  });
  child("a list of devices", [] {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    if (list != nullptr) ibv_free_device_list(list);
    return count > 0 ? "some" : "none";
  });
  Pair pair(device);
  if (!pair.connected()) return say("lifetimes: a connection", "none");
  say("lifetimes: a message", exchange(pair) ? "comes" : "does not");
  in_child([] { return std::string("-"); });
  say("lifetimes: a message after a child has ended", exchange(pair) ? "comes" : "does not");
  const pid_t exits = ::fork();
  if (exits == 0) ::exit(0);
  ::waitpid(exits, nullptr, 0);
  say("lifetimes: a message after a child has ended by exit()", exchange(pair) ? "comes" : "does not");
  const pid_t lives = ::fork();
  if (lives == 0) {
    ::pause();
    ::_exit(0);
  }
  say("lifetimes: a message while a child lives", exchange(pair) ? "comes" : "does not");
  ::kill(lives, SIGKILL);
  ::waitpid(lives, nullptr, 0);
}

// A process ends without having destroyed anything, and its peer is told.
void ends(const Device& device) {
  for (const bool exits : {false, true}) {
    Pair pair(device);
    if (!pair.connected()) return say("lifetimes: a connection", "none");
    const std::string said = in_child([&]() -> std::string {
      Pair own(device);
      if (!own.connected()) return "no connection";
      if (exits) std::exit(0);
      return "connection";
    });
    say(std::string("lifetimes: a child makes a connection and ends by ") + (exits ? "exit()" : "_exit()"), said);
    say("lifetimes: a message of the parent after that", exchange(pair) ? "comes" : "does not");
  }
}

}  // namespace

void observe_lifetimes(const Device& device) {
  closes(device);
  forks(device);
  ends(device);
}

}  // namespace observe
