// SPDX-License-Identifier: MIT
// The state that both directions of a stream share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/stream/shared_stream.h"
#include "base/stream/tcp_stream.h"
#include "provider/process/log.h"
#include "provider/stream/stream_host.h"
#include "rdmap/connection_rules.h"
#include "rdmap/read_queue.h"

namespace uiw::provider {

class Engine;

enum class StreamPhase : std::uint8_t {
  running,
  closing,    // orderly end: what is posted is sent, then FIN
  lingering,  // the FPDU in progress and a Terminate are sent; what arrives is dropped
  gone,       // a manual connection whose peer has left; no work has failed for that yet
  ended,
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
  const rdmap::ConnectionRules rules;

  // Moved, opened and closed with both locks held. The connection lives as long as the stream, also where octets go
  // through memory that the peer shares.
  TcpStream socket;
  std::unique_ptr<SharedStream> shared;  // null: the octets go by TCP
  // Changes with both locks held.
  std::atomic<StreamPhase> phase{StreamPhase::running};
  alignas(64) rdmap::SharedReads reads;

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

}  // namespace uiw::provider
