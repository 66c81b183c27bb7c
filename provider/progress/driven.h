// SPDX-License-Identifier: MIT
// What the engine knows of a queue pair: how to move its octets, and when its deferred sends go out. Qp is the only one
// there is; through this interface the engine can stand below it.
//
// Thread-safe. A queue pair that was found by its number, or among those of an engine, lives until the ReadSection
// closes inside which that was done.
#pragma once

#include <cstdint>

#include "provider/progress/driver.h"

namespace uiw::provider {

class DeferredSends {
 public:
  // Are there deferred sends: posts that wait for the next ones, or a probe? They are sent at the latest when the
  // program waits for a completion.
  virtual bool has_deferred() const = 0;
  virtual bool posts_wait() const = 0;
  // Posts that wait are sent: the program polls. These three leave it to a thread that is sending or posting.
  virtual void send_waiting_posts() = 0;
  // The program has polled in vain: these posts are sent, and a probe if one is due.
  virtual void send_all_deferred() = 0;
  // The progress thread has ticked: posts are sent for which the program has not come back in time.
  virtual void send_overdue_posts() = 0;

 protected:
  ~DeferredSends() = default;
};

class Driven {
 public:
  explicit Driven(DeferredSends& sends) : sends_(sends) {}

  // By which the events of its socket name it.
  virtual std::uint32_t number() const = 0;
  // Moves what can be moved now; true if anything was. A stream for which there is no memory ends.
  virtual bool progress(Driver driver) noexcept = 0;
  // Something about its stream needed memory that is not to be had: the stream ends.
  virtual void no_memory() noexcept = 0;
  DeferredSends& sends() { return sends_; }
  const DeferredSends& sends() const { return sends_; }

  unsigned idle_rounds = 0;  // the engine's note: polls in a row without work

 protected:
  ~Driven() = default;

 private:
  DeferredSends& sends_;
};

// The queue pair with this number, or null. Inside a ReadSection.
using FindDriven = Driven* (*)(std::uint32_t number);

}  // namespace uiw::provider
