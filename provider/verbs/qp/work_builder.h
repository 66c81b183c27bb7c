// SPDX-License-Identifier: MIT
// From ibv_send_wr and its relatives to entries of a send queue. What their manual pages promise an errno for is
// checked here; what else is wrong with a request shows in its turn, and it completes in error.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <variant>

#include "rdmap/work.h"

namespace uiw::provider {

class WorkBuilder {
 public:
  // What the stream can do, as far as it is known: work may be posted before there is one.
  struct Abilities {
    bool send_immediate = true, reads = true;
  };
  // What ibv_send_wr cannot say of a request (uiwdv.h): the numbers of an atomic operation, or that Immediate Data
  // stands alone.
  using Extension = std::variant<std::monostate, rdmap::AtomicOperands, rdmap::Immediate>;

  // The queue must remain live as long as this. `domain` is what the requests name memory of; `signal_all`: sq_sig_all.
  WorkBuilder(rdmap::SendQueue& queue, const void* domain, bool signal_all)
      : queue_(queue), domain_(domain), signal_all_(signal_all) {}

  // These fill in the entry `sequence`, at or behind the tail of the queue, which has room for it. 0, or the errno of
  // ibv_post_send. The sender's lock is held, or the entry is of an open batch; inside a ReadSection.
  int build(std::uint64_t sequence, const ibv_send_wr& request, const Abilities& abilities);
  int extend(std::uint64_t sequence, const Extension& extension);
  int build_bind(std::uint64_t sequence, std::uint64_t id, unsigned flags, const ibv_mw& mw, std::uint32_t rkey,
                 const ibv_mw_bind_info& info);

 private:
  rdmap::SendWork& fresh(std::uint64_t sequence, rdmap::WorkKind kind, std::uint64_t id, unsigned flags);
  int build_local(std::uint64_t sequence, const ibv_send_wr& request);
  int build_atomic(std::uint64_t sequence, const ibv_send_wr& request);
  int take_octets(std::uint64_t sequence, const ibv_send_wr& request);
  void name_memory(std::uint64_t sequence, const ibv_send_wr& request);

  rdmap::SendQueue& queue_;
  const void* const domain_;
  const bool signal_all_;
};

}  // namespace uiw::provider
