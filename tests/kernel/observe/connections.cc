// SPDX-License-Identifier: MIT
// rdma_cm: what calls return in each state of an identifier; and the events of connections that are made, refused and
// ended, with what they carry.
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "tests/kernel/observe/observe.h"

namespace observe {
namespace {

constexpr int kQuiet = 400, kPatience = 10'000;  // milliseconds without an event, and until one comes
constexpr int kTimeWait = 5000;                  // longer than a queue pair is in the time wait

// A listener and a caller, and the identifier that the listener gives; their events come by one channel.
class Stage {
 public:
  explicit Stage(const Device& device) : device_(device), channel_(rdma_create_event_channel()) {
    rdma_create_id(channel_, &listener, nullptr, RDMA_PS_TCP);
    rdma_create_id(channel_, &caller, nullptr, RDMA_PS_TCP);
  }
  ~Stage() {
    end(called);  // before the caller, whose queue pair siw would keep until the answer is overdue
    end(caller);
    end(listener);
    rdma_destroy_event_channel(channel_);
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  static void end(rdma_cm_id*& id) {
    if (id == nullptr) return;
    if (id->qp != nullptr) rdma_destroy_qp(id);
    rdma_destroy_id(id);
    id = nullptr;
  }
  int bind(rdma_cm_id* id, std::uint16_t port = 0) const {
    sockaddr_in address = device_.address;
    address.sin_port = htons(port);
    return rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address));
  }
  int resolve(rdma_cm_id* id) const {
    sockaddr_in to = device_.address;
    to.sin_port = listener != nullptr ? rdma_get_src_port(listener) : htons(kPort);
    return rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 2000);
  }
  int make_queue_pair(rdma_cm_id* id) const {
    ibv_qp_init_attr attributes = qp_attributes(device_);
    return rdma_create_qp(id, device_.pd, &attributes);
  }
  static rdma_conn_param parameters(const std::vector<char>& data, std::uint8_t reads) {
    rdma_conn_param all{};
    all.private_data = data.data();
    all.private_data_len = static_cast<std::uint8_t>(data.size());
    all.responder_resources = all.initiator_depth = reads;
    all.retry_count = all.rnr_retry_count = 7;
    return all;
  }
  int connect(const std::vector<char>& data = {}, std::uint8_t reads = 1) const {
    rdma_conn_param all = parameters(data, reads);
    return rdma_connect(caller, &all);
  }
  int accept(const std::vector<char>& data = {}, std::uint8_t reads = 1) const {
    make_queue_pair(called);
    rdma_conn_param all = parameters(data, reads);
    return rdma_accept(called, &all);
  }

  // The steps of a connection, each after those before it.
  bool listen() const { return bind(listener) == 0 && rdma_listen(listener, 4) == 0; }
  bool resolve() { return listen() && resolve(caller) == 0 && next(kPatience); }
  bool route() { return resolve() && rdma_resolve_route(caller, 2000) == 0 && next(kPatience); }
  bool call() { return route() && make_queue_pair(caller) == 0 && connect() == 0 && next(kPatience); }
  bool establish() { return call() && accept() == 0 && next(kPatience) && next(kPatience); }

  // The events that come until none comes for a while: those of the caller, and then those of the others, since the
  // order of these is by chance.
  std::string events(int quiet = kQuiet) {
    std::vector<std::string> all;
    for (int patience = kPatience; next(patience); patience = quiet) all.push_back(last);
    std::stable_partition(all.begin(), all.end(), [](const std::string& one) { return one.starts_with("caller"); });
    std::string text;
    for (const std::string& one : all) text += (text.empty() ? "" : ", ") + one;
    return text.empty() ? "none" : text;
  }
  // Puts the next event into `last`, and what it carries into `conn` and `carried`.
  bool next(int patience) {
    rdma_cm_event* event = nullptr;
    pollfd waits{channel_->fd, POLLIN, 0};
    if (poll(&waits, 1, patience) != 1 || rdma_get_cm_event(channel_, &event) != 0) return false;
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) called = event->id;
    last = event->id == caller ? "caller " : event->id == called ? "called " : "listener ";
    last += rdma_event_str(event->event) + std::strlen("RDMA_CM_EVENT_");
    if (event->status != 0) last += " (status " + std::to_string(event->status) + ")";
    conn = event->param.conn;
    const auto* const octets = static_cast<const char*>(conn.private_data);
    carried.assign(octets, octets + (octets != nullptr ? conn.private_data_len : 0));
    rdma_ack_cm_event(event);
    return true;
  }

  rdma_cm_id* listener = nullptr;
  rdma_cm_id* caller = nullptr;
  rdma_cm_id* called = nullptr;
  std::string last;
  rdma_conn_param conn{};
  std::vector<char> carried;

 private:
  const Device& device_;
  rdma_event_channel* channel_;
};

// ---- Calls in each state ----

struct State {
  const char* name;
  bool (*reach)(Stage&);
};
constexpr State kStates[] = {
    {"new", [](Stage&) { return true; }},
    {"bound", [](Stage& stage) { return stage.bind(stage.caller) == 0; }},
    {"listening", [](Stage& stage) { return stage.bind(stage.caller) == 0 && rdma_listen(stage.caller, 1) == 0; }},
    {"with an address", [](Stage& stage) { return stage.resolve(); }},
    {"with a route", [](Stage& stage) { return stage.route(); }},
    {"calling", [](Stage& stage) { return stage.call(); }},
    {"connected", [](Stage& stage) { return stage.establish(); }},
    {"disconnected", [](Stage& stage) { return stage.establish() && rdma_disconnect(stage.caller) == 0; }},
};

struct Call {
  const char* name;
  int (*make)(Stage& stage, rdma_cm_id* id);
  bool needs_device = false;
};
constexpr Call kCalls[] = {
    {"rdma_bind_addr", [](Stage& stage, rdma_cm_id* id) { return stage.bind(id); }},
    {"rdma_resolve_addr", [](Stage& stage, rdma_cm_id* id) { return stage.resolve(id); }},
    {"rdma_resolve_route", [](Stage&, rdma_cm_id* id) { return rdma_resolve_route(id, 2000); }, true},
    {"rdma_listen", [](Stage&, rdma_cm_id* id) { return rdma_listen(id, 1); }},
    {"rdma_create_qp", [](Stage& stage, rdma_cm_id* id) { return stage.make_queue_pair(id); }, true},
    {"rdma_connect", [](Stage& stage, rdma_cm_id*) { return stage.connect(); }, true},
    {"rdma_accept",
     [](Stage&, rdma_cm_id* id) {
       rdma_conn_param all = Stage::parameters({}, 1);
       return rdma_accept(id, &all);
     },
     true},
    {"rdma_reject", [](Stage&, rdma_cm_id* id) { return rdma_reject(id, nullptr, 0); }},
    {"rdma_disconnect", [](Stage&, rdma_cm_id* id) { return rdma_disconnect(id); }},
    {"rdma_notify", [](Stage&, rdma_cm_id* id) { return rdma_notify(id, IBV_EVENT_COMM_EST); }},
    {"rdma_set_option of the type of service",
     [](Stage&, rdma_cm_id* id) {
       std::uint8_t value = 0x20;
       return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &value, sizeof value);
     }},
    {"rdma_set_option of the reuse of addresses",
     [](Stage&, rdma_cm_id* id) {
       int value = 1;
       return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &value, sizeof value);
     }},
    {"rdma_set_option of IPv6 alone",
     [](Stage&, rdma_cm_id* id) {
       int value = 1;
       return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &value, sizeof value);
     }},
    {"rdma_set_option of the ACK timeout",
     [](Stage&, rdma_cm_id* id) {
       std::uint8_t value = 14;
       return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &value, sizeof value);
     }},
    {"rdma_set_option of a level that is none",
     [](Stage&, rdma_cm_id* id) {
       int value = 1;
       return rdma_set_option(id, 7, RDMA_OPTION_ID_TOS, &value, sizeof value);
     }},
    {"rdma_set_option of a name that is none",
     [](Stage&, rdma_cm_id* id) {
       int value = 1;
       return rdma_set_option(id, RDMA_OPTION_ID, 77, &value, sizeof value);
     }},
    {"rdma_set_option of a wrong length",
     [](Stage&, rdma_cm_id* id) {
       int value = 1;
       return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &value, 2);
     }},
    {"rdma_get_src_port", [](Stage&, rdma_cm_id* id) { return rdma_get_src_port(id) != 0 ? 1 : 0; }},
    {"rdma_get_dst_port", [](Stage&, rdma_cm_id* id) { return rdma_get_dst_port(id) != 0 ? 1 : 0; }},
};

void calls(const Device& device) {
  for (const State& state : kStates) {
    for (const Call& call : kCalls) {
      Stage stage(device);
      const std::string what = std::string("connections: ") + call.name + " of an identifier that is " + state.name;
      if (!state.reach(stage)) {
        say(what, "not reached");
        continue;
      }
      if (stage.caller->verbs == nullptr && call.needs_device) continue;  // librdmacm would end the program by SIGSEGV
      errno = 0;
      say(what, result(call.make(stage, stage.caller)));
    }
  }
}

// ---- Connections ----

std::string what_came(const Stage& stage, std::size_t given) {
  const bool same = stage.carried.size() >= given &&
                    std::all_of(stage.carried.begin(), stage.carried.begin() + static_cast<std::ptrdiff_t>(given),
                                [](char octet) { return octet == 'x'; });
  return std::to_string(stage.carried.size()) + " octets" + (same ? "" : ", others than were given");
}

// How much private data a call takes, and what of it arrives.
void private_data(const Device& device) {
  for (const std::size_t size : {0, 1, 55, 56, 57, 148, 196, 197, 224, 255}) {
    const std::string what = "connections: with " + std::to_string(size) + " octets of private data, ";
    Stage stage(device);
    const std::vector<char> data(size, 'x');
    if (!stage.route() || stage.make_queue_pair(stage.caller) != 0) return say(what, "no route");
    const int error = stage.connect(data);
    say(what + "rdma_connect", result(error));
    if (error != 0 || !stage.next(kPatience)) continue;
    say(what + "the request has", what_came(stage, size));
  }
  for (const std::size_t size : {0, 1, 147, 148, 149, 196, 197, 255}) {
    const std::string what = "connections: with " + std::to_string(size) + " octets of private data, ";
    const std::vector<char> data(size, 'x');
    {
      Stage stage(device);
      if (!stage.call()) return say(what, "no call");
      const int error = stage.accept(data);
      say(what + "rdma_accept", result(error));
      while (error == 0 && stage.next(kPatience) && !stage.last.starts_with("caller")) {
      }
      if (error == 0) say(what + "the answer", stage.last + ", " + what_came(stage, size));
    }
    Stage stage(device);
    if (!stage.call()) return say(what, "no call");
    const int error = rdma_reject(stage.called, data.data(), static_cast<std::uint8_t>(size));
    say(what + "rdma_reject", result(error));
    if (error == 0 && stage.next(kPatience)) say(what + "the refusal", stage.last + ", " + what_came(stage, size));
  }
}

void parameters(const Device& device) {
  for (const unsigned reads : {0U, 1U, 2U, 16U, 255U}) {
    const std::string what = "connections: with " + std::to_string(reads) + " Reads at once, ";
    Stage stage(device);
    if (!stage.route() || stage.make_queue_pair(stage.caller) != 0) return say(what, "no route");
    const int error = stage.connect({}, static_cast<std::uint8_t>(reads));
    say(what + "rdma_connect", result(error));
    if (error != 0 || !stage.next(kPatience)) continue;
    const auto pair = [&] {
      return std::to_string(stage.conn.responder_resources) + " and " + std::to_string(stage.conn.initiator_depth);
    };
    say(what + "the request has", pair());
    const int accepted = stage.accept({}, static_cast<std::uint8_t>(reads));
    say(what + "rdma_accept", result(accepted));
    while (accepted == 0 && stage.next(kPatience) && !stage.last.starts_with("caller")) {
    }
    if (accepted == 0) say(what + "the answer", stage.last + ", " + pair());
  }
}

void events(const Device& device) {
  const auto shown = [&](const std::string& what, bool (Stage::*reach)(), const std::function<int(Stage&)>& act,
                         int quiet = kQuiet) {
    Stage stage(device);
    const std::string done = "connections: " + what;
    if (!(stage.*reach)()) return say(done, "not reached");
    const int error = act(stage);
    say(done, result(error) + "; " + stage.events(quiet));
  };
  shown("the called end accepts", &Stage::call, [](Stage& stage) { return stage.accept(); });
  shown("the called end refuses", &Stage::call, [](Stage& stage) { return rdma_reject(stage.called, nullptr, 0); });
  shown("the called end is destroyed before it has answered", &Stage::call, [](Stage& stage) {
    Stage::end(stage.called);
    return 0;
  });
  shown("the listener is destroyed before the called end has answered", &Stage::call, [](Stage& stage) {
    Stage::end(stage.listener);
    return stage.accept();
  });
  shown("the caller is destroyed before it has an answer", &Stage::call, [](Stage& stage) {
    Stage::end(stage.caller);
    return 0;
  });
  shown("the called end accepts after the caller was destroyed", &Stage::call, [](Stage& stage) {
    Stage::end(stage.caller);
    stage.next(kQuiet);
    return stage.accept();
  });
  shown("the caller disconnects before it has an answer", &Stage::call,
        [](Stage& stage) { return rdma_disconnect(stage.caller); });
  shown("the caller disconnects", &Stage::establish, [](Stage& stage) { return rdma_disconnect(stage.caller); });
  shown("the called end disconnects", &Stage::establish, [](Stage& stage) { return rdma_disconnect(stage.called); });
  const auto disconnect_both = [](Stage& stage) {
    rdma_disconnect(stage.caller);
    return rdma_disconnect(stage.called);
  };
  shown("both ends disconnect", &Stage::establish, disconnect_both);
  shown("both ends disconnect, and stay there", &Stage::establish, disconnect_both, kTimeWait);
  shown("the caller disconnects, and the called end when it has been told", &Stage::establish, [](Stage& stage) {
    rdma_disconnect(stage.caller);
    while (stage.next(kPatience) && !stage.last.starts_with("called")) {
    }
    return rdma_disconnect(stage.called);
  });
  shown("the caller disconnects twice", &Stage::establish, [](Stage& stage) {
    rdma_disconnect(stage.caller);
    return rdma_disconnect(stage.caller);
  });
  shown("the caller's queue pair goes to ERR", &Stage::establish,
        [](Stage& stage) { return to_error(stage.caller->qp); });
  shown("the caller's queue pair is destroyed", &Stage::establish, [](Stage& stage) {
    rdma_destroy_qp(stage.caller);
    return 0;
  });
  shown("the caller is destroyed", &Stage::establish, [](Stage& stage) {
    Stage::end(stage.caller);
    return 0;
  });
  shown("nobody listens", &Stage::route, [](Stage& stage) {
    Stage::end(stage.listener);
    stage.make_queue_pair(stage.caller);
    return stage.connect();
  });
  shown("the caller has no queue pair", &Stage::route, [](Stage& stage) { return stage.connect(); });
}

void addresses(const Device& device) {
  const auto resolved = [&](const std::string& what, const char* text, int family = AF_INET) {
    Stage stage(device);
    sockaddr_in to = address_of(text, kPort);
    to.sin_family = static_cast<sa_family_t>(family);
    const int error = rdma_resolve_addr(stage.caller, nullptr, reinterpret_cast<sockaddr*>(&to), 500);
    say("connections: rdma_resolve_addr of " + what, result(error) + (error == 0 ? "; " + stage.events() : ""));
  };
  resolved("an address without a device", "127.0.0.1");
  resolved("0.0.0.0", "0.0.0.0");
  resolved("the broadcast address", "255.255.255.255");
  resolved("a family that is none", "127.0.0.1", 77);
  const auto bound = [&](const std::string& what, const char* text, std::uint16_t port, int family = AF_INET) {
    Stage stage(device);
    sockaddr_in to = address_of(text, port);
    to.sin_family = static_cast<sa_family_t>(family);
    const int error = rdma_bind_addr(stage.caller, reinterpret_cast<sockaddr*>(&to));
    say("connections: rdma_bind_addr to " + what,
        result(error) + (stage.caller->verbs != nullptr ? ", with a device" : ", without a device"));
  };
  bound("0.0.0.0", "0.0.0.0", 0);
  bound("an address of nobody", "192.0.2.77", 0);
  bound("a family that is none", "0.0.0.0", 0, 77);
  Stage stage(device);
  stage.bind(stage.listener, kPort);
  say("connections: a port that another identifier has", result(stage.bind(stage.caller, kPort)));
  say("connections: rdma_listen on the first of these", result(rdma_listen(stage.listener, 1)));
}

}  // namespace

void observe_connections(const Device& device) {
  calls(device);
  private_data(device);
  parameters(device);
  events(device);
  addresses(device);
}

}  // namespace observe
