// SPDX-License-Identifier: MIT
#include "kernel-abi/rdma_cm/id/cm_event_source.h"

#include <new>

#include "kernel-abi/rdma_cm/id/cm_groups.h"

namespace uiw::kernel_abi {
namespace {

void put(const CmEventParameters& parameters, rdma_ucm_event_resp& response) {
  if (const auto* connection = std::get_if<rdma_ucm_conn_param>(&parameters)) {
    response.param.conn = *connection;
  } else {
    response.param.ud = std::get<rdma_ucm_ud_param>(parameters);
  }
}

}  // namespace

void CmEventSource::reserve(std::size_t count) {
  while (spare_events_.size() < count) spare_events_.emplace_back();
}

void CmEventSource::post(const std::shared_ptr<CmId>& owner, rdma_ucm_event_resp response) {
  response.uid = uid_;
  response.id = number_;
  try {
    reserve(1);
  } catch (const std::bad_alloc&) {  // can only be thrown if no memory was reserved for the event
    return;
  }
  spare_events_.front() = {owner, nullptr, response, nullptr};
  channel_->post(spare_events_);
}

void CmEventSource::post(const std::shared_ptr<CmId>& owner, CmEventType event, int status,
                         const CmEventParameters& parameters) {
  if (uid_ == 0) return;
  rdma_ucm_event_resp response = {};
  response.event = static_cast<__u32>(event);
  response.status = static_cast<__u32>(status);
  put(parameters, response);
  post(owner, response);
}

void CmEventSource::post_group(const std::shared_ptr<CmId>& owner, const std::shared_ptr<CmGroup>& group,
                               const rdma_ucm_ud_param& parameters) {
  reserve(1);
  rdma_ucm_event_resp response = {};
  response.uid = group->uid;
  response.id = group->number;
  response.event = static_cast<__u32>(CmEventType::multicast_join);
  response.param.ud = parameters;
  spare_events_.front() = {owner, nullptr, response, group};
  channel_->post(spare_events_);
}

void CmEventSource::post_request(const std::shared_ptr<CmId>& owner, const std::shared_ptr<CmId>& child,
                                 std::uint32_t child_number, const CmEventParameters& parameters, CmEvents& event) {
  rdma_ucm_event_resp response = {};
  response.uid = uid_;
  response.id = child_number;
  response.event = static_cast<__u32>(CmEventType::connect_request);
  put(parameters, response);
  event.front() = {owner, child, response, nullptr};
  channel_->post(event);
}

}  // namespace uiw::kernel_abi
