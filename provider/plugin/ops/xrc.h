// SPDX-License-Identifier: MIT
// XRC domains, and further handles of XRC_RECV queue pairs (ibv_open_qp). Only RoCE devices have XRC (Transport::roce).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>

#include "provider/plugin/objects.h"
#include "provider/verbs/xrc_domain.h"

namespace uiw::plugin {

// A handle of a domain.
struct Xrcd : Handle {
  ibv_xrcd base;
  std::shared_ptr<rnic::XrcDomain> rnic;
  std::atomic<int> users{0};  // shared receive queues and handles of queue pairs that were made with this handle
};
inline Xrcd* of(ibv_xrcd* xrcd) { return reinterpret_cast<Xrcd*>(xrcd); }

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attributes);
int close_xrcd(ibv_xrcd* xrcd);
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attributes);

}  // namespace uiw::plugin
