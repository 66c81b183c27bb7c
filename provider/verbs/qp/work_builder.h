// SPDX-License-Identifier: MIT
// Turns ibv_send_wr and similar requests into entries of a send queue. It checks what the manual pages define an errno
// for. Other errors in a request show when it is processed, and it completes in error.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <variant>

#include "rdmap/work.h"

namespace uiw::provider {

class WorkBuilder {
 public:
  // What the stream supports, as far as it is known: work may be posted before there is a stream.
  struct Abilities {
    bool send_immediate = true, reads = true;
  };
  // What ibv_send_wr cannot express (uiwdv.h): the operands of a masked atomic operation, or that Immediate Data is
  // sent without a Write.
  using Extension = std::variant<std::monostate, rdmap::AtomicOperands, rdmap::Immediate>;

  // The queue must remain live as long as this object. `memory`: of the requests; `signal_all`:
  // sq_sig_all.
  WorkBuilder(rdmap::SendQueue& queue, const ddp::Accessor& memory, bool signal_all)
      : queue_(queue), memory_(memory), signal_all_(signal_all) {}

  // These functions fill in the entry `sequence`, at or behind the tail of the queue, for which there is room. 0, or
  // the errno of ibv_post_send. Called inside a ReadSection, and with the sender's lock held, except for entries of an
  // open batch.
  int build(std::uint64_t sequence, const ibv_send_wr& request, const Abilities& abilities);
  int extend(std::uint64_t sequence, const Extension& extension);
  // Of `rkey` only the key counts, the low 8 bits; the index is that of the window. On success a window of type 1 has
  // its new rkey.
  int build_bind(std::uint64_t sequence, std::uint64_t id, unsigned flags, ibv_mw& mw, std::uint32_t rkey,
                 const ibv_mw_bind_info& info);

 private:
  rdmap::SendWork& fresh(std::uint64_t sequence, rdmap::WorkKind kind, std::uint64_t id, unsigned flags);
  int build_local(std::uint64_t sequence, const ibv_send_wr& request);
  int build_atomic(std::uint64_t sequence, const ibv_send_wr& request);
  int take_octets(std::uint64_t sequence, const ibv_send_wr& request);
  void name_memory(std::uint64_t sequence, const ibv_send_wr& request);

  rdmap::SendQueue& queue_;
  const ddp::Accessor& memory_;
  ddp::KnownPlace known_;
  const bool signal_all_;
};

}  // namespace uiw::provider
