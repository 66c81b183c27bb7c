// SPDX-License-Identifier: MIT
#include <arpa/inet.h>

#include <cstring>

#include "tests/apps/roce/datagrams.h"

namespace apps::datagrams {

namespace {

ibv_sge slot_of(const Memory& memory, std::uint64_t slot) {
  return {number(memory.octets.data() + slot * kSlot), kSlot, memory.mr->lkey};
}

}  // namespace

Device::Device() : context(nullptr) {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(ibv_get_device_name(devices[i]), "uiw_lo") == 0) context = ibv_open_device(devices[i]);
  }
  expect(context != nullptr, "no uiw_lo");
  ibv_free_device_list(devices);
  pd = ibv_alloc_pd(context);
  expect(pd != nullptr, "ibv_alloc_pd");
  ibv_ah_attr attributes{};
  attributes.port_num = 1;
  attributes.is_global = 1;
  expect_error("ibv_query_gid", ibv_query_gid(context, 1, 0, &attributes.grh.dgid), 0);
  self = ibv_create_ah(pd, &attributes);
  expect(self != nullptr, "ibv_create_ah");
}

Device::~Device() {
  expect_error("ibv_destroy_ah", ibv_destroy_ah(self), 0);
  expect_error("ibv_dealloc_pd", ibv_dealloc_pd(pd), 0);
  expect_error("ibv_close_device", ibv_close_device(context), 0);
}

Queue::Queue(const Device& device, int entries) : channel(ibv_create_comp_channel(device.context)) {
  cq = ibv_create_cq(device.context, entries, nullptr, channel, 0);
  expect(channel != nullptr && cq != nullptr, "ibv_create_cq");
}

Queue::~Queue() {
  expect_error("ibv_destroy_cq", ibv_destroy_cq(cq), 0);
  expect_error("ibv_destroy_comp_channel", ibv_destroy_comp_channel(channel), 0);
}

ibv_wc Queue::next(bool sleep) const {
  ibv_wc wc{};
  expect(Endpoint::completion(cq, channel, sleep, wc), "no completion in time");
  expect_status("a completion", wc, IBV_WC_SUCCESS);
  return wc;
}

bool Queue::empty() const {
  ibv_wc wc{};
  return ibv_poll_cq(cq, 1, &wc) == 0;
}

Memory::Memory(const Device& device, std::size_t slots)
    : octets(slots * kSlot), mr(reg(device.pd, octets.data(), octets.size(), IBV_ACCESS_LOCAL_WRITE)) {}

Memory::~Memory() { expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0); }

std::uint64_t Memory::message(std::uint64_t slot) const {
  std::uint64_t value = 0;
  std::memcpy(&value, octets.data() + slot * kSlot + kGrh, sizeof value);
  return value;
}

Qp::Qp(const Device& device, ibv_cq* receives, ibv_srq* srq, ibv_cq* sends, std::uint32_t flags) : to(device.self) {
  ibv_qp_init_attr_ex attributes{};
  attributes.qp_type = IBV_QPT_UD;
  attributes.recv_cq = receives;
  attributes.send_cq = sends == nullptr ? receives : sends;
  attributes.srq = srq;
  attributes.cap = {64, srq == nullptr ? 64U : 0U, 1, srq == nullptr ? 1U : 0U, 64};
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  attributes.pd = device.pd;
  attributes.create_flags = flags;
  qp = made("ibv_create_qp_ex", ibv_create_qp_ex(device.context, &attributes));
  expect_error("INIT", step(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
  expect_error("RTR", step(IBV_QPS_RTR, 0), 0);
  expect_error("RTS", step(IBV_QPS_RTS, IBV_QP_SQ_PSN), 0);
}

void Qp::destroy() {
  if (qp != nullptr) expect_error("ibv_destroy_qp", ibv_destroy_qp(qp), 0);
  qp = nullptr;
}

int Qp::step(ibv_qp_state state, int mask) const {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  attributes.port_num = 1;
  attributes.qkey = kQkey;
  return ibv_modify_qp(qp, &attributes, mask | IBV_QP_STATE);
}

void Qp::receive(const Memory& memory, std::uint64_t slot) const { post_receive(qp, {slot_of(memory, slot)}, slot); }

void receive(ibv_srq* srq, const Memory& memory, std::uint64_t slot) {
  post_receive(srq, {slot_of(memory, slot)}, slot);
}

int Qp::send(std::uint32_t to_number, std::uint64_t message, std::uint64_t wr_id, bool immediate) const {
  return SendRequest(immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, {apps::number(&message), sizeof message, 0}, wr_id,
                     wr_id != 0 ? IBV_SEND_INLINE | IBV_SEND_SIGNALED : IBV_SEND_INLINE)
      .immediate(htonl(static_cast<std::uint32_t>(message)))
      .to(to, to_number, kQkey)
      .try_post(qp);
}

}  // namespace apps::datagrams
