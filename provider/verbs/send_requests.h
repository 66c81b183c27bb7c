// SPDX-License-Identifier: MIT
// How a program hands send requests to a queue pair of any type. Thread-safe, except that between begin_batch() and
// end_batch() or abort_batch() only the thread that builds the batch may call the other functions.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace uiw::provider {

class SendRequests {
 public:
  // As the manual page of ibv_post_send says: 0 or an errno, with the first bad request.
  virtual int post(ibv_send_wr* requests, ibv_send_wr** bad) = 0;
  // ibv_bind_mw: 0 or an errno. On success `mw` has its new rkey.
  virtual int post_bind(ibv_mw& mw, const ibv_mw_bind& bind) = 0;

  // ibv_wr_start ... ibv_wr_complete or ibv_wr_abort. Others that post to this queue pair meanwhile wait.
  virtual void begin_batch() = 0;
  virtual void add(const ibv_send_wr& request) = 0;
  // ibv_wr_set_ud_addr, for the request that was added last.
  virtual void address_last(const ibv_ah* /*handle*/, std::uint32_t /*number*/, std::uint32_t /*qkey*/) {}
  virtual int end_batch() = 0;  // 0, or an errno and nothing of the batch is posted
  virtual void abort_batch() = 0;

 protected:
  ~SendRequests() = default;
};

}  // namespace uiw::provider
