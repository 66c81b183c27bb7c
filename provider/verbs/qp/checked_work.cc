// SPDX-License-Identifier: MIT
#include "provider/verbs/qp/checked_work.h"

#include <utility>

namespace uiw::provider {

void CheckedWork::end_wait(bool has_receive) {
  if (std::exchange(waits_, false)) checker_.message_goes_on(handle_, has_receive);
}

bool CheckedWork::next_receive(rdmap::ReceiveBuffer& buffer) {
  if (!queues_.next_receive(buffer)) {
    if (!std::exchange(waits_, true)) checker_.message_waits(handle_, patience_());
    return false;
  }
  end_wait(true);
  checker_.receive_begins(buffer.id);
  return true;
}

void CheckedWork::await_no_receive() {
  end_wait(false);
  queues_.await_no_receive();
}

void CheckedWork::flush_receives() {
  end_wait(false);
  queues_.flush_receives();
}

void CheckedWork::give_back(const rdmap::ReceiveBuffer& buffer, bool completes) {
  checker_.receive_returned(buffer.id);
  queues_.give_back(buffer, completes);
}

void CheckedWork::receive_complete(const rdmap::ReceiveBuffer& buffer, rdmap::Status status,
                                   const rdmap::ReceiveHost::Message& message) {
  // Immediate Data uses no memory of its receive, and neither does a message without octets.
  if (status == rdmap::Status::success && message.is_send && message.length > 0) {
    checker_.receive_filled(buffer.id, message.length);
  } else {
    checker_.receive_returned(buffer.id);
  }
  queues_.receive_complete(buffer, status, message);
}

}  // namespace uiw::provider
