// SPDX-License-Identifier: MIT
// The state that both directions of a stream share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/stream/shared_stream.h"
#include "base/stream/tcp_stream.h"
#include "mpa/startup.h"
#include "provider/process/log.h"
#include "provider/stream/stream_host.h"
#include "rdmap/read_queue.h"

namespace uiw::provider {

class Engine;

// How connections differ.
struct StreamPolicy {
  // A manual connection: the program counts on the rules of InfiniBand, where only work that cannot get to the peer
  // shows that the connection has ended.
  bool manual = false;
  bool reliable = true;  // IBV_QPT_RC
  bool one_cq = false;   // sends and receives complete to the same completion queue
};

enum class StreamPhase : std::uint8_t {
  running,
  closing,    // orderly end: what is posted is sent, then FIN
  lingering,  // the FPDU in progress and a Terminate are sent; what arrives is dropped
  gone,       // a manual connection whose peer has left; no work has failed for that yet
  ended,
};

struct StreamAgreement {
  mpa::Agreement agreement;
  bool initiator = false;
  bool hello = false;  // the ready-to-receive message says that this end is uiw
  std::size_t mulpdu = 0;
  std::size_t mulpdu_to_uiw = 0;  // once the peer turns out to be uiw
  bool shared_octets = false;     // octets may come from memory that the peer can change
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

  // Moved, opened and closed with both locks held. The connection lives as long as the stream, also where octets go
  // through memory that the peer shares.
  TcpStream socket;
  std::unique_ptr<SharedStream> shared;  // null: the octets go by TCP
  // Changes with both locks held.
  std::atomic<StreamPhase> phase{StreamPhase::running};
  alignas(64) rdmap::SharedReads reads;
  // Changes from `not_known`, and again if the peer is silent at first, with the receiver's lock held.
  std::atomic<mpa::PeerKind> peer{agreed.agreement.peer};

  ByteStream& octets() { return shared ? static_cast<ByteStream&>(*shared) : socket; }
  const ByteStream& octets() const { return shared ? static_cast<const ByteStream&>(*shared) : socket; }
  bool runs() const { return phase == StreamPhase::running; }
  bool runs_or_closes() const { return phase == StreamPhase::running || phase == StreamPhase::closing; }
};

// The line about the connection is written before both ends have agreed on shared memory.
inline void log_way(const StreamState& state, bool shared_memory) {
  log_event(LogLevel::info, "queue pair 0x%06x: its octets go through %s", state.qp_number,
            shared_memory ? "shared memory" : "TCP");
}

inline rdmap::Reports reports_of(const StreamState& state) {
  return state.policy.manual ? rdmap::Reports::always : rdmap::Reports::on_request;
}

}  // namespace uiw::provider
