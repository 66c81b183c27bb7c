// SPDX-License-Identifier: MIT
#include "provider/verbs/qp/checked_work.h"

#include <optional>
#include <utility>

namespace uiw::provider {

bool CheckedWork::next_receive(rdmap::ReceiveBuffer& buffer) {
  if (!queues_.next_receive(buffer)) {
    if (!std::exchange(waits_, true)) checker_.message_waits(handle_);
    return false;
  }
  if (std::exchange(waits_, false)) checker_.message_goes_on(handle_, patience_());
  checker_.receive_begins(buffer.id);
  return true;
}

void CheckedWork::await_no_receive() {
  if (std::exchange(waits_, false)) checker_.message_goes_on(handle_, std::nullopt);
  queues_.await_no_receive();
}

void CheckedWork::receive_complete(const rdmap::ReceiveBuffer& buffer, rdmap::Status status,
                                   const rdmap::ReceiveHost::Message& message) {
  // Immediate Data uses no memory of its receive.
  if (status == rdmap::Status::success && message.is_send) checker_.receive_filled(buffer.id);
  queues_.receive_complete(buffer, status, message);
}

}  // namespace uiw::provider
