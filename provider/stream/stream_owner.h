// SPDX-License-Identifier: MIT
#pragma once

namespace uiw::provider {

// The connection that has set a stream up, and is told when the stream is established and when it ends. The functions
// are called on any thread, with locks of the stream held and its socket open, so they may only record what has
// happened. stream_ended() is called when the end begins, before the peer gets to know it; who then waits for the
// receiver's lock finds all work flushed. The stream shares ownership of its owner until then.
class StreamOwner {
 public:
  virtual ~StreamOwner() = default;
  virtual void stream_established() noexcept = 0;
  virtual void stream_ended() noexcept = 0;
};

}  // namespace uiw::provider
