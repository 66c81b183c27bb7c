// SPDX-License-Identifier: MIT
// A ring of messages by RDMA Write with immediate, of random sizes, between two processes: the way many RDMA programs
// talk. The receiver checks order, octets, immediate, byte_len, and that nothing beside a message was written. It
// stalls at random, and posts receives late.
//
//   uiw_immediate_ring server|client HOST PORT COUNT [--sends] [--largest OCTETS] [--events] [--calm]
//
// The server receives. Both ends draw the same random numbers. The client sends by ibv_post_send and by ibv_wr_*,
// inline and from lists of pieces, and has a completion for every 13th message only. --events: the receiver sleeps on
// its completion channel. --calm: without stalls. --sends: by Send with immediate, and some Sends without, into the
// receives; the ring then only counts what is under way.
#include <endian.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/apps/support/extended.h"

namespace {

using apps::die;
using apps::Endpoint;
using apps::ull;
using apps::Window;

// More than TCP holds on its way, so that a receiver that stalls blocks its sender.
constexpr std::size_t kRing = std::size_t{16} << 20;
constexpr std::size_t kGap = 8;  // octets between messages that nobody writes
constexpr unsigned char kEmpty = 0xEE;
constexpr std::size_t kSource = std::size_t{1} << 20;  // the octets that messages are made of
constexpr std::uint32_t kReceives = 128, kSends = 128;
constexpr unsigned kSignalEvery = 13, kMostInBatch = 9, kMostPieces = 4;
constexpr std::chrono::seconds kLong{120};

struct Options {
  std::uint64_t count = 0;
  std::uint32_t largest = 16384;
  bool sends = false, events = false, calm = false;
};

constexpr std::uint64_t mix(std::uint64_t value) {
  value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9u;
  value = (value ^ value >> 27) * 0x94D049BB133111EBu;
  return value ^ value >> 31;
}
// What both ends know of a message, and what each decides by itself, by different salts.
enum class Salt : std::uint64_t { message = 1, sender = 2, receiver = 3 };
constexpr std::uint64_t draw(Salt salt, std::uint64_t number) {
  return mix((number + 1) * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(salt) * 0xD1B54A32D192ED03u);
}

struct Message {
  std::uint32_t size;
  std::uint32_t immediate;
  std::size_t source;  // where its octets stand in the source
  bool with_immediate;
};
Message message(std::uint64_t number, const Options& options) {
  const std::uint64_t random = draw(Salt::message, number);
  const std::uint32_t limits[] = {128, 1024, options.largest};
  const unsigned kind = random % 16 < 11 ? 0 : random % 16 < 15 ? 1 : 2;
  const std::uint32_t size = (random >> 8 & 0xFFFFFF) % (std::min(limits[kind], options.largest) + 1);
  return {size, static_cast<std::uint32_t>(number) * 2654435761u + 12345u,
          (random >> 32 & 0xFFFFFF) % (kSource - options.largest), !options.sends || random >> 61 != 0};
}

void fill_source(std::vector<unsigned char>& source) {
  source.resize(kSource);
  for (std::size_t i = 0; i < kSource; i += 8) {
    const std::uint64_t word = mix(i + 1);
    std::memcpy(&source[i], &word, 8);
  }
}

// Where messages lie, by octets ever used: each starts behind the gap of the one before, or at the start of the ring
// where the rest of it is too short.
class Place {
 public:
  // Moves over the next message; its offset in the ring.
  std::size_t next(std::uint32_t size) {
    const std::uint64_t need = size + kGap;
    if (used_ % kRing + need > kRing) used_ += kRing - used_ % kRing;
    const std::size_t offset = used_ % kRing;
    used_ += need;
    return offset;
  }
  std::uint64_t used() const { return used_; }

 private:
  std::uint64_t used_ = 0;
};

// ---- The receiver ----------------------------------------------------------------------------------------------

class Receiver {
 public:
  Receiver(Endpoint& end, const Options& options)
      : end_(end),
        options_(options),
        slot_(options.largest + kGap),
        ring_(options.sends ? kReceives * slot_ : kRing, kEmpty) {
    fill_source(source_);
    mr_ = apps::reg(end.id()->pd, ring_.data(), ring_.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    post_receives(kReceives);
  }
  ~Receiver() { ibv_dereg_mr(mr_); }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  Window window() const { return apps::window_of(ring_.data(), mr_); }

  void run(const Window& credit) {
    Place place;
    std::uint64_t reported = 0;
    for (std::uint64_t number = 0; number < options_.count; ++number) {
      if (!options_.calm) stall(number);
      const Message expected = message(number, options_);
      ibv_wc wc{};
      if (!end_.recv_completion(wc, options_.events, kLong)) die("message %llu does not come", ull(number));
      check(wc, number, expected);
      const std::size_t offset = place.next(expected.size);
      unsigned char* at = options_.sends ? slot(number) : ring_.data() + offset;
      if (std::memcmp(at, &source_[expected.source], expected.size) != 0) wrong_octet(at, number, expected);
      for (std::size_t i = 0; i < kGap; ++i)
        if (at[expected.size + i] != kEmpty)
          die("behind message %llu stands 0x%02x", ull(number), at[expected.size + i]);
      std::memset(at, kEmpty, expected.size);
      // Late, and many at a time, so that messages come while no receive is posted.
      const std::uint64_t random = draw(Salt::receiver, number);
      if (taken_ + kReceives - posted_ > random % kReceives) post_receives(taken_ + kReceives - posted_);
      if (place.used() - reported >= kRing / 8) {
        reported = place.used();
        report(credit, reported);
      }
    }
    report(credit, place.used());
  }

 private:
  void check(const ibv_wc& wc, std::uint64_t number, const Message& expected) {
    if (wc.status != IBV_WC_SUCCESS) die("message %llu: %s", ull(number), ibv_wc_status_str(wc.status));
    if (wc.opcode != (options_.sends ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM))
      die("message %llu: opcode %d", ull(number), wc.opcode);
    if (wc.wr_id != taken_) die("message %llu takes receive %llu, not %llu", ull(number), ull(wc.wr_id), ull(taken_));
    if (wc.wc_flags != (expected.with_immediate ? unsigned{IBV_WC_WITH_IMM} : 0U))
      die("message %llu: flags 0x%x", ull(number), wc.wc_flags);
    if (expected.with_immediate && wc.imm_data != htobe32(expected.immediate))
      die("message %llu: immediate 0x%08x, not 0x%08x", ull(number), be32toh(wc.imm_data), expected.immediate);
    if (wc.byte_len != expected.size) die("message %llu: %u octets, not %u", ull(number), wc.byte_len, expected.size);
    if (wc.qp_num != end_.qp()->qp_num) die("message %llu: of QP %u", ull(number), wc.qp_num);
    ++taken_;
  }
  [[noreturn]] void wrong_octet(const unsigned char* at, std::uint64_t number, const Message& expected) const {
    std::size_t i = 0;
    while (at[i] == source_[expected.source + i]) ++i;
    die("message %llu of %u octets: octet %zu is 0x%02x, not 0x%02x%s", ull(number), expected.size, i, at[i],
        source_[expected.source + i], at[i] == kEmpty ? " (never written)" : "");
  }

  void stall(std::uint64_t number) const {
    const std::uint64_t random = draw(Salt::receiver, number) >> 16;
    if (random % 20000 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(random >> 20 & 0x7FFF));
    } else if (random % 500 == 0) {
      const auto until = apps::Clock::now() + std::chrono::microseconds(random >> 20 & 0x7F);
      while (apps::Clock::now() < until) sched_yield();
    }
  }

  void post_receives(std::uint64_t count) {
    for (; count > 0; --count, ++posted_) {
      if (options_.sends) {
        const auto at = reinterpret_cast<std::uintptr_t>(slot(posted_));
        const std::uint32_t first = std::min(options_.largest, static_cast<std::uint32_t>(posted_ % 200));
        apps::post_receive(end_.qp(), {{at, first, mr_->lkey}, {at + first, options_.largest - first, mr_->lkey}},
                           posted_);
        continue;
      }
      // Immediate Data leaves the memory of a receive alone.
      std::vector<ibv_sge> unused;
      if (posted_ % 3 == 0) unused = {{apps::number(ring_.data()), 64, mr_->lkey}};
      apps::post_receive(end_.qp(), unused, posted_);
    }
  }

  // Of a receive, which is posted again once its message has been looked at.
  unsigned char* slot(std::uint64_t number) { return ring_.data() + number % kReceives * slot_; }

  void report(const Window& credit, std::uint64_t used) {
    apps::SendRequest(IBV_WR_RDMA_WRITE, {apps::number(&used), sizeof used, 0}, 0, IBV_SEND_INLINE | IBV_SEND_SIGNALED)
        .at(credit.address, credit.rkey)
        .post(end_.qp());
    ibv_wc wc{};
    if (!end_.send_completion(wc, options_.events, kLong)) die("no completion of a report");
    apps::must_succeed(wc, "a report");
  }

  Endpoint& end_;
  const Options options_;
  const std::size_t slot_;
  std::vector<unsigned char> ring_, source_;
  ibv_mr* mr_;
  std::uint64_t posted_ = 0, taken_ = 0;
};

// ---- The sender ------------------------------------------------------------------------------------------------

class Sender {
 public:
  Sender(Endpoint& end, const Options& options) : end_(end), options_(options) {
    fill_source(source_);
    mr_ = apps::reg(end.id()->pd, source_.data(), source_.size(), IBV_ACCESS_LOCAL_WRITE);
    credit_mr_ =
        apps::reg(end.id()->pd, &consumed_, sizeof consumed_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    most_inline_ = end.capacity().max_inline_data;
  }
  ~Sender() {
    ibv_dereg_mr(mr_);
    ibv_dereg_mr(credit_mr_);
  }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  Window window() const { return apps::window_of(&consumed_, credit_mr_); }

  void run(const Window& ring) {
    ring_ = ring;
    while (next_ < options_.count) {
      const std::uint64_t random = draw(Salt::sender, next_);
      const unsigned count =
          static_cast<unsigned>(std::min<std::uint64_t>(random % kMostInBatch + 1, options_.count - next_));
      for (unsigned i = 0; i < count; ++i) prepare(items_[i], next_ + i);
      await(count);
      if ((random >> 8) % 2 == 0) {
        post_list(count);
      } else {
        post_calls(count);
      }
      next_ += count;
    }
    while (done_ < options_.count) take_completion();
    for (std::uint64_t seen; (seen = consumed()) < place_.used();) relax("the last report", seen);
  }

 private:
  struct Item {
    std::uint64_t number;
    Message what;
    std::uint64_t remote;
    ibv_sge pieces[kMostPieces];
    int count;
    bool inlined, signaled, solicited;
  };

  std::uint64_t consumed() { return std::atomic_ref<std::uint64_t>(consumed_).load(std::memory_order_acquire); }

  void prepare(Item& item, std::uint64_t number) {
    item.number = number;
    item.what = message(number, options_);
    item.remote = ring_.address + place_.next(item.what.size);
    const std::uint64_t random = draw(Salt::sender, number) >> 20;
    item.inlined = item.what.size <= most_inline_ && random % 2 == 0;
    item.signaled = number % kSignalEvery == 0 || number + 1 == options_.count;
    item.solicited = random % 3 == 0;
    const unsigned wanted = static_cast<unsigned>(random >> 8) % kMostPieces + 1;
    std::uint32_t at = 0;
    item.count = 0;
    for (unsigned i = 0; i < wanted && at < item.what.size; ++i) {
      const std::uint32_t left = item.what.size - at;
      const std::uint32_t part = i + 1 == wanted ? left : std::min(left, left / (wanted - i) + 1);
      item.pieces[item.count++] = {reinterpret_cast<std::uintptr_t>(&source_[item.what.source + at]), part,
                                   item.inlined ? 0 : mr_->lkey};
      at += part;
    }
  }

  // Until the ring and the send queue have room for all that was prepared.
  void await(unsigned count) {
    for (std::uint64_t seen; !options_.sends && place_.used() - (seen = consumed()) > kRing;)
      relax("room in the ring", seen);
    while (next_ + count - done_ > kSends) take_completion();
  }
  // Until more is consumed than was seen, or a completion has come.
  void relax(const char* what, std::uint64_t seen) {
    const auto end = apps::Clock::now() + kLong;
    ibv_wc wc{};
    while (consumed() == seen) {
      if (ibv_poll_cq(end_.id()->send_cq, 1, &wc) == 1) {
        note(wc);
        return;
      }
      if (apps::Clock::now() > end) die("%s does not come", what);
      sched_yield();
    }
  }
  void take_completion() {
    ibv_wc wc{};
    if (!end_.send_completion(wc, false, kLong)) die("no completion of message %llu", ull(done_));
    note(wc);
  }
  void note(const ibv_wc& wc) {
    apps::must_succeed(wc, "a message");
    const std::uint64_t expected =
        std::min((done_ + kSignalEvery - 1) / kSignalEvery * kSignalEvery, options_.count - 1);
    if (wc.wr_id != expected) die("completion of message %llu, not of %llu", ull(wc.wr_id), ull(expected));
    if (wc.opcode != (options_.sends ? IBV_WC_SEND : IBV_WC_RDMA_WRITE))
      die("a message completes with opcode %d", wc.opcode);
    done_ = wc.wr_id + 1;
  }

  static unsigned flags(const Item& item) {
    return (item.signaled ? unsigned{IBV_SEND_SIGNALED} : 0U) | (item.solicited ? unsigned{IBV_SEND_SOLICITED} : 0U);
  }

  void post_list(unsigned count) {
    ibv_send_wr requests[kMostInBatch] = {};
    for (unsigned i = 0; i < count; ++i) {
      Item& item = items_[i];
      if (item.inlined) borrow(item, i);
      ibv_send_wr& request = requests[i];
      request.wr_id = item.number;
      request.next = i + 1 < count ? &requests[i + 1] : nullptr;
      request.sg_list = item.pieces;
      request.num_sge = item.count;
      request.opcode = !options_.sends            ? IBV_WR_RDMA_WRITE_WITH_IMM
                       : item.what.with_immediate ? IBV_WR_SEND_WITH_IMM
                                                  : IBV_WR_SEND;
      request.send_flags = flags(item) | (item.inlined ? unsigned{IBV_SEND_INLINE} : 0U);
      request.imm_data = htobe32(item.what.immediate);
      request.wr.rdma.remote_addr = item.remote;
      request.wr.rdma.rkey = ring_.rkey;
    }
    ibv_send_wr* bad = nullptr;
    apps::good("ibv_post_send", ibv_post_send(end_.qp(), requests, &bad));
    std::memset(borrowed_, kEmpty, sizeof borrowed_);
  }

  // Inline data is free again once ibv_post_send returns: it comes from memory that is overwritten then.
  void borrow(Item& item, unsigned which) {
    std::size_t at = 0;
    for (int i = 0; i < item.count; ++i) {
      ibv_sge& piece = item.pieces[i];
      std::memcpy(&borrowed_[which][at], reinterpret_cast<const void*>(piece.addr), piece.length);
      piece.addr = reinterpret_cast<std::uintptr_t>(&borrowed_[which][at]);
      at += piece.length;
    }
  }

  void post_calls(unsigned count) {
    ibv_qp_ex* qp = ibv_qp_to_qp_ex(end_.qp());
    if (qp == nullptr) die("the queue pair has no ibv_wr_*");
    ibv_wr_start(qp);
    for (unsigned i = 0; i < count; ++i) {
      Item& item = items_[i];
      qp->wr_id = item.number;
      qp->wr_flags = flags(item);
      if (!options_.sends) {
        ibv_wr_rdma_write_imm(qp, ring_.rkey, item.remote, htobe32(item.what.immediate));
      } else if (item.what.with_immediate) {
        ibv_wr_send_imm(qp, htobe32(item.what.immediate));
      } else {
        ibv_wr_send(qp);
      }
      if (item.count == 0) continue;
      if (!item.inlined) {
        if (item.count == 1) {
          ibv_wr_set_sge(qp, item.pieces[0].lkey, item.pieces[0].addr, item.pieces[0].length);
        } else {
          ibv_wr_set_sge_list(qp, static_cast<std::size_t>(item.count), item.pieces);
        }
      } else if (item.count == 1) {
        ibv_wr_set_inline_data(qp, reinterpret_cast<void*>(item.pieces[0].addr), item.pieces[0].length);
      } else {
        ibv_data_buf list[kMostPieces];
        for (int j = 0; j < item.count; ++j)
          list[j] = {reinterpret_cast<void*>(item.pieces[j].addr), item.pieces[j].length};
        ibv_wr_set_inline_data_list(qp, static_cast<std::size_t>(item.count), list);
      }
    }
    if (int error = ibv_wr_complete(qp)) die("ibv_wr_complete: %s", std::strerror(error));
  }

  Endpoint& end_;
  const Options options_;
  std::vector<unsigned char> source_;
  ibv_mr* mr_;
  ibv_mr* credit_mr_;
  alignas(8) std::uint64_t consumed_ = 0;  // written by the receiver
  Window ring_;
  Place place_;
  std::uint64_t next_ = 0, done_ = 0;
  std::uint32_t most_inline_ = 0;
  Item items_[kMostInBatch];
  unsigned char borrowed_[kMostInBatch][1024];
};

constexpr apps::Capacity kCapacity{kSends, kReceives, kMostPieces, 2, 256};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5)
    die("usage: %s server|client HOST PORT COUNT [--sends] [--largest OCTETS] [--events] [--calm]", argv[0]);
  const std::string mode = argv[1];
  Options options;
  options.count = std::strtoull(argv[4], nullptr, 10);
  for (int i = 5; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--events") {
      options.events = true;
    } else if (option == "--sends") {
      options.sends = true;
    } else if (option == "--calm") {
      options.calm = true;
    } else if (option == "--largest" && i + 1 < argc) {
      options.largest = static_cast<std::uint32_t>(std::strtoul(argv[++i], nullptr, 10));
    } else {
      die("unknown option %s", argv[i]);
    }
  }
  if (options.count == 0 || options.largest > kSource / 2) die("a wrong count, or a size too large for the ring");
  if (mode == "server") {
    apps::Listener listener(apps::create_ep(argv[2], argv[3], RAI_PASSIVE));
    Endpoint end = listener.request();
    apps::make_qp(end, kCapacity, 0);
    const Window credit = apps::receive_window(end);
    Receiver receiver(end, options);
    apps::accept(end, receiver.window());
    receiver.run(credit);
    end.disconnect();
  } else if (mode == "client") {
    Endpoint end = apps::call(argv[2], argv[3]);
    apps::make_qp(end, kCapacity);
    Sender sender(end, options);
    apps::connect(end, sender.window());
    sender.run(apps::receive_window(end));
    end.disconnect();
  } else {
    die("unknown mode %s", argv[1]);
  }
  std::printf("immediate ring: %llu messages\n", ull(options.count));
  return 0;
}
