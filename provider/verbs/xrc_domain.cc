// SPDX-License-Identifier: MIT
#include "provider/verbs/xrc_domain.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "base/grace_period.h"
#include "base/immortal.h"
#include "provider/verbs/context.h"
#include "provider/verbs/cq/cq.h"
#include "provider/verbs/qp/qp.h"
#include "provider/verbs/srq.h"

namespace uiw::provider {

struct XrcDomain::Named {
  std::string device;
  File file;
  std::weak_ptr<XrcDomain> domain;
};

namespace {

struct Domains {
  TableMutex mutex;
  std::vector<XrcDomain::Named> named;
};
Domains& domains() {
  static Immortal<Domains> instance;
  return *instance;
}

// A descriptor that keeps the file, and nothing else: as a duplicate of the program's it would also keep its locks.
OwnedDescriptor pin(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return OwnedDescriptor(DescriptorChange().take(
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path.c_str(), O_PATH | O_CLOEXEC)), "an XRC domain"));
}

}  // namespace

void lock_xrc_domains() UIW_NO_THREAD_SAFETY_ANALYSIS { domains().mutex.lock(); }
void unlock_xrc_domains() UIW_NO_THREAD_SAFETY_ANALYSIS { domains().mutex.unlock(); }
void forget_xrc_domains() UIW_NO_THREAD_SAFETY_ANALYSIS {
  domains().named.clear();
  domains().mutex.unlock();
}

std::shared_ptr<XrcDomain> XrcDomain::open(const std::shared_ptr<Context>& context, int fd, int flags) {
  struct stat status {};
  if (fd != -1 && ::fstat(fd, &status) != 0) return nullptr;
  const File file{status.st_dev, status.st_ino};
  const std::string device = context->device().name;
  std::shared_ptr<XrcDomain> domain;  // whose end, if this is the last one, is not to come with the lock held
  const LockGuard lock(domains().mutex);
  std::vector<Named>& named = domains().named;
  std::erase_if(named, [](const Named& one) { return one.domain.expired(); });
  OwnedDescriptor own;
  if (fd != -1) {
    const auto found =
        std::ranges::find_if(named, [&](const Named& one) { return one.file == file && one.device == device; });
    if (found != named.end()) domain = found->domain.lock();
    if (domain && (flags & O_EXCL) == 0) return domain;
    if (domain || (flags & O_CREAT) == 0) {
      errno = domain ? EINVAL : EAGAIN;
      return nullptr;
    }
    named.reserve(named.size() + 1);
    own = pin(fd);
    if (!own) return nullptr;
  }
  domain.reset(new XrcDomain(context, std::move(own)));
  domain->no_completions_ = Cq::create(*context, 1, -1, nullptr);
  if (!domain->no_completions_) return nullptr;
  domain->no_completions_->hide();
  if (fd != -1) named.push_back({device, file, domain});
  return domain;
}

XrcDomain::XrcDomain(std::shared_ptr<Context> context, OwnedDescriptor file)
    : Pd(std::move(context)), file_(std::move(file)) {
  hide();
}

XrcDomain::~XrcDomain() = default;

bool XrcDomain::inherited() const { return no_completions_->inherited(); }

void XrcDomain::add(Srq& queue) {
  const LockGuard lock(mutex_);
  queues_.emplace(queue.number(), &queue);
}

void XrcDomain::remove(const Srq& queue) {
  const LockGuard ends(ends_);
  for (std::uint32_t last = 0;;) {
    Qp* qp;
    {
      const LockGuard lock(mutex_);
      queues_.erase(queue.number());
      const auto next = targets_.upper_bound(last);
      if (next == targets_.end()) return;
      last = next->first;
      qp = static_cast<Qp*>(next->second.qp);
    }
    qp->leave_queue(queue);
  }
}

std::unique_ptr<SrqUser> XrcDomain::use(std::uint64_t number, std::unique_ptr<SrqUser> users, std::uint32_t qp_number) {
  if (users && !users->is_of(number)) users->leave();
  if (SrqUser::bring_forward(number, users)) return users;
  const LockGuard lock(mutex_);
  const auto found = queues_.find(number);
  if (found == queues_.end()) return nullptr;
  auto user = std::make_unique<SrqUser>(*found->second, std::move(users));
  user->set_qp_number(qp_number);
  return user;
}

void XrcDomain::add_qp(QueuePair& qp, std::shared_ptr<Context> context, ibv_qp* handle) {
  const LockGuard lock(mutex_);
  targets_.emplace(qp.number(), Target{&qp, {{std::move(context), handle}}});
}

QueuePair* XrcDomain::open_qp(std::uint32_t number, std::shared_ptr<Context> context, ibv_qp* handle) {
  const LockGuard lock(mutex_);
  const auto found = targets_.find(number);
  if (found == targets_.end() || found->second.handles.empty()) return nullptr;
  found->second.handles.push_back({std::move(context), handle});
  return found->second.qp;
}

bool XrcDomain::close_qp(std::uint32_t number, const ibv_qp* handle, unsigned& events) {
  const LockGuard lock(mutex_);
  const auto target = targets_.find(number);
  if (target == targets_.end()) return false;
  auto& handles = target->second.handles;
  const auto found = std::ranges::find(handles, handle, &Handle::handle);
  if (found == handles.end()) return false;
  events = found->events;
  handles.erase(found);
  return handles.empty();
}

void XrcDomain::forget_qp(std::uint32_t number) {
  const LockGuard ends(ends_);
  const LockGuard lock(mutex_);
  targets_.erase(number);
}

bool XrcDomain::leave(std::uint32_t number, const Context& context) {
  const LockGuard lock(mutex_);
  const auto target = targets_.find(number);
  if (target == targets_.end()) return false;
  auto& handles = target->second.handles;
  return std::erase_if(handles, [&](const Handle& one) { return one.context.get() == &context; }) > 0 &&
         handles.empty();
}

void XrcDomain::report(std::uint32_t number, ibv_event_type type) {
  const LockGuard lock(mutex_);
  const auto target = targets_.find(number);
  if (target == targets_.end()) return;
  for (Handle& one : target->second.handles) {
    ibv_async_event event{};
    event.event_type = type;
    event.element.qp = one.handle;
    if (one.context->report(event)) ++one.events;
  }
}

}  // namespace uiw::provider
