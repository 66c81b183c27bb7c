// SPDX-License-Identifier: MIT
// What both directions of a stream look at.
#pragma once

#include <atomic>
#include <cstdint>

#include "mpa/startup.h"
#include "mpa/tcp_stream.h"
#include "provider/stream/stream_host.h"
#include "rdmap/read_queue.h"

namespace uiw::provider {

class Engine;

// What differs between connections.
struct StreamPolicy {
  // The program connects the queue pair itself (ibv_modify_qp), and counts on the rules of InfiniBand: an end of the
  // connection is noticed by the work that cannot get to the peer, and by nothing else.
  bool manual = false;
  bool reliable = true;  // IBV_QPT_RC
  bool one_cq = false;   // for sends and receives
};

enum class StreamPhase : std::uint8_t {
  running,
  closing,    // our side has sent, or will send, its last octet
  lingering,  // in error: the FPDU in progress and a Terminate go out, what comes in is dropped
  gone,       // a manual connection whose peer has left; nobody has noticed yet
  ended,
};

struct StreamAgreement {
  mpa::Agreement agreement;
  bool initiator = false;
  std::size_t mulpdu = 0;
};

// References must remain live as long as the stream.
struct StreamState {
  StreamWork& work;
  StreamHost& host;
  Engine& engine;
  StreamLocks& locks;
  StreamSignals& signals;
  rdmap::SendQueue& sends;
  const std::uint32_t qp_number;
  const StreamPolicy policy;
  const StreamAgreement agreed;

  mpa::TcpStream socket;  // moved, opened and closed with both locks
  std::atomic<StreamPhase> phase{
      StreamPhase::running};  // changes with both, but for the step to closing, with the sender's
  alignas(64) rdmap::SharedReads reads;

  bool runs() const { return phase == StreamPhase::running; }
  bool runs_or_closes() const { return phase == StreamPhase::running || phase == StreamPhase::closing; }
};

// Older releases, which know no Send with Immediate, know no reports.
inline rdmap::Reports reports_of(const StreamState& state) {
  if (state.policy.manual) return rdmap::Reports::always;
  return state.agreed.agreement.send_with_immediate ? rdmap::Reports::on_request : rdmap::Reports::none;
}

}  // namespace uiw::provider
