// SPDX-License-Identifier: MIT
// The work queues of a queue pair in a process that is checked (provider/check/): as WorkQueues, and tells the Checker
// when a message finds no receive, and when it is placed into the memory of one.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "provider/check/checker.h"
#include "provider/connection/connection_host.h"

namespace uiw::provider {

class CheckedWork final : public ConnectionWork {
 public:
  // `patience` says how long a message may wait for a receive at an adapter (check::Checker::message_waits()).
  using Patience = std::function<std::optional<std::chrono::microseconds>()>;
  CheckedWork(ConnectionWork& queues, const ibv_qp& handle, check::Checker& checker, Patience patience)
      : queues_(queues), handle_(handle), checker_(checker), patience_(std::move(patience)) {}

  void send_complete(const rdmap::SendWork& work, rdmap::Status status) override;
  rdmap::Status carry_out(const rdmap::SendWork& work, const ddp::Binding& binding) override {
    return queues_.carry_out(work, binding);
  }
  bool next_receive(rdmap::ReceiveBuffer& buffer) override;
  void receive_complete(const rdmap::ReceiveBuffer& buffer, rdmap::Status status,
                        const rdmap::ReceiveHost::Message& message) override;
  std::optional<rdmap::ErrorCode> invalidate(rdmap::Stag stag) override { return queues_.invalidate(stag); }
  void await_no_receive() override;
  bool receive_there() const override { return queues_.receive_there(); }
  void give_back(const rdmap::ReceiveBuffer& buffer, bool completes) override;
  void flush_receives() override;
  const void* choose_queue(std::uint64_t number) override { return queues_.choose_queue(number); }
  void refuses(const rdmap::Terminate& terminate) override { checker_.refuses(handle_, terminate); }
  void write_comes(const rdmap::ReceiveHost::Part& part) override;
  void answer_comes(std::uint64_t id) override { checker_.sink_begins(id); }
  bool execute(const rdmap::AtomicRequest& request, std::byte* memory, std::uint64_t& original) override {
    return checker_.execute(request, memory, original);
  }
  bool make_persistent(std::byte* memory, std::uint64_t length) override {
    return queues_.make_persistent(memory, length);
  }
  void is_refused(const rdmap::Terminate& terminate) override { checker_.is_refused(handle_, terminate); }

 private:
  void end_wait(bool has_receive);

  ConnectionWork& queues_;
  const ibv_qp& handle_;
  check::Checker& checker_;
  const Patience patience_;
  bool waits_ = false;
  // What has come of the peer's Write that is under way, as far as it is looked at.
  std::vector<check::Checker::Placed> placed_{};
  std::size_t watched_ = 0;  // octets of it
};

}  // namespace uiw::provider
