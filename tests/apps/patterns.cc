// SPDX-License-Identifier: MIT
// Does every byte arrive, at its place, and no other byte change? Writes, reads and sends patterns of every
// size and alignment over stock libibverbs and librdmacm and compares every byte, the guard bytes around
// included.
//
//   uiw_patterns self|server|client HOST PORT [--brief|--few] [--reverse] [--events]
//
// Both ends compute the same list of cases. One end is active (it posts the operations), the other verifies
// what was done to its memory; --reverse makes the connecting end the verifying one. --events sleeps on
// completion channels instead of polling. `self` is both ends in one process.
#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <span>
#include <thread>
#include <vector>

#include "endpoint.h"

namespace {

using apps::Clock;
using apps::die;
using apps::Endpoint;

constexpr std::size_t kLargest = std::size_t{8} << 20;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kMargin = 64;  // guard bytes compared on either side of what a case touches
constexpr std::size_t kArea = kLargest + 4 * kPage;
constexpr unsigned kSlots = 12;  // of an ordering round
constexpr std::size_t kSlotSize = 2048;

enum class Kind : std::uint8_t { write, read, send, order };
constexpr const char* kKindName[] = {"RDMA Write", "RDMA Read", "Send", "order"};

struct Case {
  Kind kind;
  std::size_t length;
  unsigned near_align;  // of the active end's memory
  unsigned far_align;   // of the verifying end's memory
  unsigned sges;        // at the active end, and of a receive
  bool inlined;
  bool signaled;
};

struct Options {
  bool brief = false, few = false, reverse = false, events = false;
};

std::vector<Case> make_cases(const Options& options) {
  std::vector<Case> cases;
  unsigned turn = 0;
  auto add = [&](Kind kind, std::size_t length, unsigned near_align, unsigned far_align, unsigned sges) {
    ++turn;
    const bool inlined = kind != Kind::read && length <= 256 && turn % 3 == 0;
    cases.push_back({kind, length, near_align % 64, far_align % 64, length == 0 ? std::min(sges, 1u) : sges,
                     inlined, turn % 4 != 0});
  };
  const Kind kinds[] = {Kind::write, Kind::read, Kind::send};
  // Every size, with changing alignments and numbers of SGEs.
  const std::size_t step = options.few ? 409 : options.brief ? 37 : 1;
  for (std::size_t length = 0; length <= 4096; length += step)
    for (Kind kind : kinds)
      for (unsigned sges = 1; sges <= 4; sges += options.brief || options.few ? 1 : 3)
        add(kind, length, static_cast<unsigned>(length * 7 + sges),
            static_cast<unsigned>(length * 13 + 5 * sges), sges);
  // Every pair of alignments.
  const unsigned stride = options.few ? 31 : options.brief ? 9 : 1;
  for (unsigned near_align = 0; near_align < 64; near_align += stride)
    for (unsigned far_align = 0; far_align < 64; far_align += stride)
      for (Kind kind : kinds) add(kind, near_align % 2 == 0 ? 200 : 1531, near_align, far_align, 1);
  // Powers of two and their neighbours.
  const std::size_t largest = options.few     ? std::size_t{1} << 17
                              : options.brief ? std::size_t{1} << 20
                                              : kLargest;
  for (std::size_t power = 8192; power <= largest; power *= 2)
    for (int delta = -1; delta <= 1; ++delta) {
      const std::size_t length = power + static_cast<std::size_t>(static_cast<std::ptrdiff_t>(delta));
      if (length > kLargest) continue;
      for (Kind kind : kinds)
        for (unsigned sges : {1u, 3u})
          add(kind, length, static_cast<unsigned>(3 * delta + 3 + sges),
              static_cast<unsigned>(power / 8192 + sges), sges);
    }
  const unsigned rounds = options.few ? 3 : options.brief ? 20 : 300;
  for (unsigned round = 0; round < rounds; ++round)
    add(Kind::order, 1 + round * 37 % 1900, round, round * 3, 1);
  return cases;
}

// What case `number` carries, and what untouched memory holds.
std::uint8_t pattern(std::size_t number, std::size_t index) {
  return static_cast<std::uint8_t>(((number + 1) * 0x9E3779B97F4A7C15u + index * 0xD1B54A32D192ED03u) >> 56);
}
std::uint8_t guard(std::size_t offset) { return static_cast<std::uint8_t>(offset * 31 + 7); }
constexpr std::size_t kReadable = ~std::size_t{0} - 1;  // the "case" whose pattern the readable area holds

struct Area {
  std::uint8_t* base;
  ibv_mr* mr;

  Area(ibv_pd* pd, int access) {
    void* memory = mmap(nullptr, kArea, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die("mmap: %s", std::strerror(errno));
    base = static_cast<std::uint8_t*>(memory);
    for (std::size_t i = 0; i < kArea; ++i) base[i] = guard(i);
    mr = ibv_reg_mr(pd, base, kArea, access);
    if (mr == nullptr) die("ibv_reg_mr: %s", std::strerror(errno));
  }
  Area(const Area&) = delete;
  Area& operator=(const Area&) = delete;
  ~Area() {
    if (ibv_dereg_mr(mr) != 0) die("ibv_dereg_mr fails");
    munmap(base, kArea);
  }
};

struct Piece {
  std::size_t offset, length;
};

// Where the bytes of a case lie in an area: one piece, or several with guard bytes between.
std::vector<Piece> layout(std::size_t length, unsigned align, unsigned sges, std::size_t number) {
  std::vector<Piece> pieces;
  std::size_t at = kPage + align;
  std::size_t left = length;
  for (unsigned i = 0; i < sges; ++i) {
    std::size_t part = i + 1 == sges ? left : std::min(left, length / sges + (number + i) % 5);
    if (part == 0 && i + 1 != sges) continue;  // a length of 0 in an SGE means 2^31 to some adapters
    if (part == 0 && length != 0) break;
    pieces.push_back({at, part});
    at += part + kMargin + (number * 7 + i * 13) % 64;
    left -= part;
  }
  return pieces;
}

std::vector<ibv_sge> scatter(const Area& area, std::span<const Piece> pieces) {
  std::vector<ibv_sge> list;
  for (const Piece& piece : pieces)
    list.push_back({reinterpret_cast<std::uint64_t>(area.base + piece.offset),
                    static_cast<std::uint32_t>(piece.length), area.mr->lkey});
  return list;
}

void fill(const Area& area, std::span<const Piece> pieces, std::size_t number) {
  std::size_t index = 0;
  for (const Piece& piece : pieces)
    for (std::size_t i = 0; i < piece.length; ++i) area.base[piece.offset + i] = pattern(number, index++);
}

void restore(const Area& area, std::span<const Piece> pieces) {
  for (const Piece& piece : pieces)
    for (std::size_t i = 0; i < piece.length; ++i) area.base[piece.offset + i] = guard(piece.offset + i);
}

// The pieces hold the pattern (from `first` on), all between and around holds guard bytes; puts the guard
// back.
void verify(const Area& area, std::span<const Piece> pieces, std::size_t number, std::size_t first,
            const Case& test, std::size_t name) {
  std::size_t index = first;
  std::size_t at = pieces.empty() ? kPage - kMargin : pieces.front().offset - kMargin;
  auto around = [&](std::size_t end) {
    for (; at < end; ++at)
      if (area.base[at] != guard(at))
        die("case %zu (%s, %zu octets, alignments %u and %u, %u SGEs): guard byte at offset %zu is 0x%02x, "
            "not 0x%02x",
            name, kKindName[static_cast<int>(test.kind)], test.length, test.near_align, test.far_align,
            test.sges, at, area.base[at], guard(at));
  };
  for (const Piece& piece : pieces) {
    around(piece.offset);
    for (std::size_t i = 0; i < piece.length; ++i, ++index)
      if (area.base[piece.offset + i] != pattern(number, index))
        die("case %zu (%s, %zu octets, alignments %u and %u, %u SGEs): octet %zu is 0x%02x, not 0x%02x%s",
            name, kKindName[static_cast<int>(test.kind)], test.length, test.near_align, test.far_align,
            test.sges, index - first, area.base[piece.offset + i], pattern(number, index),
            area.base[piece.offset + i] == guard(piece.offset + i) ? " (never written)" : "");
    at = piece.offset + piece.length;
  }
  around(at + kMargin);
  restore(area, pieces);
}

void verify_untouched(const Area& area, const char* which) {
  for (std::size_t i = 0; i < kArea; ++i)
    if (area.base[i] != guard(i))
      die("in the end, octet %zu of %s is 0x%02x, not 0x%02x", i, which, area.base[i], guard(i));
}

enum class Word : std::uint32_t { hello = 1, check, verdict, end };

struct Message {
  Word word;
  std::uint32_t rkey, readable_rkey;
  std::uint64_t number, address, readable_address;
};

// Control messages: Sends of their own memory, on the same QP, so they arrive after the data.
class Talk {
 public:
  Talk(Endpoint& end, bool events) : end_(end), events_(events) {
    mr_ = ibv_reg_mr(end.pd(), in_, sizeof in_, int{IBV_ACCESS_LOCAL_WRITE});
    out_mr_ = ibv_reg_mr(end.pd(), &out_, sizeof out_, 0);
    if (mr_ == nullptr || out_mr_ == nullptr) die("ibv_reg_mr: %s", std::strerror(errno));
  }
  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;
  ~Talk() {
    ibv_dereg_mr(mr_);
    ibv_dereg_mr(out_mr_);
  }

  // Receives complete in the order they were posted; `tag` tells which.
  void post_recv(std::vector<ibv_sge> list, std::uint64_t tag) {
    ibv_recv_wr request{};
    request.wr_id = tag;
    request.sg_list = list.data();
    request.num_sge = static_cast<int>(list.size());
    ibv_recv_wr* bad = nullptr;
    if (int error = ibv_post_recv(end_.qp(), &request, &bad)) die("ibv_post_recv: %s", std::strerror(error));
    receives_.push_back(tag);
  }
  // The peer may speak twice before we look, so receives rotate among boxes.
  void post_control() {
    post_recv({{reinterpret_cast<std::uint64_t>(&in_[posted_++ % kBoxes]), sizeof(Message), mr_->lkey}},
              kControl);
  }

  std::uint32_t take_recv() {
    ibv_wc wc{};
    if (!end_.recv_completion(wc, events_)) die("no receive completion in time");
    if (wc.status != IBV_WC_SUCCESS) die("receive completes with %s", ibv_wc_status_str(wc.status));
    if (receives_.empty()) die("a receive completes that was not posted");
    if (wc.wr_id != receives_.front())
      die("receives complete out of order: %llx, not %llx", static_cast<unsigned long long>(wc.wr_id),
          static_cast<unsigned long long>(receives_.front()));
    receives_.pop_front();
    if (wc.opcode != IBV_WC_RECV) die("a receive's opcode is %d", wc.opcode);
    if (wc.qp_num != end_.qp()->qp_num) die("a completion's qp_num is 0x%x", wc.qp_num);
    return wc.byte_len;
  }
  Message take_message(Word word) {
    const std::uint32_t length = take_recv();
    if (length != sizeof(Message)) die("a message of %u octets, not %zu", length, sizeof(Message));
    const Message message_in = in_[taken_++ % kBoxes];
    if (message_in.word != word)
      die("message %u, not %u", static_cast<unsigned>(message_in.word), static_cast<unsigned>(word));
    return message_in;
  }

  // A send request for this message; valid until the next call.
  ibv_send_wr& message(const Message& content) {
    out_ = content;
    sge_ = {reinterpret_cast<std::uint64_t>(&out_), sizeof(Message), out_mr_->lkey};
    request_ = {};
    request_.sg_list = &sge_;
    request_.num_sge = 1;
    request_.opcode = IBV_WR_SEND;
    request_.send_flags = IBV_SEND_SIGNALED;
    request_.wr_id = next_++;
    return request_;
  }
  std::uint64_t next_id() { return next_++; }

  // Posts a chain; the signaled ones must complete in this order.
  void post(ibv_send_wr& first) {
    for (ibv_send_wr* each = &first; each != nullptr; each = each->next)
      if (each->send_flags & IBV_SEND_SIGNALED) sends_.push_back({each->wr_id, each->opcode});
    ibv_send_wr* bad = nullptr;
    if (int error = ibv_post_send(end_.qp(), &first, &bad)) die("ibv_post_send: %s", std::strerror(error));
  }
  void complete_all() {
    while (!sends_.empty()) {
      ibv_wc wc{};
      if (!end_.send_completion(wc, events_)) die("no send completion in time");
      const auto [id, opcode] = sends_.front();
      sends_.pop_front();
      if (wc.status != IBV_WC_SUCCESS)
        die("work request %llu completes with %s", static_cast<unsigned long long>(wc.wr_id),
            ibv_wc_status_str(wc.status));
      if (wc.wr_id != id)
        die("completion of work request %llu, where %llu is next (unsignaled, or out of order)",
            static_cast<unsigned long long>(wc.wr_id), static_cast<unsigned long long>(id));
      const ibv_wc_opcode wanted = opcode == IBV_WR_SEND         ? IBV_WC_SEND
                                   : opcode == IBV_WR_RDMA_WRITE ? IBV_WC_RDMA_WRITE
                                                                 : IBV_WC_RDMA_READ;
      if (wc.opcode != wanted) die("a completion's opcode is %d, not %d", wc.opcode, wanted);
    }
  }

  static constexpr std::uint64_t kControl = 0xC0;
  static constexpr std::uint64_t kData = 0xDA;

 private:
  Endpoint& end_;
  bool events_;
  static constexpr std::size_t kBoxes = 4;
  Message in_[kBoxes] = {};
  Message out_ = {};
  std::size_t posted_ = 0, taken_ = 0;
  ibv_mr* mr_;
  ibv_mr* out_mr_;
  ibv_sge sge_{};
  ibv_send_wr request_{};
  std::uint64_t next_ = 1;
  std::deque<std::uint64_t> receives_;
  std::deque<std::pair<std::uint64_t, ibv_wr_opcode>> sends_;
};

Piece slot(const Case& test, unsigned which) {
  return {kPage + which * kSlotSize + (test.far_align + which) % 64, test.length};
}

class Active {
 public:
  Active(Endpoint& end, Talk& talk, const Message& peer, const Options& options)
      : talk_(talk),
        peer_(peer),
        options_(options),
        near_(end.pd(), IBV_ACCESS_LOCAL_WRITE),
        max_inline_(end.capacity().max_inline_data) {}

  void run(std::span<const Case> cases) {
    for (std::size_t number = 0; number < cases.size(); ++number) {
      const Case& test = cases[number];
      switch (test.kind) {
        case Kind::write:
          one_way(test, number, IBV_WR_RDMA_WRITE);
          break;
        case Kind::send:
          one_way(test, number, IBV_WR_SEND);
          break;
        case Kind::read:
          read(test, number);
          break;
        case Kind::order:
          order(test, number);
          break;
      }
    }
    verify_untouched(near_, "the active end's memory");
    talk_.post(talk_.message({Word::end, 0, 0, cases.size(), 0, 0}));
    talk_.complete_all();
  }

 private:
  void one_way(const Case& test, std::size_t number, ibv_wr_opcode opcode) {
    const auto pieces = layout(test.length, test.near_align, test.sges, number);
    fill(near_, pieces, number);
    auto list = scatter(near_, pieces);
    const bool inlined = test.inlined && test.length <= max_inline_;
    if (inlined)
      for (ibv_sge& sge : list) sge.lkey = 0;
    ibv_send_wr data{};
    data.wr_id = talk_.next_id();
    data.sg_list = list.data();
    data.num_sge = test.length == 0 ? (number % 2 == 0 ? 0 : static_cast<int>(list.size()))
                                    : static_cast<int>(list.size());
    data.opcode = opcode;
    data.send_flags = (test.signaled ? IBV_SEND_SIGNALED : 0) | (inlined ? IBV_SEND_INLINE : 0);
    data.wr.rdma.remote_addr = peer_.address + kPage + test.far_align;
    data.wr.rdma.rkey = peer_.rkey;
    talk_.post_control();
    ibv_send_wr& question = talk_.message({Word::check, 0, 0, number, 0, 0});
    if (number % 2 == 0) {
      data.next = &question;
      talk_.post(data);
    } else {
      talk_.post(data);
      if (inlined)  // inlined data may be overwritten as soon as the post returns
        for (const Piece& piece : pieces) std::memset(near_.base + piece.offset, 0xEE, piece.length);
      talk_.post(question);
    }
    talk_.take_message(Word::verdict);
    talk_.complete_all();
    if (!(inlined && number % 2 != 0))
      verify(near_, pieces, number, 0, test, number);  // a source stays as it is
    restore(near_, pieces);
  }

  void read(const Case& test, std::size_t number) {
    const auto pieces = layout(test.length, test.near_align, test.sges, number);
    auto list = scatter(near_, pieces);
    const std::size_t from = kPage / 2 + test.far_align;
    ibv_send_wr request{};
    request.wr_id = talk_.next_id();
    request.sg_list = list.data();
    request.num_sge = static_cast<int>(list.size());
    request.opcode = IBV_WR_RDMA_READ;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = peer_.readable_address + from;
    request.wr.rdma.rkey = peer_.readable_rkey;
    talk_.post(request);
    talk_.complete_all();
    verify(near_, pieces, kReadable, from, test, number);
  }

  // One chain: writes to slots, reads of the same slots (which must see the writes), then a Send, behind a
  // fence, of what the first read brought.
  void order(const Case& test, std::size_t number) {
    std::vector<ibv_send_wr> chain(2 * kSlots + 1);
    std::vector<ibv_sge> sges(chain.size());
    auto near_piece = [&](unsigned which) {
      return Piece{kPage + which * kSlotSize + test.near_align, test.length};
    };
    auto sink_piece = [&](unsigned which) {
      return Piece{kPage + (kSlots + which) * kSlotSize + test.near_align, test.length};
    };
    for (unsigned i = 0; i < chain.size(); ++i) {
      const unsigned which = i % kSlots;
      const Piece piece = i < kSlots ? near_piece(which) : sink_piece(i == 2 * kSlots ? 0 : which);
      if (i < kSlots) fill(near_, std::span(&piece, 1), number * kSlots + which);
      sges[i] = {reinterpret_cast<std::uint64_t>(near_.base + piece.offset),
                 static_cast<std::uint32_t>(piece.length), near_.mr->lkey};
      chain[i].wr_id = talk_.next_id();
      chain[i].sg_list = &sges[i];
      chain[i].num_sge = 1;
      chain[i].opcode = i < kSlots ? IBV_WR_RDMA_WRITE : i < 2 * kSlots ? IBV_WR_RDMA_READ : IBV_WR_SEND;
      chain[i].send_flags = (number + i) % 3 == 0 ? IBV_SEND_SIGNALED : 0;
      if (i == 2 * kSlots) chain[i].send_flags |= IBV_SEND_FENCE;
      chain[i].wr.rdma.remote_addr = peer_.address + slot(test, which).offset;
      chain[i].wr.rdma.rkey = peer_.rkey;
      chain[i].next = i + 1 < chain.size() ? &chain[i + 1] : nullptr;
    }
    talk_.post_control();
    chain.back().next = &talk_.message({Word::check, 0, 0, number, 0, 0});
    talk_.post(chain.front());
    talk_.take_message(Word::verdict);
    talk_.complete_all();
    for (unsigned which = 0; which < kSlots; ++which) {
      const Piece piece = sink_piece(which);
      verify(near_, std::span(&piece, 1), number * kSlots + which, 0, test, number);
      const Piece source = near_piece(which);
      restore(near_, std::span(&source, 1));
    }
  }

  Talk& talk_;
  Message peer_;
  Options options_;
  Area near_;
  std::uint32_t max_inline_;
};

class Verifier {
 public:
  Verifier(Endpoint& end, Talk& talk)
      : talk_(talk),
        far_(end.pd(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ),
        readable_(end.pd(), IBV_ACCESS_REMOTE_READ) {
    for (std::size_t i = 0; i < kArea; ++i) readable_.base[i] = pattern(kReadable, i);
  }

  Message hello() const {
    return {Word::hello,
            far_.mr->rkey,
            readable_.mr->rkey,
            0,
            reinterpret_cast<std::uint64_t>(far_.base),
            reinterpret_cast<std::uint64_t>(readable_.base)};
  }

  // The receives that case `number`, or the first after it that needs one, will use.
  void prepare(std::span<const Case> cases, std::size_t number) {
    while (number < cases.size() && cases[number].kind == Kind::read) ++number;
    if (number < cases.size()) {
      const Case& test = cases[number];
      if (test.kind == Kind::send || test.kind == Kind::order)
        talk_.post_recv(scatter(far_, pieces_of(test, number)), Talk::kData);
    }
    talk_.post_control();
  }

  void run(std::span<const Case> cases) {
    for (std::size_t number = 0; number < cases.size(); ++number) {
      const Case& test = cases[number];
      if (test.kind == Kind::read) continue;
      if (test.kind == Kind::send || test.kind == Kind::order) {
        const std::uint32_t length = talk_.take_recv();
        if (length != test.length)
          die("case %zu: a Send of %zu octets arrives as %u", number, test.length, length);
      }
      const Message question = talk_.take_message(Word::check);
      if (question.number != number)
        die("case %llu is asked for, %zu is next", static_cast<unsigned long long>(question.number), number);
      if (test.kind == Kind::order) {
        for (unsigned which = 0; which < kSlots; ++which) {
          const Piece piece = slot(test, which);
          verify(far_, std::span(&piece, 1), number * kSlots + which, 0, test, number);
        }
        verify(far_, pieces_of(test, number), number * kSlots, 0, test, number);
      } else if (test.kind == Kind::write) {
        const Piece piece{kPage + test.far_align, test.length};
        verify(far_, std::span(&piece, 1), number, 0, test, number);
      } else {
        verify(far_, pieces_of(test, number), number, 0, test, number);
      }
      prepare(cases, number + 1);
      talk_.post(talk_.message({Word::verdict, 0, 0, number, 0, 0}));
      talk_.complete_all();
    }
    talk_.take_message(Word::end);
    verify_untouched(far_, "the verifying end's memory");
    for (std::size_t i = 0; i < kArea; ++i)
      if (readable_.base[i] != pattern(kReadable, i)) die("octet %zu of the readable memory has changed", i);
  }

 private:
  static std::vector<Piece> pieces_of(const Case& test, std::size_t number) {
    if (test.kind == Kind::order) return {{kPage + (kSlots + 1) * kSlotSize + test.far_align, test.length}};
    return layout(test.length, test.far_align, test.sges, number * 3);
  }

  Talk& talk_;
  Area far_, readable_;
};

void hold(Endpoint& end, bool active, bool initiator, const Options& options, const std::vector<Case>& cases,
          void (*establish)(Endpoint&)) {
  Talk talk(end, options.events);
  if (active) {
    talk.post_control();
    establish(end);
    // The end that connects speaks first (RFC 5044 section 7.1.3).
    if (initiator) talk.post(talk.message({Word::hello, 0, 0, 0, 0, 0}));
    Message peer = talk.take_message(Word::hello);
    if (!initiator) talk.post(talk.message({Word::hello, 0, 0, 0, 0, 0}));
    talk.complete_all();
    Active(end, talk, peer, options).run(cases);
    std::printf("patterns: %zu cases\n", cases.size());
  } else {
    Verifier verifier(end, talk);
    talk.post_control();
    verifier.prepare(cases, 0);
    establish(end);
    if (initiator) talk.post(talk.message(verifier.hello()));
    talk.take_message(Word::hello);
    if (!initiator) talk.post(talk.message(verifier.hello()));
    talk.complete_all();
    verifier.run(cases);
    std::printf("patterns: all octets right\n");
  }
}

void serve(apps::Listener& listener, const Options& options, const std::vector<Case>& cases) {
  Endpoint end = listener.request();
  hold(end, options.reverse, false, options, cases, apps::Listener::accept);
}

void call(const std::string& host, const std::string& port, const Options& options,
          const std::vector<Case>& cases) {
  Endpoint end = apps::create(host, port, {});
  hold(end, !options.reverse, true, options, cases, apps::connect);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) die("usage: %s self|server|client HOST PORT [--brief|--few] [--reverse] [--events]", argv[0]);
  const std::string mode = argv[1], host = argv[2], port = argv[3];
  Options options;
  for (int i = 4; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--brief")
      options.brief = true;
    else if (option == "--few")
      options.few = true;
    else if (option == "--reverse")
      options.reverse = true;
    else if (option == "--events")
      options.events = true;
    else
      die("unknown option %s", argv[i]);
  }
  const std::vector<Case> cases = make_cases(options);
  if (mode == "client") {
    call(host, port, options, cases);
  } else if (mode == "server") {
    apps::Listener listener(host, port, {});
    serve(listener, options, cases);
  } else if (mode == "self") {
    apps::Listener listener(host, port, {});
    std::thread server([&] { serve(listener, options, cases); });
    call(host, port, options, cases);
    server.join();
  } else {
    die("unknown mode %s", argv[1]);
  }
  return 0;
}
