// SPDX-License-Identifier: MIT
#include "provider/process/faults/fault_spec.h"

#include <infiniband/verbs.h>
#include <signal.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <string>

using namespace uiw::provider;

namespace {

FaultRule rule(const std::string& text) {
  FaultPlan plan;
  INFO(text);
  REQUIRE(parse_faults(text, plan) == "");
  REQUIRE(plan.rules.size() == 1);
  CHECK(plan.rules[0].text == text);
  return plan.rules[0];
}

std::string refused(const std::string& text) {
  FaultPlan plan;
  return parse_faults(text, plan);
}

}  // namespace

TEST_CASE("fault_spec: what can be asked for, in the names of the headers", "[fault_spec]") {
  for (const char* text : {"send=REM_ACCESS_ERR", "send=rem-access-err", "send=IBV_WC_REM_ACCESS_ERR"}) {
    CHECK(rule(text).kind == FaultKind::send);
    CHECK(rule(text).value == IBV_WC_REM_ACCESS_ERR);
  }
  CHECK(rule("recv=LOC_LEN_ERR").kind == FaultKind::receive);
  CHECK(rule("recv=LOC_LEN_ERR").value == IBV_WC_LOC_LEN_ERR);
  CHECK(rule("disconnect").kind == FaultKind::disconnect);
  CHECK(rule("event=device-fatal").kind == FaultKind::event);
  CHECK(rule("event=IBV_EVENT_PORT_ERR").value == IBV_EVENT_PORT_ERR);
  CHECK(rule("reg_mr=ENOMEM").kind == FaultKind::call);
  CHECK(rule("reg_mr=ENOMEM").call == "reg_mr");
  CHECK(rule("ibv_reg_mr=enomem").call == "reg_mr");
  CHECK(rule("ibv_reg_mr=enomem").value == ENOMEM);
  CHECK(rule("delay=20").value == 20);
  CHECK(rule("delay=20ms").kind == FaultKind::delay);
  CHECK(rule("lost-event").kind == FaultKind::lost_event);
  CHECK(rule("lost_event@3").number == 3);
  for (const char* const call : fault_calls()) CHECK(rule(std::string(call) + "=EIO").call == call);
}

TEST_CASE("fault_spec: when it happens", "[fault_spec]") {
  struct Row {
    const char* text;
    FaultTime time;
    std::uint64_t number;
  };
  const Row rows[] = {
      {"disconnect", FaultTime::once, 1},
      {"disconnect@7", FaultTime::once, 7},
      {"disconnect@7+", FaultTime::from, 7},
      {"disconnect@every:3", FaultTime::every, 3},
      {"disconnect@random:1000", FaultTime::random, 1000},
      {"disconnect@USR1", FaultTime::signal, SIGUSR1},
      {"disconnect@sigusr2", FaultTime::signal, SIGUSR2},
      {"disconnect@18446744073709551615", FaultTime::once, ~std::uint64_t{0}},
  };
  for (const Row& row : rows) {
    CHECK(rule(row.text).time == row.time);
    CHECK(rule(row.text).number == row.number);
  }
}

TEST_CASE("fault_spec: several rules, and the seed", "[fault_spec]") {
  FaultPlan plan;
  REQUIRE(parse_faults("send=FATAL_ERR@2,seed=42,post_send=EAGAIN@random:5", plan) == "");
  CHECK(plan.rules.size() == 2);
  CHECK(plan.seed == 42);
  REQUIRE(parse_faults("", plan) == "");
  CHECK((plan.rules.empty() && plan.seed == 1));
}

TEST_CASE("fault_spec: what is wrong is named", "[fault_spec]") {
  for (const char* text : {"sent=FATAL_ERR", "reg_mrs=ENOMEM", "disconnect=1", "=ENOMEM", "create_flow=EIO", ",", " "})
    CHECK(refused(text).find("is no fault, and no call of libibverbs that can fail") != std::string::npos);
  for (const char* text : {"send", "send=", "send=SUCCESS", "send=ENOMEM", "recv=11", "event=CQ_ERR", "reg_mr=12",
                           "reg_mr=REM_OP_ERR", "delay=0", "delay=600001", "delay=1s", "delay=-1"})
    CHECK(refused(text).find("has no status, event, errno or time that is known behind '='") != std::string::npos);
  for (const char* text : {"disconnect@", "disconnect@0", "disconnect@-1", "disconnect@every:0", "disconnect@random:",
                           "disconnect@KILL", "disconnect@1++", "disconnect@18446744073709551616", "disconnect@1@2"})
    CHECK(refused(text).find("behind '@'") != std::string::npos);
  for (const char* text : {"seed=", "seed=a", "seed=1@2"})
    CHECK(refused(text).find("has no number") != std::string::npos);
  CHECK(refused("disconnect,send=x,reg_mr=ENOMEM").starts_with("'send=x' "));
}
