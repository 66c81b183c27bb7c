// SPDX-License-Identifier: MIT
// Memory that is not to be had, at any place of a whole life of two queue pairs: each call works or says so, work
// completes with its octets or in error, and nothing is left behind.
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "provider/progress/progress_helpers.h"
#include "provider/verbs/srq.h"
#include "tests/unit/provider/memory/window_pair.h"
#include "tests/unit/provider/pair.h"
#include "tests/unit/provider/process/refusing_new.h"

using namespace uiw;
using namespace uiw::test;

namespace {

// Which allocation is refused: of the calls of one thread, or of the library's own threads.
enum class Whose { callers, service_threads };
struct Refusal {
  Whose whose = Whose::callers;
  long after = 0;         // so many are granted
  bool for_good = false;  // all behind it are refused too
};

thread_local bool is_program = false;  // no thread of the library
thread_local bool counts = false;      // inside a call of the library
thread_local bool count_for_good = false;
thread_local long count_left = 0;
std::atomic<bool> services_count{false}, services_for_good{false};
std::atomic<long> services_left{0};
std::atomic<unsigned> refused{0};

bool refuses(long left, bool for_good) {
  if (left > 0 || (left < 0 && !for_good)) return false;
  refused.fetch_add(1);
  return true;
}

}  // namespace

bool uiw::test::refuses_allocation() {
  if (is_program) return counts && refuses(count_left--, count_for_good);
  return services_count.load() && refuses(services_left.fetch_sub(1), services_for_good.load());
}

namespace {

struct Setting {
  bool crc = false;
  bool remote = false;
  bool shared = false;  // the receiver's queue
  bool leave = false;   // the queue pairs are left to the end of their device
};

// The life of two queue pairs on a thread of its own, to which all that a thread has once is new.
class Exchange {
 public:
  Exchange(const Setting& setting, std::shared_ptr<Context> context, std::pair<TcpStream, TcpStream> sockets)
      : setting_(setting), context_(std::move(context)), sockets_(std::move(sockets)) {
    // TCP takes parts of an FPDU at a time.
    for (const int fd : {sockets_.first.fd(), sockets_.second.fd()}) {
      const int small = 4608;
      ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    }
  }

  // What went wrong, or nothing.
  std::string run(const Refusal& refusal) {
    std::thread thread([this, refusal] {
      is_program = true;
      count_left = refusal.whose == Whose::callers ? refusal.after : -1;
      count_for_good = refusal.whose == Whose::callers && refusal.for_good;
      live();
      end();
    });
    if (refusal.whose == Whose::service_threads) {
      services_left = refusal.after;
      services_for_good = refusal.for_good;
      services_count = true;
    }
    thread.join();
    services_count = false;
    return wrong_;
  }

 private:
  static constexpr std::size_t kRoom = 200'000;
  static constexpr std::array<std::uint32_t, 4> kSends{1, 1000, 60'000, 90'000};
  static constexpr std::uint64_t kWrite = 10, kRead = 11, kBack = 12;

  // A call that the plugin guards: no object, for lack of memory.
  template <typename Function>
  auto make(Function function) -> decltype(function()) {
    counts = true;
    decltype(function()) made{};
    try {
      made = function();
    } catch (const std::bad_alloc&) {
    }
    counts = false;
    return made;
  }
  // And one that may not throw.
  template <typename Function>
  int call(const char* what, Function function) {
    counts = true;
    int result = ENOMEM;
    try {
      result = function();
    } catch (const std::exception& thrown) {
      counts = false;
      fail(std::string(what) + " throws " + thrown.what());
    }
    counts = false;
    return result;
  }
  void may_fail(const char* what, int error) {
    if (error != 0 && error != ENOMEM) fail(std::string(what) + " returns " + std::to_string(error));
  }
  void fail(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }

  struct End {
    std::unique_ptr<Pd> pd;
    std::unique_ptr<Cq> cq;
    std::unique_ptr<provider::Srq> srq;
    std::unique_ptr<Qp> qp;
    std::unique_ptr<Mr> source_mr, sink_mr;
    Bytes source = pattern(kRoom), sink = Bytes(kRoom);
    std::vector<ibv_wc> sent, received;
    std::size_t posted = 0;

    ibv_sge sge(Bytes& memory, const Mr& mr, std::size_t from, std::uint32_t size) const {
      return {reinterpret_cast<std::uintptr_t>(memory.data() + from), size, mr.key()};
    }
  };

  bool make(End& end, bool shared) {
    end.pd = make([&] { return std::make_unique<Pd>(context_); });
    if (!end.pd) return false;
    end.cq = make([&] { return Cq::create(*context_, 64, -1, nullptr); });
    if (!end.cq) return false;
    if (shared) {
      ibv_srq_attr attributes{16, 1, 0};
      end.srq = make([&] { return provider::Srq::create(*end.pd, attributes, false, nullptr); });
      if (!end.srq) return false;
    }
    ibv_qp_init_attr attributes{};
    attributes.qp_type = IBV_QPT_RC;
    attributes.sq_sig_all = 1;
    attributes.cap = {16, 16, 2, 2, 64};
    end.qp = make([&] {
      return Qp::create(*context_, *end.pd, end.cq.get(), end.cq.get(), attributes, reinterpret_cast<ibv_qp*>(&end),
                        end.srq.get());
    });
    if (!end.qp) return false;
    const auto expose = [&](Bytes& memory) {
      return make([&] {
        return Mr::create(*end.pd, memory.data(), memory.size(), reinterpret_cast<std::uintptr_t>(memory.data()), kAll);
      });
    };
    end.source_mr = expose(end.source);
    end.sink_mr = expose(end.sink);
    return end.source_mr && end.sink_mr;
  }

  bool modify(End& end, ibv_qp_state state) {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    const int error = call("ibv_modify_qp", [&] { return end.qp->modify(attributes, IBV_QP_STATE); });
    may_fail("ibv_modify_qp", error);
    return error == 0;
  }

  bool connect() {
    if (!modify(near_, IBV_QPS_INIT) || !modify(far_, IBV_QPS_INIT)) return false;
    for (const bool initiator : {true, false}) {
      const provider::Attachment attachment =
          attachment_of({.crc = setting_.crc, .remote = setting_.remote}, initiator);
      counts = true;
      int error = ENOMEM;
      try {
        error = (initiator ? near_ : far_).qp->attach(initiator ? sockets_.first : sockets_.second, attachment);
      } catch (const std::bad_alloc&) {  // the connection manager's thread goes on, and so does its caller
      }
      counts = false;
      if (error != EAGAIN) may_fail("attach", error);  // a thread that could not be made
      if (error != 0) return false;
    }
    return true;
  }

  bool post_receive(End& end, std::uint64_t id, const ibv_sge& sge) {
    ibv_sge element = sge;
    ibv_recv_wr request{};
    request.wr_id = id;
    request.sg_list = &element;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    const int error = call("ibv_post_recv", [&] {
      return end.srq ? end.srq->post(&request, &bad) : end.qp->post_receive(&request, &bad);
    });
    if (error != 0 && bad != &request) fail("ibv_post_recv does not say which request was bad");
    may_fail("ibv_post_recv", error);
    return error == 0;
  }

  bool post(End& end, std::uint64_t id, ibv_wr_opcode opcode, const ibv_sge& sge, std::uint32_t rkey = 0,
            std::uint64_t remote = 0) {
    ibv_sge element = sge;
    ibv_send_wr request{};
    request.wr_id = id;
    request.opcode = opcode;
    request.sg_list = &element;
    request.num_sge = 1;
    request.wr.rdma.rkey = rkey;
    request.wr.rdma.remote_addr = remote;
    ibv_send_wr* bad = nullptr;
    const int error = call("ibv_post_send", [&] { return end.qp->post_send(&request, &bad); });
    if (error != 0 && bad != &request) fail("ibv_post_send does not say which request was bad");
    may_fail("ibv_post_send", error);
    end.posted += error == 0 ? 1 : 0;
    return error == 0;
  }

  void poll(End& end) {
    ibv_wc completions[4];
    const int count = call("ibv_poll_cq", [&] { return end.cq->poll(4, completions); });
    for (int i = 0; i < count && wrong_.empty(); ++i) {
      (completions[i].opcode == IBV_WC_RECV || completions[i].wr_id >= 100 ? end.received : end.sent)
          .push_back(completions[i]);
    }
  }
  static std::size_t good(const std::vector<ibv_wc>& completions) {
    std::size_t count = 0;
    for (const ibv_wc& one : completions) count += one.status == IBV_WC_SUCCESS ? 1 : 0;
    return count;
  }
  static bool ended(const End& end) { return end.qp->state() == IBV_QPS_ERR; }

  void live() {
    if (!make(near_, false) || !make(far_, setting_.shared) || !connect()) return;
    // Receives of the same length, one at a time, so that it does not matter which of them could be posted. The first
    // Sends find none, and hold their stream up.
    std::size_t receives = 0, sends = 0;
    const auto post_receives = [&] {
      if (post_receive(far_, 100 + receives, far_.sge(far_.sink, *far_.sink_mr, 0, kRoom / 2))) ++receives;
    };
    std::vector<std::uint32_t> sizes;
    for (const std::uint32_t size : kSends) {
      if (post(near_, sends, IBV_WR_SEND, near_.sge(near_.source, *near_.source_mr, 0, size))) {
        ++sends;
        sizes.push_back(size);
      }
      poll(near_);
      if (sends == 2) post_receives();
    }
    const std::size_t to_be_read = kRoom / 2;
    std::copy(far_.source.begin(), far_.source.begin() + 50'000, far_.sink.begin() + to_be_read);
    const std::uint64_t remote = reinterpret_cast<std::uintptr_t>(far_.sink.data()) + to_be_read;
    post(near_, kWrite, IBV_WR_RDMA_WRITE, near_.sge(near_.source, *near_.source_mr, 1000, 50'000), far_.sink_mr->key(),
         remote);
    post(near_, kRead, IBV_WR_RDMA_READ, near_.sge(near_.sink, *near_.sink_mr, 0, 50'000), far_.source_mr->key(),
         reinterpret_cast<std::uintptr_t>(far_.source.data()));
    const bool back = post_receive(near_, 100, near_.sge(near_.sink, *near_.sink_mr, to_be_read, kRoom / 2)) &&
                      post(far_, kBack, IBV_WR_SEND, far_.sge(far_.source, *far_.source_mr, 0, 40'000));

    std::size_t checked = 0;
    const auto finished = [&] {
      if (!wrong_.empty()) return true;
      poll(near_);
      poll(far_);
      // One at a time, so that what each has brought can be looked at.
      for (; checked < far_.received.size(); ++checked) {
        const ibv_wc& one = far_.received[checked];
        if (one.status != IBV_WC_SUCCESS) continue;
        if (checked >= sizes.size() || one.byte_len != sizes[checked]) {
          fail("a receive of " + std::to_string(one.byte_len) + " octets");
        } else if (std::memcmp(far_.sink.data(), near_.source.data(), one.byte_len) != 0) {
          fail("other octets have come by a Send");
        }
      }
      if (receives < sizes.size() && receives <= far_.received.size() && !ended(far_)) post_receives();
      if (near_.sent.size() < near_.posted || far_.sent.size() < far_.posted) return false;
      const bool all_came = good(far_.received) == good_sends() && (!back || good(near_.received) == good(far_.sent));
      return all_came || (ended(near_) && ended(far_));
    };
    if (!eventually(finished)) {
      fail("nothing comes any more: " + std::to_string(near_.sent.size()) + " of " + std::to_string(near_.posted) +
           " and " + std::to_string(far_.sent.size()) + " of " + std::to_string(far_.posted) + " sent, " +
           std::to_string(far_.received.size()) + " of " + std::to_string(receives) + " received");
    }
    if (succeeded(kRead)) {
      if (std::memcmp(near_.sink.data(), far_.source.data(), 50'000) != 0) fail("other octets have come by a Read");
      if (succeeded(kWrite) && std::memcmp(far_.sink.data() + to_be_read, near_.source.data() + 1000, 50'000) != 0) {
        fail("other octets have come by a Write");
      }
    }
  }
  bool succeeded(std::uint64_t id) const {
    for (const ibv_wc& one : near_.sent) {
      if (one.wr_id == id) return one.status == IBV_WC_SUCCESS;
    }
    return false;
  }
  std::size_t good_sends() const {
    std::size_t count = 0;
    for (const ibv_wc& one : near_.sent) count += one.wr_id < kWrite && one.status == IBV_WC_SUCCESS ? 1 : 0;
    return count;
  }

  void end() {
    if (near_.qp) modify(near_, IBV_QPS_ERR);
    if (setting_.leave) {
      call("ibv_close_device", [&] { return context_->close(), 0; });
    }
    for (End* one : {&near_, &far_}) {
      if (one->qp) modify(*one, IBV_QPS_RESET);
      call("ibv_destroy_qp", [&] { return one->qp.reset(), 0; });
      unsigned events = 0;
      call("ibv_destroy_srq", [&] { return one->srq.reset(), 0; });
      if (one->cq && call("ibv_destroy_cq", [&] { return one->cq->prepare_destroy(events); }) != 0) {
        fail("a queue pair is left");
      }
      call("ibv_destroy_cq", [&] { return one->cq.reset(), 0; });
      call("ibv_dereg_mr", [&] { return one->source_mr.reset(), one->sink_mr.reset(), 0; });
      if (one->pd && one->pd->in_use()) fail("something is left in its domain");
      one->pd.reset();
    }
    // At the last moment there is, nothing is recent: this tells whether a call counts as under way.
    if (context_->engine().activity().is_active(~std::uint64_t{0}, 0)) fail("a call has not been counted as ended");
    call("ibv_close_device", [&] {
      context_->close();
      context_.reset();
      return 0;
    });
  }

  const Setting setting_;
  std::shared_ptr<Context> context_;
  std::pair<TcpStream, TcpStream> sockets_;
  End near_, far_;
  std::string wrong_;
};

// As many times as it takes for none to be refused any more. Returns how often one was.
unsigned walk(const Setting& setting, Whose whose, bool for_good, long most = 10'000) {
  unsigned times = 0;
  for (long after = 0; after < most; ++after) {
    refused = 0;
    Exchange exchange(setting, open_loopback(), tcp_pair());
    const std::string wrong = exchange.run({whose, after, for_good});
    INFO("allocation " << after << (for_good ? " and all behind it" : ""));
    REQUIRE(wrong == "");
    if (refused == 0) return times;
    ++times;
  }
  return times;
}

}  // namespace

TEST_CASE("no memory: each allocation of a program's calls may fail", "[no memory]") {
  is_program = true;
  Setting setting;
  setting.crc = GENERATE(false, true);
  const bool for_good = GENERATE(false, true);
  setting.remote = !setting.crc;
  setting.shared = setting.crc;
  setting.leave = for_good;
  CHECK(walk(setting, Whose::callers, for_good) > 20);
}

TEST_CASE("no memory: each allocation on a thread of the library may fail", "[no memory]") {
  is_program = true;
  Setting setting;
  setting.crc = GENERATE(false, true);
  const bool for_good = GENERATE(false, true);
  setting.remote = !setting.crc;
  setting.shared = setting.crc;
  walk(setting, Whose::service_threads, for_good, 12);
}

TEST_CASE("a progress thread that cannot be started is started at a later call") {
  const std::atomic<int> epoll{-1};
  const provider::ChannelSets sets(epoll);
  const provider::Activity activity;
  provider::DrivenList driven;
  provider::ProgressHelpers helpers(
      1, sets, driven, [](std::uint32_t) -> provider::Driven* { return nullptr; }, activity);
  is_program = true;
  const auto call = [&](bool refuse) {
    counts = refuse;
    count_left = 0;
    count_for_good = true;
    const unsigned before = refused;
    helpers.call();
    counts = false;
    return refused != before;
  };
  // The calls in between ask for nothing: 1, 2, 4 of them, and so on.
  unsigned tries = 0;
  for (int i = 0; i < 15; ++i) tries += call(true) ? 1 : 0;
  CHECK(tries == 4);
  CHECK(helpers.helping() == 0);
  CHECK(helpers.allowed());
  for (int i = 0; i < 8; ++i) call(false);
  CHECK(helpers.turns() == 0);
  helpers.stop();
  is_program = false;
}
