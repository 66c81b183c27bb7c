// SPDX-License-Identifier: MIT
// What a program may do with descriptors while it has connections: close all that it does not know, put files of its
// own in their place, fork and clean up, and use up as many as it may have.
//
//   uiw_descriptors HOST PORT CASE
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "tests/apps/support/manual_pair.h"
#include "tests/apps/support/process.h"

namespace {

using apps::die;
using apps::expect_error;
using apps::made;
using apps::open_numbers;

const std::set<int> g_inherited = open_numbers();

void expect_success(const apps::Endpoint& end, bool sends) {
  ibv_wc wc{};
  if (!(sends ? end.send_completion(wc, true) : end.recv_completion(wc, true))) die("no completion in time");
  if (wc.status != IBV_WC_SUCCESS) die("%s", ibv_wc_status_str(wc.status));
}

// Connections of both kinds, within this process. Completions are slept for, so that threads have to be woken.
struct Connections {
  apps::Pair pair;
  apps::ManualPair manual{true};
  apps::Rnic& rnic = manual.rnic;
  apps::Cq& cq = manual.cq;

  Connections() { talk(); }

  // A message on each connection, and all completions.
  void talk() {
    manual.talk();
    char octets[32] = {};
    ibv_mr* mr = apps::reg(pair.far.pd(), octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
    apps::post_receive(pair.far.qp(), {{apps::number(octets), sizeof octets, mr->lkey}});
    apps::SendRequest(IBV_WR_SEND, {apps::number("hi"), 3, 0}, 0, IBV_SEND_INLINE | IBV_SEND_SIGNALED)
        .post(pair.near.qp());
    expect_success(pair.near, true);
    expect_success(pair.far, false);
    expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  }

  // The descriptors that are the program's: what it began with, and what it was given.
  std::set<int> known() const {
    std::set<int> numbers = g_inherited;
    numbers.insert({rnic.context()->cmd_fd, rnic.context()->async_fd, cq.get()->channel->fd});
    for (const rdma_cm_id* id : {pair.near.id(), pair.far.id(), pair.listener.id()}) {
      numbers.insert(id->channel->fd);
      if (id->verbs != nullptr) numbers.insert({id->verbs->cmd_fd, id->verbs->async_fd});
      if (id->send_cq_channel != nullptr) numbers.insert(id->send_cq_channel->fd);
      if (id->recv_cq_channel != nullptr) numbers.insert(id->recv_cq_channel->fd);
    }
    return numbers;
  }
};

// Files that the program opens when others have been closed: nobody else may write to them, or close them.
class Files {
 public:
  Files() {
    for (int i = 0; i < kCount; ++i) {
      fds_[i] = memfd_create("file", MFD_CLOEXEC);
      events_[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
      if (fds_[i] < 0 || events_[i] < 0 || write(fds_[i], "mine", 4) != 4) die("a file: %s", std::strerror(errno));
    }
  }
  ~Files() {
    for (int i = 0; i < kCount; ++i) {
      char octets[16] = {};
      if (pread(fds_[i], octets, sizeof octets, 0) != 4 || std::memcmp(octets, "mine", 4) != 0)
        die("the program's file %d has %zd octets", fds_[i], pread(fds_[i], octets, sizeof octets, 0));
      eventfd_t value = 0;
      if (eventfd_read(events_[i], &value) == 0 || errno != EAGAIN)
        die("the program's eventfd %d has been written to, or closed: %s", events_[i], std::strerror(errno));
      for (const int fd : {fds_[i], events_[i]})
        if (close(fd) != 0) die("close of %d: %s", fd, std::strerror(errno));
    }
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

 private:
  static constexpr int kCount = 40;
  int fds_[kCount], events_[kCount];
};

using CloseAll = std::function<void(int first, int last)>;

// Closes what lies between the descriptors that the program knows.
void close_others(std::set<int> known, const CloseAll& close_all) {
  known.insert(INT_MAX);
  int first = 0;
  for (const int fd : known) {
    if (fd > first) close_all(first, fd - 1);
    first = fd == INT_MAX ? fd : fd + 1;
  }
}

// The connections that stand go on, and there may be new ones.
void go_on_after(const CloseAll& close_all) {
  {
    Connections connections;
    close_others(connections.known(), close_all);
    const Files files;
    for (int i = 0; i < 50; ++i) connections.talk();
  }
  const Files files;
  Connections().talk();
}

// Another thread makes connections meanwhile, for which the library opens descriptors and closes them at any time.
void connect_during(const CloseAll& close_all) {
  constexpr int kConnections = 100;
  const apps::Side side(true);
  const ibv_context* context = side.rnic.context();
  std::set<int> known = g_inherited;
  known.insert({context->cmd_fd, context->async_fd, side.cq.get()->channel->fd});
  std::atomic<bool> done{false};
  std::thread connecting([&] {
    for (int i = 0; i < kConnections; ++i) apps::ManualPairOn(side).talk();
    done = true;
  });
  while (!done) {
    close_others(known, close_all);
    const Files files;
  }
  connecting.join();
}

void close_each(int first, int last) {
  const int highest = *open_numbers().rbegin();
  for (int fd = first; fd <= std::min(last, highest); ++fd) close(fd);
}

void expect_three_left() {
  for (const int fd : open_numbers())
    if (fd > 2) die("the child could not close %d", fd);
}

// ---- Few descriptors -------------------------------------------------------------------------------------------

constexpr int kAllowed = 256, kLeft = 16;

void allow_few() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = kAllowed;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) die("setrlimit: %s", std::strerror(errno));
}

// Until the thread "uiw-cm", which the first device starts, waits for work, and so has the descriptors that it takes.
void await_thread() {
  for (;;) {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name, call;
      std::ifstream(task.path() / "comm") >> name;
      std::ifstream(task.path() / "syscall") >> call;
      if (name != "uiw-cm") continue;
#ifdef SYS_epoll_wait
      if (call == std::to_string(SYS_epoll_wait)) return;
#endif
      if (call == std::to_string(SYS_epoll_pwait)) return;
    }
    sched_yield();
  }
}

// So many files more, at most.
class Opened {
 public:
  explicit Opened(int most) {
    for (int fd; static_cast<int>(fds_.size()) < most && (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;)
      fds_.push_back(fd);
  }
  ~Opened() {
    for (const int fd : fds_) close(fd);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  int count() const { return static_cast<int>(fds_.size()); }

 private:
  std::vector<int> fds_;
};

// The program takes all but so many.
int all_but(int left) {
  const Opened all(kAllowed);
  return all.count() - left;
}

void expect_the_last_left(const char* what, int error) {
  expect_error(what, error, EMFILE);
  if (const Opened last(kLeft); last.count() != kLeft) die("%d descriptors are left to the program", last.count());
}

void closed_one_by_one() { go_on_after(close_each); }

void close_as_range(int first, int last) {
  expect_error("close_range", close_range(static_cast<unsigned>(first), static_cast<unsigned>(last), 0), 0);
}

void closed_as_ranges() { go_on_after(close_as_range); }

void ranges_closed_while_connecting() { connect_during(close_as_range); }

// A new descriptor has one of the lowest numbers for a moment, and then one that is not much higher than 1024.
void each_closed_while_connecting() {
  connect_during([](int first, int last) {
    for (int fd = first; fd <= std::min(last, 1100); ++fd)
      if (fd < 64 || fd >= 1024) close(fd);
  });
}

void marked_close_on_exec() {
  go_on_after([](int first, int last) {
    expect_error("close_range",
                 close_range(static_cast<unsigned>(first), static_cast<unsigned>(last), CLOSE_RANGE_CLOEXEC), 0);
  });
}

void closed_from() {
  go_on_after([](int first, int last) {
    if (last < INT_MAX - 1) {
      close_as_range(first, last);
    } else {
      closefrom(first);
    }
  });
}

// The program's own of the device and of channels too: what needs none of them goes on.
void closed_with_the_devices() {
  const apps::ManualPair manual;
  char octets[32] = {};
  ibv_mr* mr = apps::reg(manual.rnic.pd(), octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
  if (close_range(3, ~0U, 0) != 0) die("close_range: %s", std::strerror(errno));
  {
    const Files files;
    for (int i = 0; i < 2 * 50; ++i) {
      if (i % 2 == 0) {
        manual.far.receive(octets, sizeof octets, mr, 1);
        expect_error("ibv_post_send", manual.near.send("hi", 3, 2), 0);
      }
      if (const ibv_wc wc = manual.next(); wc.status != IBV_WC_SUCCESS) die("%s", ibv_wc_status_str(wc.status));
    }
  }
  std::puts("as documented");
  std::fflush(nullptr);
  std::_Exit(0);  // libibverbs would close numbers that are not its own any more
}

// By what no interposer sees. The connection is lost; the program's files are not, and all that was made can be
// destroyed.
void closed_by_bare_system_calls() {
  auto manual = std::make_unique<apps::ManualPair>(true);
  char octets[32] = {};
  ibv_mr* mr = apps::reg(manual->rnic.pd(), octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
  manual->talk();
  const ibv_context* context = manual->rnic.context();
  const int first = 1 + std::max({context->cmd_fd, context->async_fd, manual->cq.get()->channel->fd});
  if (syscall(SYS_close_range, std::max(first, *g_inherited.rbegin() + 1), ~0U, 0) != 0)
    die("close_range: %s", std::strerror(errno));
  const Files files;
  manual->far.receive(octets, sizeof octets, mr, 3);
  manual->near.send("hi", 3, 4);
  expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  manual.reset();
}

// A number that the program does not know is one that it did not open.
void replaced() {
  Connections connections;
  const std::set<int> known = connections.known();
  for (const int fd : open_numbers()) {
    if (known.contains(fd)) continue;
    errno = 0;
    if (dup2(0, fd) >= 0 || errno != EBUSY) die("dup2 to %d: %s", fd, std::strerror(errno));
    if (dup3(0, fd, O_CLOEXEC) >= 0 || errno != EBUSY) die("dup3 to %d: %s", fd, std::strerror(errno));
    if (close(fd) == 0 || errno != EBADF) die("close of %d: %s", fd, std::strerror(errno));
  }
  const Files files;
  connections.talk();
}

void children() {
  Connections connections;
  char true_path[] = "/bin/true";
  char* const argv[] = {true_path, nullptr};
  for (int i = 0; i < 3; ++i) {
    // Children must not disturb the parent, whose descriptors they have copies of.
    apps::join(apps::in_child([&] {
      closefrom(3);
      expect_three_left();
      execv(true_path, argv);
      _exit(1);
    }));
    apps::join(apps::in_child([&] {
      close_each(3, INT_MAX);
      expect_three_left();
      execv(true_path, argv);
      _exit(1);
    }));
    apps::join(apps::in_child([] {
      if (close_range(3, ~0U, CLOSE_RANGE_UNSHARE) != 0) die("close_range: %s", std::strerror(errno));
      expect_three_left();
      _exit(0);
    }));
    const int highest = *open_numbers().rbegin();
    const pid_t child = vfork();
    if (child == 0) {
      for (int fd = 3; fd <= highest; ++fd) close(fd);
      execv(true_path, argv);
      _exit(1);
    }
    apps::join(child, apps::kPatience);
    pid_t spawned = -1;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    expect_error("posix_spawn", posix_spawn(&spawned, true_path, &actions, nullptr, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    apps::join(spawned, apps::kPatience);
    const Files files;
    connections.talk();
  }
}

// ---- Few descriptors: what uiw cannot have it says why, and the last ones stay the program's. ---

void few_for_queue_pairs() {
  allow_few();
  const apps::Rnic rnic{apps::g_host};
  const apps::Cq cq{rnic, 64};
  await_thread();
  {
    const Opened own(all_but(kLeft + 1));
    for (int i = 0; i < 3; ++i) {
      errno = 0;
      const ibv_qp* qp = apps::make_qp(rnic, cq, {});
      if (qp != nullptr) die("a queue pair from the last descriptors");
      expect_the_last_left("ibv_create_qp", errno);
    }
  }
  ibv_qp* qp = apps::make_qp(rnic, cq, {});
  if (qp == nullptr) die("ibv_create_qp: %s", std::strerror(errno));
  expect_error("ibv_destroy_qp", ibv_destroy_qp(qp), 0);
}

void few_for_a_connection() {
  allow_few();
  const apps::Rnic rnic{apps::g_host};
  const apps::Cq cq{rnic, 64};
  const apps::ManualQp a(rnic, cq, {}), b(rnic, cq, {});
  a.to_init();
  await_thread();
  {
    const Opened own(all_but(kLeft));
    expect_the_last_left("ibv_modify_qp", apps::try_rtr(a.get(), rnic, b.place(), {}));
  }
  a.to_rtr(b.place());
  a.to_rts();
  b.connect(a.place());
  ibv_wc wc{};
  char octets[8] = {};
  ibv_mr* mr = apps::reg(rnic.pd(), octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
  b.receive(octets, sizeof octets, mr, 1);
  expect_error("ibv_post_send", a.send("hi", 3, 2), 0);
  for (int i = 0; i < 2; ++i)
    if (!cq.next(wc) || wc.status != IBV_WC_SUCCESS) die("the connection does not come once there are descriptors");
  expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
}

void few_for_channels() {
  allow_few();
  const apps::Rnic rnic{apps::g_host};
  std::vector<ibv_comp_channel*> channels;
  errno = 0;
  while (ibv_comp_channel* channel = ibv_create_comp_channel(rnic.context())) channels.push_back(channel);
  expect_the_last_left("ibv_create_comp_channel", errno);
  for (ibv_comp_channel* channel : channels)
    expect_error("ibv_destroy_comp_channel", ibv_destroy_comp_channel(channel), 0);
}

void few_for_devices() {
  allow_few();
  ibv_device** list = ibv_get_device_list(nullptr);
  if (list == nullptr || *list == nullptr) die("no device");
  std::vector<ibv_context*> contexts;
  errno = 0;
  while (ibv_context* context = ibv_open_device(*list)) contexts.push_back(context);
  expect_the_last_left("ibv_open_device", errno);
  for (ibv_context* context : contexts) expect_error("ibv_close_device", ibv_close_device(context), 0);
  ibv_free_device_list(list);
}

void few_for_rdma_cm() {
  allow_few();
  rdma_event_channel* channel = made("rdma_create_event_channel", rdma_create_event_channel());
  std::vector<rdma_cm_id*> ids;
  sockaddr_in any{};
  any.sin_family = AF_INET;
  inet_pton(AF_INET, apps::g_host.c_str(), &any.sin_addr);
  for (;;) {
    rdma_cm_id* id = nullptr;
    if (rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0) die("rdma_create_id: %s", std::strerror(errno));
    ids.push_back(id);
    if (ids.size() > kAllowed) die("there is no end");
    if (rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&any)) != 0) break;
  }
  expect_the_last_left("rdma_bind_addr", errno);
  std::vector<rdma_event_channel*> channels;
  while (rdma_event_channel* more = rdma_create_event_channel()) channels.push_back(more);
  expect_the_last_left("rdma_create_event_channel", errno);
  for (rdma_event_channel* each : channels) rdma_destroy_event_channel(each);
  for (rdma_cm_id* id : ids) rdma_destroy_id(id);
  rdma_destroy_event_channel(channel);
}

const apps::Cases kCases = {
    {"closed_one_by_one", closed_one_by_one},
    {"closed_as_ranges", closed_as_ranges},
    {"marked_close_on_exec", marked_close_on_exec},
    {"closed_from", closed_from},
    {"ranges_closed_while_connecting", ranges_closed_while_connecting},
    {"each_closed_while_connecting", each_closed_while_connecting},
    {"closed_with_the_devices", closed_with_the_devices},
    {"closed_by_bare_system_calls", closed_by_bare_system_calls},
    {"replaced", replaced},
    {"children", children},
    {"few_for_queue_pairs", few_for_queue_pairs},
    {"few_for_a_connection", few_for_a_connection},
    {"few_for_channels", few_for_channels},
    {"few_for_devices", few_for_devices},
    {"few_for_rdma_cm", few_for_rdma_cm},
};

}  // namespace

int main(int argc, char** argv) { return apps::run_case(argc, argv, kCases); }
