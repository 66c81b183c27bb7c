// SPDX-License-Identifier: MIT
// Is every atomic operation atomic, against other connections, threads and processes? Many connections add 1 to one
// counter, and take one lock that is built on compare-and-swap, while a thread of the target and a process that maps
// its memory do the same with the processor's own atomic operations.
//
//   uiw_counters server HOST PORT FILE CONNECTIONS   the target; FILE is the memory
//   uiw_counters local FILE                          a process that maps it, until the server is done
//   uiw_counters show FILE                           what stands there
//   uiw_counters client HOST PORT CONNECTIONS ADDS ROUNDS [OUTSTANDING]
//
// Each adder tells how often it added and the sum of what stood there before: all together have seen each number from
// 0 to the last but one once, if no addition was lost and none saw another's half. Whoever has the lock writes his
// name beside it, and finds it there before he gives it back.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <thread>
#include <vector>

#include "tests/apps/support/extended.h"

namespace {

using apps::die;
using apps::Endpoint;
using apps::SendRequest;
using apps::ull;
using apps::Window;

constexpr std::chrono::seconds kLong{150};
constexpr std::size_t kPage = 4096;

struct Shared {
  alignas(64) std::uint64_t counter;
  alignas(64) std::uint64_t lock;      // 0, or the name of its holder
  alignas(64) std::uint64_t holder;    // the holder's alone
  std::uint64_t guarded;               // so is this
  alignas(64) std::uint64_t finished;  // the local ones stop
};

struct Account {
  std::uint64_t adds = 0, sum = 0, rounds = 0;

  Account& operator+=(const Account& other) {
    adds += other.adds;
    sum += other.sum;
    rounds += other.rounds;
    return *this;
  }
};

void print(const char* who, const Account& account) {
  std::printf("%s: %llu adds, sum %llu, %llu rounds\n", who, static_cast<unsigned long long>(account.adds),
              static_cast<unsigned long long>(account.sum), static_cast<unsigned long long>(account.rounds));
}

Shared* map(const char* path) {
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, kPage) != 0) die("%s: %s", path, std::strerror(errno));
  void* memory = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) die("mmap: %s", std::strerror(errno));
  close(fd);
  return static_cast<Shared*>(memory);
}

using Word = std::atomic_ref<std::uint64_t>;

// Until the server says so, with pauses: the others want a processor too.
Account work_locally(Shared& shared, std::uint64_t name) {
  Account account;
  while (Word(shared.finished).load() == 0) {
    for (int i = 0; i < 100; ++i) account.sum += Word(shared.counter).fetch_add(1);
    account.adds += 100;
    // Many attempts in a row, so that some meet a remote one.
    for (int attempts = 0; attempts < 2000; ++attempts) {
      std::uint64_t nobody = 0;
      if (!Word(shared.lock).compare_exchange_strong(nobody, name)) continue;
      // Other than by the lock, nothing orders these.
      volatile std::uint64_t& holder = shared.holder;
      volatile std::uint64_t& guarded = shared.guarded;
      if (holder != 0) die("a local holder finds %llu in the lock", static_cast<unsigned long long>(holder));
      holder = name;
      const std::uint64_t before = guarded;
      if (attempts % 100 == 0) sched_yield();
      if (holder != name) die("%llu came into a lock that is held", static_cast<unsigned long long>(holder));
      guarded = before + 1;
      holder = 0;
      ++account.rounds;
      std::uint64_t mine = name;
      if (!Word(shared.lock).compare_exchange_strong(mine, 0)) die("a held lock changes");
    }
    usleep(200);
  }
  return account;
}

// ---- The far side ----------------------------------------------------------------------------------------------

class Worker {
 public:
  Worker(const std::string& host, const std::string& port, std::uint64_t name, unsigned outstanding)
      : name_(name), outstanding_(outstanding), end_(apps::create(host, port, {})) {
    results_.resize(outstanding);
    mr_ = apps::reg(end_.id()->pd, results_.data(), results_.size() * 8, IBV_ACCESS_LOCAL_WRITE);
    scratch_mr_ = apps::reg(end_.id()->pd, scratch_, sizeof scratch_, IBV_ACCESS_LOCAL_WRITE);
    apps::connect(end_, Window{});
    target_ = apps::receive_window(end_);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() {
    end_.disconnect();
    ibv_dereg_mr(mr_);
    ibv_dereg_mr(scratch_mr_);
  }

  void add(std::uint64_t count) {
    std::uint64_t posted = 0, taken = 0, last = 0;
    while (taken < count) {
      while (posted < count && posted - taken < outstanding_) {
        post_add(posted);
        ++posted;
      }
      ibv_wc wc{};
      if (!end_.send_completion(wc, false, kLong)) die("no completion of an addition in time");
      apps::must_succeed(wc, "an addition");
      if (wc.wr_id != taken || wc.opcode != IBV_WC_FETCH_ADD) die("completions out of order");
      const std::uint64_t before = results_[taken % outstanding_];
      if (taken > 0 && before <= last) die("an addition after %llu finds %llu", ull(last), ull(before));
      last = before;
      account_.sum += before;
      ++account_.adds;
      ++taken;
    }
  }

  void take_lock(std::uint64_t rounds) {
    for (std::uint64_t round = 0; round < rounds; ++round) {
      while (swap(0, name_) != 0) usleep(100);
      std::uint64_t* const holder = &scratch_[0];
      std::uint64_t* const guarded = &scratch_[1];
      transfer(IBV_WR_RDMA_READ, offsetof(Shared, holder), 0, 2);
      if (*holder != 0) die("%llu finds %llu in the lock", ull(name_), ull(*holder));
      const std::uint64_t before = *guarded;
      *holder = name_;
      transfer(IBV_WR_RDMA_WRITE, offsetof(Shared, holder), 0, 1);
      *holder = *guarded = 0;
      transfer(IBV_WR_RDMA_READ, offsetof(Shared, holder), 0, 2);
      if (*holder != name_ || *guarded != before)
        die("%llu came into a lock that %llu holds", ull(*holder), ull(name_));
      *holder = 0;
      *guarded = before + 1;
      transfer(IBV_WR_RDMA_WRITE, offsetof(Shared, holder), 0, 2);
      if (const std::uint64_t found = swap(name_, 0); found != name_) die("a held lock changes to %llu", ull(found));
      ++account_.rounds;
    }
  }

  void report() {
    static_assert(sizeof account_ <= sizeof scratch_);
    std::memcpy(scratch_, &account_, sizeof account_);
    SendRequest request = request_of(IBV_WR_SEND, 0, sizeof account_ / 8);
    carry_out(request);
  }

 private:
  void post_add(std::uint64_t index) {
    const ibv_sge result{apps::number(&results_[index % outstanding_]), 8, mr_->lkey};
    SendRequest(IBV_WR_ATOMIC_FETCH_AND_ADD, result, index)
        .add(target_.address + offsetof(Shared, counter), target_.rkey, 1)
        .post(end_.qp());
  }

  SendRequest request_of(ibv_wr_opcode opcode, std::size_t scratch, std::size_t words) {
    return SendRequest(opcode,
                       {apps::number(&scratch_[scratch]), static_cast<std::uint32_t>(words * 8), scratch_mr_->lkey});
  }
  void carry_out(SendRequest& request) {
    request.post(end_.qp());
    ibv_wc wc{};
    if (!end_.send_completion(wc, false, kLong)) die("no completion in time");
    apps::must_succeed(wc, "a request");
  }
  void transfer(ibv_wr_opcode opcode, std::size_t offset, std::size_t scratch, std::size_t words) {
    carry_out(request_of(opcode, scratch, words).at(target_.address + offset, target_.rkey));
  }
  std::uint64_t swap(std::uint64_t compare, std::uint64_t value) {
    carry_out(request_of(IBV_WR_ATOMIC_CMP_AND_SWP, 2, 1)
                  .swap(target_.address + offsetof(Shared, lock), target_.rkey, compare, value));
    return scratch_[2];
  }

  std::uint64_t name_;
  unsigned outstanding_;
  std::vector<std::uint64_t> results_;
  std::uint64_t scratch_[4] = {};
  Endpoint end_;
  ibv_mr* mr_;
  ibv_mr* scratch_mr_;
  Window target_;
  Account account_;
};

void client(const std::string& host, const std::string& port, unsigned connections, std::uint64_t adds,
            std::uint64_t rounds, unsigned outstanding) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < connections; ++i) {
    threads.emplace_back([=] {
      Worker worker(host, port, static_cast<std::uint64_t>(getpid()) << 8 | (i + 1), outstanding);
      worker.add(adds);
      worker.take_lock(rounds);
      worker.report();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// ---- The target ------------------------------------------------------------------------------------------------

void serve(const std::string& host, const std::string& port, const char* path, unsigned connections) {
  Shared* shared = map(path);
  apps::Listener listener(apps::create_ep(host, port, RAI_PASSIVE), 64);
  std::deque<Endpoint> ends;
  std::vector<Account> accounts(connections);
  ibv_mr *memory = nullptr, *inbox = nullptr;
  Account local;
  std::thread thread;
  for (unsigned i = 0; i < connections; ++i) {
    ends.push_back(listener.request());
    Endpoint& end = ends.back();
    apps::make_qp(end, {4, 4, 1, 1, 0}, 0);
    if (memory == nullptr) {
      memory = apps::reg(
          end.id()->pd, shared, kPage,
          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
      inbox = apps::reg(end.id()->pd, accounts.data(), connections * sizeof(Account), IBV_ACCESS_LOCAL_WRITE);
      thread = std::thread([&] { local = work_locally(*shared, 1); });
    }
    apps::post_receive(end.qp(), {{apps::number(&accounts[i]), sizeof(Account), inbox->lkey}}, i);
    apps::accept(end, apps::window_of(shared, memory));
  }
  Account remote;
  for (unsigned i = 0; i < connections; ++i) {
    ibv_wc wc{};
    if (!ends[i].recv_completion(wc, true, kLong)) die("no report in time");
    apps::must_succeed(wc, "a report");
    if (wc.byte_len != sizeof(Account)) die("a report of %u octets", wc.byte_len);
    remote += accounts[i];
  }
  Word(shared->finished).store(1);
  thread.join();
  print("remote", remote);
  print("thread", local);
  std::fflush(stdout);
  for (Endpoint& end : ends) end.disconnect();
  ibv_dereg_mr(memory);
  ibv_dereg_mr(inbox);
}

std::uint64_t number(const char* text) { return std::strtoull(text, nullptr, 10); }

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "server" && argc == 6) {
    serve(argv[2], argv[3], argv[4], static_cast<unsigned>(number(argv[5])));
  } else if (mode == "local" && argc == 3) {
    print("process", work_locally(*map(argv[2]), 2));
  } else if (mode == "client" && (argc == 7 || argc == 8)) {
    client(argv[2], argv[3], static_cast<unsigned>(number(argv[4])), number(argv[5]), number(argv[6]),
           argc == 8 ? static_cast<unsigned>(number(argv[7])) : 16);
  } else if (mode == "show" && argc == 3) {
    const Shared& shared = *map(argv[2]);
    std::printf("counter %llu, guarded %llu, lock %llu\n", ull(shared.counter), ull(shared.guarded), ull(shared.lock));
  } else {
    die("usage: %s server HOST PORT FILE CONNECTIONS | local FILE | show FILE |\n"
        "       client HOST PORT CONNECTIONS ADDS ROUNDS [OUTSTANDING]",
        argv[0]);
  }
  return 0;
}
