// SPDX-License-Identifier: MIT
// What a program does with an adapter, from its first call to its last, where any of its calls may fail.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace faults {

// A call that failed, or a wait in vain; ends a life.
struct Trouble {
  std::string what;
  int error = 0;  // of a call
};

inline void must(bool good, const char* what) {
  if (!good) throw Trouble{what, errno};
}
inline void must_be_0(int error, const char* what) {
  if (error != 0) throw Trouble{what, error};
}

// Calls that give something back and failed: they are made once more, since otherwise the program could not go on.
inline std::vector<Trouble> g_not_given_back;
void give_back(const char* what, const std::function<int()>& call);

// An object of verbs, which is destroyed in the end. `Destroy` returns 0 or an errno.
template <typename Object>
class Owned {
 public:
  Owned() = default;
  Owned(Object* object, const char* made_by, int (*destroy)(Object*), const char* destroyed_by)
      : object_(object), destroy_(destroy), destroyed_by_(destroyed_by) {
    must(object != nullptr, made_by);
  }
  Owned(Owned&& other) noexcept { *this = std::move(other); }
  Owned& operator=(Owned&& other) noexcept {
    reset();
    object_ = std::exchange(other.object_, nullptr);
    destroy_ = other.destroy_;
    destroyed_by_ = other.destroyed_by_;
    return *this;
  }
  ~Owned() { reset(); }
  void reset() {
    if (Object* const object = std::exchange(object_, nullptr); object != nullptr)
      give_back(destroyed_by_, [&] { return destroy_(object); });
  }
  Object* get() const { return object_; }
  Object* operator->() const { return object_; }

 private:
  Object* object_ = nullptr;
  int (*destroy_)(Object*) = nullptr;
  const char* destroyed_by_ = nullptr;
};

#define FAULTS_OWN(make, destroy, ...) \
  { make(__VA_ARGS__), #make, destroy, #destroy }

class Life {
 public:
  Life() = default;
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;
  virtual ~Life() = default;
  virtual void make() = 0;  // throws Trouble, as the others do
  virtual void talk() = 0;  // may be called many times
  virtual void end() = 0;   // in order; else the destructor does it
};

std::unique_ptr<Life> new_life(const std::string& name);
std::vector<std::string> life_names();
std::unique_ptr<Life> new_manual_life();
std::unique_ptr<Life> new_cm_life();
std::unique_ptr<Life> new_objects_life();
std::unique_ptr<Life> new_datagram_life();

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{20};

// The opened device that has this address, and its domain.
class Rnic {
 public:
  Rnic();
  ibv_context* context() const { return context_.get(); }
  ibv_pd* pd() const { return pd_.get(); }
  const ibv_gid& gid() const { return gid_; }
  int gid_index() const { return gid_index_; }

 private:
  bool open(ibv_device* device);

  Owned<ibv_context> context_;
  Owned<ibv_pd> pd_;
  ibv_gid gid_{};
  int gid_index_ = 0;
};

// Octets that the peer may reach.
struct Region {
  Region() = default;
  explicit Region(ibv_pd* pd, std::size_t size);
  ibv_sge sge(std::uint32_t length) const;
  std::vector<std::uint8_t> octets;
  Owned<ibv_mr> mr;
};

// A completion queue with a channel on which its program sleeps.
class Completions {
 public:
  Completions() = default;
  explicit Completions(ibv_context* context);
  ibv_cq* cq() const { return cq_.get(); }
  // The next completion. False where none comes in time.
  bool next(ibv_wc& wc, Clock::duration patience = kPatience);

 private:
  bool sleep(Clock::time_point end);
  Owned<ibv_comp_channel> channel_;
  Owned<ibv_cq> cq_;
};

ibv_qp_init_attr queue_pair_attributes(ibv_cq* cq, ibv_srq* srq = nullptr);
// Sends, a Write, a Read and an atomic from a to b; each completes, and brings its octets where it should.
void exchange(ibv_qp* a, ibv_qp* b, Completions& completions, Region& near, Region& far);
void post_receive(ibv_qp* qp, const Region& region, std::uint64_t id);

}  // namespace faults
