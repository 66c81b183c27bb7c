// SPDX-License-Identifier: MIT
#pragma once

namespace uiw::provider {

// Who set a stream up and wants to know of its fate. Called on any thread, with locks of the stream held: it may note
// the news, and do nothing else. The stream keeps it alive until it has ended.
class StreamOwner {
 public:
  virtual ~StreamOwner() = default;
  virtual void stream_established() noexcept = 0;
  virtual void stream_ended() noexcept = 0;
};

}  // namespace uiw::provider
