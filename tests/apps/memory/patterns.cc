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
#include <algorithm>
#include <thread>

#include "tests/apps/memory/patterns_memory.h"
#include "tests/apps/memory/patterns_talk.h"

namespace apps::patterns {

namespace {

constexpr unsigned kSlots = 12;  // of an ordering round
constexpr std::size_t kSlotSize = 2048;

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
        case Kind::write: one_way(test, number, IBV_WR_RDMA_WRITE); break;
        case Kind::send: one_way(test, number, IBV_WR_SEND); break;
        case Kind::read: read(test, number); break;
        case Kind::order: order(test, number); break;
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
    data.num_sge =
        test.length == 0 ? (number % 2 == 0 ? 0 : static_cast<int>(list.size())) : static_cast<int>(list.size());
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
    if (!(inlined && number % 2 != 0)) verify(near_, pieces, number, 0, test, number);  // a source stays as it is
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
    auto near_piece = [&](unsigned which) { return Piece{kPage + which * kSlotSize + test.near_align, test.length}; };
    auto sink_piece = [&](unsigned which) {
      return Piece{kPage + (kSlots + which) * kSlotSize + test.near_align, test.length};
    };
    for (unsigned i = 0; i < chain.size(); ++i) {
      const unsigned which = i % kSlots;
      const Piece piece = i < kSlots ? near_piece(which) : sink_piece(i == 2 * kSlots ? 0 : which);
      if (i < kSlots) fill(near_, std::span(&piece, 1), number * kSlots + which);
      sges[i] = {reinterpret_cast<std::uint64_t>(near_.base + piece.offset), static_cast<std::uint32_t>(piece.length),
                 near_.mr->lkey};
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
        if (length != test.length) die("case %zu: a Send of %zu octets arrives as %u", number, test.length, length);
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
          void (*establish)(Endpoint&, rdma_conn_param)) {
  Talk talk(end, options.events);
  if (active) {
    talk.post_control();
    establish(end, connection_parameters());
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
    establish(end, connection_parameters());
    if (initiator) talk.post(talk.message(verifier.hello()));
    talk.take_message(Word::hello);
    if (!initiator) talk.post(talk.message(verifier.hello()));
    talk.complete_all();
    verifier.run(cases);
    std::printf("patterns: all octets right\n");
  }
}

void serve(Listener& listener, const Options& options, const std::vector<Case>& cases) {
  Endpoint end = listener.request();
  hold(end, options.reverse, false, options, cases, accept);
}

void call(const std::string& host, const std::string& port, const Options& options, const std::vector<Case>& cases) {
  Endpoint end = create(host, port, {});
  hold(end, !options.reverse, true, options, cases, connect);
}

Options parse(int argc, char** argv) {
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
  return options;
}

void run(int argc, char** argv) {
  if (argc < 4) die("usage: %s self|server|client HOST PORT [--brief|--few] [--reverse] [--events]", argv[0]);
  const std::string mode = argv[1], host = argv[2], port = argv[3];
  const Options options = parse(argc, argv);
  const std::vector<Case> cases = make_cases(options);
  if (mode == "client") {
    call(host, port, options, cases);
  } else if (mode == "server") {
    Listener listener(host, port, {});
    serve(listener, options, cases);
  } else if (mode == "self") {
    Listener listener(host, port, {});
    std::thread server([&] { serve(listener, options, cases); });
    call(host, port, options, cases);
    server.join();
  } else {
    die("unknown mode %s", argv[1]);
  }
}

}  // namespace

}  // namespace apps::patterns

int main(int argc, char** argv) {
  apps::patterns::run(argc, argv);
  return 0;
}
