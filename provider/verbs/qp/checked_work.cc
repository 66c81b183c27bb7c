// SPDX-License-Identifier: MIT
#include "provider/verbs/qp/checked_work.h"

#include <new>
#include <utility>

#include "provider/check/program_memory.h"

namespace uiw::provider {

void CheckedWork::send_complete(const rdmap::SendWork& work, rdmap::Status status) {
  if (rdmap::is_answered(work.kind) && status == rdmap::Status::success) {
    checker_.sink_filled(work.id, work.length);
  } else if (rdmap::is_answered(work.kind)) {
    checker_.sink_returned(work.id);
  }
  queues_.send_complete(work, status);
}

// What has been placed is the peer's until its last segment comes. After that the program may use it as soon as it sees
// it, so that this is the last moment to look.
void CheckedWork::write_comes(const rdmap::ReceiveHost::Part& part) {
  constexpr std::size_t kMostWatched = 1024 * 1024, kMostParts = 1024;
  const auto key = static_cast<std::uint32_t>(part.stag);
  const auto length = static_cast<std::uint32_t>(part.payload.size());
  checker_.is_written(key, part.offset, length);
  // Those of a Write that has never ended may be left, since its connection has.
  if (part.first) placed_.clear(), watched_ = 0;
  if (part.last) {
    if (!placed_.empty()) checker_.look_at_target(handle_, placed_);
    return placed_.clear();
  }
  if (placed_.size() == kMostParts || watched_ + length > kMostWatched) return;
  // The octets may be in memory that the peer shares.
  const auto checksum = check::checksum_of(reinterpret_cast<std::uintptr_t>(part.payload.data()), length);
  if (!checksum) return;
  watched_ += length;
  try {
    placed_.push_back({key, part.offset, length, *checksum});
  } catch (const std::bad_alloc&) {
    placed_.clear();
  }
}

void CheckedWork::end_wait(bool has_receive) {
  if (std::exchange(waits_, false)) checker_.message_goes_on(handle_, has_receive);
}

bool CheckedWork::next_receive(rdmap::ReceiveBuffer& buffer) {
  if (!queues_.next_receive(buffer)) {
    if (!std::exchange(waits_, true)) checker_.message_waits(handle_, patience_());
    return false;
  }
  end_wait(true);
  checker_.sink_begins(buffer.id);
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
  checker_.sink_returned(buffer.id);
  queues_.give_back(buffer, completes);
}

void CheckedWork::receive_complete(const rdmap::ReceiveBuffer& buffer, rdmap::Status status,
                                   const rdmap::ReceiveHost::Message& message) {
  // Immediate Data uses no memory of its receive, and neither does a message without octets.
  if (status == rdmap::Status::success && message.is_send && message.length > 0) {
    checker_.sink_filled(buffer.id, message.length);
  } else {
    checker_.sink_returned(buffer.id);
  }
  queues_.receive_complete(buffer, status, message);
}

}  // namespace uiw::provider
