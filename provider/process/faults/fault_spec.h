// SPDX-License-Identifier: MIT
// The syntax of UIW_FAULT, by which a user injects faults:
//
//   RULE[,RULE...]     RULE: WHAT[@WHEN], or seed=NUMBER
//
//   WHAT   send=STATUS, recv=STATUS   a completion of a send or receive queue has this status of ibv_wc_status
//          disconnect                 the connection is lost
//          event=EVENT                an asynchronous event of ibv_event_type is reported
//          CALL=ERRNO                 a call of libibverbs fails: reg_mr=ENOMEM
//          delay=MILLISECONDS         a completion can be polled only after this time has passed
//          lost_event                 a completion queue does not give the event that was requested
//   WHEN   N, N+, every:N, random:N, or the name of a signal (see FaultTime); 1 if it is missing
//
// Names are those of the verbs and signal headers; prefix and capitals are optional. docs/man/uiw.7.rst has the
// details.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace uiw::provider {

enum class FaultKind : std::uint8_t { send, receive, disconnect, event, call, delay, lost_event };

// At which operations a rule is due, that is, causes its fault. Each rule counts the operations to which it applies,
// from 1 on. `number` is FaultRule::number.
enum class FaultTime : std::uint8_t {
  once,    // operation `number` only
  from,    // operation `number` and all later ones
  every,   // each operation whose number is a multiple of `number`
  random,  // each operation with probability 1 in `number`; the seed decides which
  signal,  // the next operation after each signal `number`; `disconnect` and `event` act at the signal itself
};

struct FaultRule {
  FaultKind kind = FaultKind::send;
  int value = 0;     // an ibv_wc_status, an ibv_event_type, an errno, or milliseconds
  std::string call;  // for FaultKind::call: the name of the call, without "ibv_"
  FaultTime time = FaultTime::once;
  std::uint64_t number = 1;
  std::string text;  // the rule as the user has written it
};

struct FaultPlan {
  std::vector<FaultRule> rules;
  std::uint64_t seed = 1;
};

// Parses `text` into `plan`. Returns an empty string, or a message for people about the first rule that is wrong.
// Throws std::bad_alloc.
std::string parse_faults(std::string_view text, FaultPlan& plan);

// The calls of libibverbs that a rule can make fail.
std::span<const char* const> fault_calls();

}  // namespace uiw::provider
