// SPDX-License-Identifier: MIT
// "Either this one sees the other, or the other sees this one": each place of the tree that counts on that, as its
// atomic operations in all orders that a weakly ordered processor may give them. Where a weaker order would do harm,
// the model is shown to find it.
#include <catch2/catch.hpp>

#include "tests/unit/memory_model.h"

using namespace uiw::test::model;

TEST_CASE("store then look: the model knows what the memory orders of C++ promise", "[orders]") {
  enum { x, y };
  // Store buffering.
  const auto both_miss = [](Order stores, Order loads) {
    return can_end({{store(x, 1, stores), load(y, 0, loads)}, {store(y, 1, stores), load(x, 1, loads)}}, {},
                   [](const Registers& r, const Values&) { return r[0] == 0 && r[1] == 0; });
  };
  CHECK_FALSE(both_miss(Order::seq_cst, Order::seq_cst));
  CHECK(both_miss(Order::seq_cst, Order::acquire));
  CHECK(both_miss(Order::release, Order::seq_cst));
  // Message passing.
  const auto stale = [](Order stores, Order loads) {
    return can_end(
        {{store(x, 1, Order::relaxed), store(y, 1, stores)}, {load(y, 0, loads), load(x, 1, Order::relaxed)}}, {},
        [](const Registers& r, const Values&) { return r[0] == 1 && r[1] == 0; });
  };
  CHECK_FALSE(stale(Order::release, Order::acquire));
  CHECK(stale(Order::relaxed, Order::acquire));
  CHECK(stale(Order::release, Order::relaxed));
}

// base/grace_period.h with ddp/stag_table.cc and find_qp(): whoever takes something away waits for all that
// may use it.
TEST_CASE("store then look: grace periods", "[orders]") {
  enum { entered, word, period };
  enum { of_reader, found, has_entered };
  const auto used_behind_the_wait = [](Order look, Order period_order) {
    // The reader's section is still open at the end; it has entered with the period it read.
    const Thread reader = {load(period, of_reader, period_order), store(entered, 1).when(of_reader, 1),
                           store(entered, 2).when(of_reader, 2), load(word, found, look)};
    const Thread remover = {store(word, 0), add(period, 1), load(entered, has_entered)};
    return can_end({reader, remover}, {0, 1, 1}, [](const Registers& r, const Values&) {
      const bool waits = r[has_entered] == 1;  // for those of an earlier period
      return r[found] == 1 && !waits;
    });
  };
  CHECK_FALSE(used_behind_the_wait(Order::seq_cst, Order::acquire));
  CHECK(used_behind_the_wait(Order::acquire, Order::acquire));
}

// base/grace_period.cc: a thread's first section, whose slot the remover may not know.
TEST_CASE("store then look: the slot of a thread that is new", "[orders]") {
  enum { slots, entered, word };
  enum { found, knows, has_entered };
  const Thread reader = {add(slots, 1), store(entered, 1), load(word, found)};
  const Thread remover = {store(word, 0), load(slots, knows), load(entered, has_entered)};
  CHECK_FALSE(can_end({reader, remover}, {0, 0, 1}, [](const Registers& r, const Values&) {
    const bool waits = r[knows] == 1 && r[has_entered] == 1;
    return r[found] == 1 && !waits;
  }));
}

// ddp/stag_table.cc: hold_window() and unbind().
TEST_CASE("store then look: accesses through a memory window", "[orders]") {
  enum { holders, word };
  enum { found, counted };
  const auto accessed_behind_the_end = [](Order look) {
    const Thread access = {add(holders, 1), load(word, found, look)};
    const Thread ender = {store(word, 0), load(holders, counted, look)};
    return can_end({access, ender}, {0, 1},
                   [](const Registers& r, const Values&) { return r[found] == 1 && r[counted] == 0; });
  };
  CHECK_FALSE(accessed_behind_the_end(Order::seq_cst));
  CHECK(accessed_behind_the_end(Order::acquire));
}

// Connection::take_result() and Qp::post_receive(); likewise Connection::end(), which flushes, with the state in place
// of the pause.
TEST_CASE("store then look: a stream pauses while a receive is posted", "[orders]") {
  enum { tail, paused };
  enum { there, is_paused };
  const auto left_alone = [](Order push, Order look) {
    const Thread poster = {store(tail, 1, push), load(paused, is_paused)};
    const Thread receiver = {store(paused, 1), load(tail, there, look)};
    return can_end({poster, receiver}, {},
                   [](const Registers& r, const Values&) { return r[there] == 0 && r[is_paused] == 0; });
  };
  CHECK_FALSE(left_alone(Order::seq_cst, Order::seq_cst));
  CHECK(left_alone(Order::release, Order::seq_cst));
  CHECK(left_alone(Order::seq_cst, Order::acquire));
}

// Connection::delegate_to_sending_thread() and Connection::try_stop(): new work is left to the thread that sends.
TEST_CASE("store then look: new work arrives for a sender that is about to stop", "[orders]") {
  enum { sending, news };
  constexpr int kIdle = 0, kBusy = 1, kSendAgain = 2;
  enum { saw_first, stopped, saw_again, asked };
  // The asker sends itself where nobody is busy.
  const Thread asker = {store(news, 1, Order::release), compare_exchange(sending, kBusy, kSendAgain, asked)};
  const Thread sender = {load(news, saw_first, Order::acquire), compare_exchange(sending, kBusy, kIdle, stopped),
                         load(news, saw_again, Order::acquire)};  // which it does if it was asked
  CHECK_FALSE(can_end({asker, sender}, {kBusy, 0}, [=](const Registers& r, const Values&) {
    const bool asker_sends = r[asked] == kIdle;
    const bool sender_has = r[saw_first] == 1 || (r[stopped] == kSendAgain && r[saw_again] == 1);
    return !asker_sends && !sender_has;
  }));
}

// The same where another has asked before, and the sender is about to look once more for that.
TEST_CASE("store then look: more work arrives for a sender that was already asked to try again", "[orders]") {
  enum { sending, news };
  constexpr int kIdle = 0, kBusy = 1, kSendAgain = 2;
  enum { stopped, again, saw, stopped_then, saw_then, asked, asked_then };
  const auto lost = [=](const Registers& r, const Values&) {
    const bool asker_sends = r[asked] == kIdle || (r[asked] == kBusy && r[asked_then] == kIdle);
    const bool sender_has = r[saw] == 1 || (r[stopped_then] == kSendAgain && r[saw_then] == 1);
    const bool asker_tries_again = r[asked] == kBusy && r[asked_then] == kSendAgain;
    return !asker_sends && !sender_has && !asker_tries_again;
  };
  const Thread asker = {store(news, 1, Order::release), compare_exchange(sending, kSendAgain, kSendAgain, asked),
                        compare_exchange(sending, kBusy, kSendAgain, asked_then).when(asked, kBusy)};
  const Thread sender = {compare_exchange(sending, kBusy, kIdle, stopped),
                         compare_exchange(sending, kSendAgain, kBusy, again), load(news, saw, Order::acquire),
                         compare_exchange(sending, kBusy, kIdle, stopped_then), load(news, saw_then, Order::acquire)};
  CHECK_FALSE(can_end({asker, sender}, {kSendAgain, 0}, lost));
  // An asker that writes nothing, and a sender that only stores, would not do.
  const Thread silent = {store(news, 1, Order::release), compare_exchange(sending, kBusy, kSendAgain, asked)};
  const Thread careless = {compare_exchange(sending, kBusy, kIdle, stopped), store(sending, kBusy),
                           load(news, saw, Order::acquire), compare_exchange(sending, kBusy, kIdle, stopped_then),
                           load(news, saw_then, Order::acquire)};
  CHECK(can_end({silent, careless}, {kSendAgain, 0}, [=](const Registers& r, const Values&) {
    return r[asked] == kSendAgain && r[saw] == 0 && r[stopped_then] == kBusy;
  }));
}

// Connection::wait_for_sends(): the receive of an answer does not overtake the completion of the Send. The
// octets on their way are as good as a release and an acquire.
TEST_CASE("store then look: an answer comes before its Send is known to be complete", "[orders]") {
  enum { sending, wire, completions };
  constexpr int kBefore = 0, kBusy = 1, kIdle = 2;
  enum { came, state, complete };
  const Thread sender = {store(sending, kBusy), store(wire, 1, Order::release), add(completions, 1),
                         compare_exchange(sending, kBusy, kIdle, kRegisters)};
  const Thread receiver = {load(wire, came, Order::acquire), load(sending, state), load(completions, complete)};
  CHECK_FALSE(can_end({sender, receiver}, {kBefore}, [=](const Registers& r, const Values&) {
    const bool waits = r[state] == kBusy;
    return r[came] == 1 && !waits && r[complete] == 0;
  }));
}

// Engine::note_deferred() and Engine::event_asked_for(): the progress thread is woken for what waits to be sent.
TEST_CASE("store then look: a send is deferred while the program requests an event", "[orders]") {
  enum { holding, awaited };
  enum { is_awaited, holds };
  const Thread holder = {add(holding, 1), load(awaited, is_awaited)};
  const Thread program = {add(awaited, 1), load(holding, holds)};
  CHECK_FALSE(can_end({holder, program}, {},
                      [](const Registers& r, const Values&) { return r[is_awaited] == 0 && r[holds] == 0; }));
}

// Engine::note_deferred() and Engine::park(): the program does not come back, and the thread watches it no longer.
TEST_CASE("store then look: a send is deferred while the progress thread stops to watch the program", "[orders]") {
  enum { holding, parked };
  enum { is_parked, holds };
  const Thread holder = {add(holding, 1), load(parked, is_parked)};
  const Thread thread = {store(parked, 0), load(holding, holds)};
  CHECK_FALSE(can_end({holder, thread}, {0, 1}, [](const Registers& r, const Values&) {
    const bool holder_wakes = r[is_parked] == 0, thread_sends = r[holds] == 1;
    return !holder_wakes && !thread_sends;
  }));
}

// Engine::event_asked_for() and Engine::park().
TEST_CASE("store then look: the progress thread parks while the program asks for an event", "[orders]") {
  enum { parked, awaited };
  enum { is_awaited, is_parked };
  const Thread thread = {store(parked, 1), load(awaited, is_awaited)};
  const Thread program = {add(awaited, 1), load(parked, is_parked)};
  CHECK_FALSE(can_end({thread, program}, {},
                      [](const Registers& r, const Values&) { return r[is_awaited] == 0 && r[is_parked] == 0; }));
}

// Engine::watch_posts() and Engine::tick(): posts wait, and the progress thread stops to look often.
TEST_CASE("store then look: posts wait while the progress thread turns to longer ticks", "[orders]") {
  enum { watched, watching };
  enum { is_watching, has_watched };
  const Thread poster = {add(watched, 1), load(watching, is_watching)};
  const Thread thread = {store(watching, 0), load(watched, has_watched)};
  CHECK_FALSE(can_end({poster, thread}, {0, 1}, [](const Registers& r, const Values&) {
    const bool poster_wakes = r[is_watching] == 0, thread_sees = r[has_watched] == 1;
    return !poster_wakes && !thread_sees;
  }));
}
