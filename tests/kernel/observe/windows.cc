// SPDX-License-Identifier: MIT
// Memory windows: what binds, and what the peer may then do through them.
#include <functional>
#include <memory>

#include "tests/kernel/observe/pair.h"

namespace observe {
namespace {

constexpr unsigned kAll = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr int kBindable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | static_cast<int>(kAll);

// A connection whose far end has a region to bind windows to, and one window.
struct World {
  World(const Device& device, ibv_mw_type type, int access = kBindable) : pair(device) {
    if (!pair.connected()) return;
    region = ibv_reg_mr(pair.pd, pair.peers.data(), pair.peers.size(), access);
    window = ibv_alloc_mw(pair.pd, type);
  }
  ~World() {
    if (window != nullptr) ibv_dealloc_mw(window);
    if (region != nullptr) ibv_dereg_mr(region);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  bool ready() const { return region != nullptr && window != nullptr; }

  std::uint64_t at(std::uint64_t offset) const { return reinterpret_cast<std::uint64_t>(pair.peers.data()) + offset; }
  ibv_mw_bind_info part(std::uint64_t offset, std::uint64_t length, unsigned access = kAll) const {
    return {region, at(offset), length, access};
  }
  // The bind of the window's type, and how it completes.
  std::string bind(const ibv_mw_bind_info& info) {
    if (window->type == IBV_MW_TYPE_1) {
      ibv_mw_bind request{};
      request.send_flags = IBV_SEND_SIGNALED;
      request.bind_info = info;
      const int error = ibv_bind_mw(pair.far->qp, window, &request);
      return error != 0 ? "refused with " + result(error) : status_of(Pair::next(pair.far_cq));
    }
    ibv_send_wr request{};
    request.opcode = IBV_WR_BIND_MW;
    request.send_flags = IBV_SEND_SIGNALED;
    request.bind_mw = {window, ibv_inc_rkey(window->rkey), info};
    const std::string outcome = outcome_of(pair.far->qp, request);
    if (outcome == "success") window->rkey = request.bind_mw.rkey;
    return outcome;
  }
  std::string invalidate(std::uint32_t rkey) const {
    ibv_send_wr request{};
    request.opcode = IBV_WR_LOCAL_INV;
    request.send_flags = IBV_SEND_SIGNALED;
    request.invalidate_rkey = rkey;
    return outcome_of(pair.far->qp, request);
  }
  // The near end's request through the window.
  std::string access(ibv_wr_opcode opcode, std::uint64_t offset, std::uint32_t length, std::uint32_t rkey) {
    ibv_sge piece{reinterpret_cast<std::uint64_t>(pair.own.data()), length, pair.own_mr->lkey};
    ibv_send_wr request{};
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.wr.rdma = {at(offset), rkey};
    return outcome_of(pair.near->qp, request);
  }
  std::string write(std::uint64_t offset, std::uint32_t length) {
    return access(IBV_WR_RDMA_WRITE, offset, length, window->rkey);
  }

  Pair pair;
  ibv_mr* region = nullptr;
  ibv_mw* window = nullptr;
};

class Windows {
 public:
  Windows(const Device& device, ibv_mw_type type) : device_(device), type_(type) {}

  // In a connection of its own, since an error ends it.
  void look(const std::string& what, const std::function<std::string(World&)>& function, int access = kBindable) const {
    World world(device_, type_, access);
    const std::string name = std::string("windows: type ") + (type_ == IBV_MW_TYPE_1 ? "1" : "2") + ", " + what;
    say(name, world.ready() ? function(world) : "not ready");
  }
  void look_at_binds() const;
  void look_at_access() const;
  void look_at_ends() const;

 private:
  const Device& device_;
  const ibv_mw_type type_;
};

void Windows::look_at_binds() const {
  look("a bind", [](World& w) { return w.bind(w.part(0, 64)); });
  look("a bind of no octets", [](World& w) { return w.bind(w.part(0, 0, 0)); });
  look("a bind without rights", [](World& w) { return w.bind(w.part(0, 64, 0)); });
  look("a bind beyond the region", [](World& w) { return w.bind(w.part(4090, 64)); });
  look(
      "a bind to a region that cannot be bound to", [](World& w) { return w.bind(w.part(0, 64)); },
      kBindable & ~IBV_ACCESS_MW_BIND);
  look(
      "a bind for Writes to a region without local writing",
      [](World& w) { return w.bind(w.part(0, 64, IBV_ACCESS_REMOTE_WRITE)); },
      IBV_ACCESS_MW_BIND | IBV_ACCESS_REMOTE_READ);
  look(
      "a bind for Reads to a region without local writing",
      [](World& w) { return w.bind(w.part(0, 64, IBV_ACCESS_REMOTE_READ)); }, IBV_ACCESS_MW_BIND);
  look("a bind of the other type's window", [this](World& w) -> std::string {
    if (type_ == IBV_MW_TYPE_2) {
      ibv_mw_bind request{};
      request.bind_info = w.part(0, 64);
      return result(ibv_bind_mw(w.pair.far->qp, w.window, &request));
    }
    ibv_send_wr request{};
    request.opcode = IBV_WR_BIND_MW;
    request.send_flags = IBV_SEND_SIGNALED;
    request.bind_mw = {w.window, ibv_inc_rkey(w.window->rkey), w.part(0, 64)};
    return outcome_of(w.pair.far->qp, request);
  });
  look("a bind again", [](World& w) { return w.bind(w.part(0, 64)) + ", " + w.bind(w.part(64, 64)); });
  look("the key after a bind", [](World& w) -> std::string {
    const std::uint32_t before = w.window->rkey;
    w.bind(w.part(0, 64));
    if ((before ^ w.window->rkey) >> 8 != 0) return "of another window";
    return before == w.window->rkey ? "the same" : "another";
  });
}

void Windows::look_at_access() const {
  const auto bound = [this](const std::string& what, unsigned rights, const auto& function) {
    look(what, [&](World& w) { return w.bind(w.part(128, 64, rights)) != "success" ? "not bound" : function(w); });
  };
  bound("a Write", kAll, [](World& w) { return w.write(128, 64); });
  bound("a Read", kAll, [](World& w) { return w.access(IBV_WR_RDMA_READ, 128, 64, w.window->rkey); });
  bound("a Write beyond its end", kAll, [](World& w) { return w.write(128, 65); });
  bound("a Write before its begin", kAll, [](World& w) { return w.write(127, 1); });
  bound("a Write of no octets beyond its end", kAll, [](World& w) { return w.write(300, 0); });
  bound("a Write without the right", IBV_ACCESS_REMOTE_READ, [](World& w) { return w.write(128, 64); });
  bound("a Read without the right", IBV_ACCESS_REMOTE_WRITE,
        [](World& w) { return w.access(IBV_WR_RDMA_READ, 128, 64, w.window->rkey); });
  bound("a Write by another key of it", kAll,
        [](World& w) { return w.access(IBV_WR_RDMA_WRITE, 128, 64, ibv_inc_rkey(w.window->rkey)); });
  look("a Write before it is bound", [](World& w) { return w.write(0, 64); });
}

void Windows::look_at_ends() const {
  look("a Write after its deallocation", [](World& w) {
    w.bind(w.part(0, 64));
    const std::uint32_t rkey = w.window->rkey;
    const std::string gone = result(ibv_dealloc_mw(w.window));
    w.window = nullptr;
    return gone + ", " + w.access(IBV_WR_RDMA_WRITE, 0, 64, rkey);
  });
  look("its region is deregistered", [](World& w) {
    w.bind(w.part(0, 64));
    const int error = ibv_dereg_mr(w.region);
    if (error == 0) w.region = nullptr;
    return result(error);
  });
  if (type_ == IBV_MW_TYPE_1) {
    look("a Write after it is bound elsewhere", [](World& w) {
      w.bind(w.part(0, 64));
      const std::uint32_t rkey = w.window->rkey;
      w.bind(w.part(64, 64));
      return w.access(IBV_WR_RDMA_WRITE, 0, 64, rkey);
    });
    look("a Write after a bind of no octets", [](World& w) {
      w.bind(w.part(0, 64));
      const std::uint32_t rkey = w.window->rkey;
      return w.bind(w.part(0, 0, 0)) + ", " + w.access(IBV_WR_RDMA_WRITE, 0, 64, rkey);
    });
    return;
  }
  look("a local invalidation, and a Write", [](World& w) {
    w.bind(w.part(0, 64));
    return w.invalidate(w.window->rkey) + ", " + w.write(0, 64);
  });
  look("a local invalidation, and another bind", [](World& w) {
    w.bind(w.part(0, 64));
    const std::string gone = w.invalidate(w.window->rkey);
    return gone + ", " + w.bind(w.part(0, 64)) + ", " + w.write(0, 64);
  });
  look("a local invalidation by another key of it", [](World& w) {
    w.bind(w.part(0, 64));
    return w.invalidate(ibv_inc_rkey(w.window->rkey));
  });
  // rxe of Linux 6.1 follows a null pointer then, in the kernel.
  if (std::strncmp(ibv_get_device_name(device_.context->device), "rxe", 3) != 0)
    look("a local invalidation before it is bound", [](World& w) { return w.invalidate(w.window->rkey); });
  look("the peer's Send with invalidate, and a Write", [](World& w) -> std::string {
    w.bind(w.part(0, 64));
    post(w.pair.far->qp, ibv_recv_wr{});
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND_WITH_INV;
    request.send_flags = IBV_SEND_SIGNALED;
    request.invalidate_rkey = w.window->rkey;
    const std::string sent = outcome_of(w.pair.near->qp, request);
    if (sent.starts_with("refused")) return sent;
    const auto received = Pair::next(w.pair.far_cq);
    const bool told = received && (received->wc_flags & IBV_WC_WITH_INV) != 0;
    const bool right = told && received->invalidated_rkey == w.window->rkey;
    return sent + ", " + status_of(received) + (told ? " with " : " without ") + (right ? "the key, " : "key, ") +
           w.write(0, 64);
  });
}

}  // namespace

void observe_windows(const Device& device) {
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    ibv_mw* const window = ibv_alloc_mw(device.pd, type);
    say(std::string("windows: of type ") + (type == IBV_MW_TYPE_1 ? "1" : "2"), made(window));
    if (window == nullptr) continue;
    ibv_dealloc_mw(window);
    const Windows windows(device, type);
    windows.look_at_binds();
    windows.look_at_access();
    windows.look_at_ends();
  }
}

}  // namespace observe
