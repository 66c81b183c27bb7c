// SPDX-License-Identifier: MIT
#include "provider/inventory/processes.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/descriptor.h"
#include "base/file_limit.h"
#include "base/immortal.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/system_calls.h"
#include "base/text_file.h"
#include "provider/connect/socket_owner.h"
#include "provider/inventory/inventory_format.h"
#include "provider/process/cm_loop.h"

namespace uiw::provider {

namespace {

using Clock = std::chrono::steady_clock;

constexpr char kPurpose[] = "the list of RDMA processes";
constexpr char kQuestion[] = "uiw inventory?";
constexpr std::size_t kMostAsked = 256;
constexpr off_t kLongest = off_t{1} << 28;
// A process that is stopped counts as late, and for kLateFor one that has not answered a question in time. kLateTime:
// how long ask_processes() waits in all if, of the processes that it has asked, only late ones have not answered.
constexpr std::chrono::milliseconds kLateTime{10};
constexpr std::chrono::seconds kLateFor{1};

// Owns a descriptor until the end of a scope.
class Descriptor {
 public:
  // Takes ownership of a descriptor that DescriptorChange has guarded (base/descriptor.h); `fd` may be -1.
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close_descriptor(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Opens a socket with SO_PASSCRED: the kernel adds the sender's credentials to each datagram that the socket receives.
int open_socket() {
  const int fd = sys::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  return fd;
}

struct Name {
  sockaddr_un address{};
  socklen_t size = 0;

  Name() { address.sun_family = AF_UNIX; }
  explicit Name(const std::string& abstract) : Name() {
    const std::size_t length = std::min(abstract.size(), sizeof address.sun_path - 1);
    std::memcpy(address.sun_path + 1, abstract.data(), length);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }
  const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr* generic() { return reinterpret_cast<sockaddr*>(&address); }
};

std::string prefix_of(uid_t user) { return "uiw-process/" + std::to_string(user) + "/"; }

// Whether `user` is the effective user of this process. False for the number that stands for all users without a number
// in this user namespace.
bool is_own_user(uid_t user) { return user == ::geteuid() && known_user(user).has_value(); }

// A message that carries the credentials of its sender. send() puts the effective user into them, which the kernel
// checks; without that the kernel would put in the real user.
class Message {
 public:
  Message(const void* data, std::size_t size) : vector_{const_cast<void*>(data), size} {
    header_.msg_iov = &vector_;
    header_.msg_iovlen = 1;
    header_.msg_control = control_.data();
  }
  bool send(int socket, const Name* to, int descriptor) {
    if (to != nullptr) {
      header_.msg_name = const_cast<sockaddr_un*>(&to->address);
      header_.msg_namelen = to->size;
    }
    const ucred own{::getpid(), ::geteuid(), ::getegid()};
    header_.msg_controllen = CMSG_SPACE(sizeof own) + (descriptor >= 0 ? CMSG_SPACE(sizeof descriptor) : 0);
    cmsghdr* const first = CMSG_FIRSTHDR(&header_);
    put(first, SCM_CREDENTIALS, own);
    if (descriptor >= 0) put(CMSG_NXTHDR(&header_, first), SCM_RIGHTS, descriptor);
    return ::sendmsg(socket, &header_, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
  }
  // Returns the number of octets, or -1. Without `with_descriptor` there is no room for a descriptor, so the kernel
  // delivers none.
  ssize_t receive(int socket, Name* from, bool with_descriptor) {
    if (from != nullptr) {
      header_.msg_name = &from->address;
      header_.msg_namelen = sizeof from->address;
    }
    // CMSG_LEN for the descriptor, since CMSG_SPACE has room for two descriptors.
    header_.msg_controllen = CMSG_SPACE(sizeof(ucred)) + (with_descriptor ? CMSG_LEN(sizeof(int)) : 0);
    const DescriptorChange change;
    const ssize_t size = ::recvmsg(socket, &header_, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0) return size;
    if (from != nullptr) from->size = header_.msg_namelen;
    for (cmsghdr* at = CMSG_FIRSTHDR(&header_); at != nullptr; at = CMSG_NXTHDR(&header_, at)) {
      if (at->cmsg_level != SOL_SOCKET) continue;
      if (at->cmsg_type == SCM_CREDENTIALS) sender_ = get<ucred>(at);
      if (at->cmsg_type == SCM_RIGHTS) descriptor_ = change.guard(get<int>(at));
    }
    return size;
  }
  const std::optional<ucred>& sender() const { return sender_; }
  int descriptor() const { return descriptor_; }  // -1: none; guarded (base/descriptor.h), owned by the caller

 private:
  template <typename Value>
  static void put(cmsghdr* at, int type, const Value& value) {
    at->cmsg_level = SOL_SOCKET;
    at->cmsg_type = type;
    at->cmsg_len = CMSG_LEN(sizeof value);
    std::memcpy(CMSG_DATA(at), &value, sizeof value);
  }
  template <typename Value>
  static Value get(const cmsghdr* at) {
    Value value;
    std::memcpy(&value, CMSG_DATA(at), sizeof value);
    return value;
  }

  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int))> control_{};
  iovec vector_;
  msghdr header_{};
  std::optional<ucred> sender_;
  int descriptor_ = -1;
};

// ---- Answering -------------------------------------------------------------------------------------------------

// Makes a memfd with the inventory of this process. Returns its descriptor, or -1.
int inventory_memory() {
  const std::vector<std::byte> octets = encode_inventory(take_inventory());
  if (!file_may_have(octets.size())) return -1;
  const int fd = DescriptorChange().guard(::memfd_create("uiw-inventory", MFD_CLOEXEC));
  for (std::size_t done = 0; fd >= 0 && done < octets.size();) {
    const ssize_t written = ::write(fd, octets.data() + done, octets.size() - done);
    if (written > 0) {
      done += static_cast<std::size_t>(written);
    } else if (written == 0 || errno != EINTR) {
      close_descriptor(fd);
      return -1;
    }
  }
  return fd;
}

class Answering final : public CmLoop::Handler {
 public:
  explicit Answering(std::string name) : name_(std::move(name)) {}
  // Null if no descriptor is available, the name cannot be bound, or the thread "uiw-cm" cannot be started. Throws
  // std::bad_alloc.
  static std::shared_ptr<Answering> start() {
    std::array<unsigned char, 8> random{};
    if (!fill_random(random.data(), random.size())) random = {};
    std::string name = prefix_of(::geteuid()) + std::to_string(::getpid()) + "/";
    for (const unsigned octet : random) {
      std::array<char, 3> digits{};
      std::snprintf(digits.data(), digits.size(), "%02x", octet);
      name += digits.data();
    }
    auto made = std::make_shared<Answering>(name);
    const int fd = made->fd_ = DescriptorChange().take(open_socket(), kPurpose);
    if (fd < 0) return nullptr;
    const Name address(name);
    if (::bind(fd, address.generic(), address.size) != 0) return nullptr;
    return CmLoop::instance().watch(fd, EPOLLIN, made) == 0 ? made : nullptr;
  }
  ~Answering() override {
    if (fd_ < 0) return;
    CmLoop::instance().unwatch(fd_);
    close_descriptor(fd_);
  }
  const std::string& name() const { return name_; }
  void ready(std::uint32_t) override {
    constexpr int kTurns = 16;  // the thread "uiw-cm" has other work, too; CmLoop calls ready() again for the rest
    for (int turns = 0; turns < kTurns; ++turns) {
      std::array<char, sizeof kQuestion> question;
      Message message(question.data(), question.size());
      Name from;
      const ssize_t size = message.receive(fd_, &from, false);
      if (size < 0) return;
      if (size != sizeof kQuestion || std::memcmp(question.data(), kQuestion, sizeof kQuestion) != 0) continue;
      if (!message.sender() || !is_own_user(message.sender()->uid)) continue;
      const Descriptor memory(inventory_memory());
      Message answer(kQuestion, sizeof kQuestion);
      if (memory.get() >= 0) answer.send(fd_, &from, memory.get());
    }
  }
  void abandon() override {
    if (fd_ >= 0) close_descriptor(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
  const std::string name_;
};

// The object that answers the questions of other processes.
struct Published {
  Mutex mutex;
  std::shared_ptr<Answering> answering UIW_GUARDED_BY(mutex);
  std::atomic<unsigned> generation{~0U};  // fork_generation() of the process that has made `answering`
};
Published& published() {
  static Immortal<Published> instance;
  return *instance;
}

// ---- Asking ----------------------------------------------------------------------------------------------------

// The names of processes that have not answered a question in time, and until when they count as late.
struct Late {
  Mutex mutex;
  std::map<std::string, Clock::time_point> until UIW_GUARDED_BY(mutex);
};
Late& late() {
  static Immortal<Late> instance;
  return *instance;
}

// Creates the objects of published() and late() when the library is loaded. Otherwise the child of a fork might find
// the guard of a static variable locked by another thread of the parent.
[[maybe_unused]] const bool prepared = [] {
  published();
  late();
  return true;
}();

// The socket names of other processes of this user, at most kMostAsked, without the NUL in front.
std::vector<std::string> find_names(const std::string& own) {
  std::vector<std::string> names;
  const TextFile file = open_text_file("/proc/net/unix");
  if (file == nullptr) return names;
  const std::string wanted = "@" + prefix_of(::geteuid());
  std::array<char, 512> line{};
  while (names.size() < kMostAsked && std::fgets(line.data(), line.size(), file.get()) != nullptr) {
    const char* found = std::strstr(line.data(), wanted.c_str());
    if (found == nullptr) continue;
    std::string name(found + 1, std::strcspn(found + 1, "\n"));
    if (name != own) names.push_back(std::move(name));
  }
  return names;
}

// Whether the process with this socket name is stopped, by a signal or by a debugger (proc(5): the states T and t). The
// PID in the name is that of the process's own PID namespace. In another one it names no process or another one; if
// that one is stopped, the process that is asked gets only kLateTime to answer.
bool is_stopped(const std::string& name) {
  const std::size_t begin = prefix_of(::geteuid()).size();
  const std::string pid = name.substr(begin, name.find('/', begin) - begin);
  if (pid.empty() || pid.find_first_not_of("0123456789") != std::string::npos) return false;
  const TextFile file = open_text_file(("/proc/" + pid + "/stat").c_str());
  std::array<char, 512> line{};
  if (file == nullptr || std::fgets(line.data(), line.size(), file.get()) == nullptr) return false;
  const char* command_end = std::strrchr(line.data(), ')');  // the command itself may have parentheses
  return command_end != nullptr &&
         (std::strncmp(command_end, ") T", 3) == 0 || std::strncmp(command_end, ") t", 3) == 0);
}

struct Asked {
  Descriptor socket;
  std::string name;
  bool late;
  bool done = false;
};

std::optional<Inventory> read_inventory(int fd) {
  struct stat status = {};
  if (::fstat(fd, &status) != 0 || status.st_size > kLongest) return std::nullopt;
  std::vector<std::byte> octets(static_cast<std::size_t>(status.st_size));
  for (std::size_t done = 0; done < octets.size();) {
    const ssize_t got = ::pread(fd, octets.data() + done, octets.size() - done, static_cast<off_t>(done));
    if (got > 0) {
      done += static_cast<std::size_t>(got);
    } else if (got == 0 || errno != EINTR) {
      return std::nullopt;
    }
  }
  return decode_inventory(octets);
}

std::vector<Asked> ask_all(const std::vector<std::string>& names) {
  std::vector<Asked> asked;
  const Clock::time_point now = Clock::now();
  const LockGuard lock(late().mutex);
  std::erase_if(late().until, [now](const auto& one) { return one.second < now; });
  for (const std::string& name : names) {
    Asked one{Descriptor(DescriptorChange().guard(open_socket())), name,
              late().until.contains(name) || is_stopped(name)};
    const Name address(name);
    // SO_PASSCRED gives the socket a name of its own, to which the answer goes. A connected socket receives only from
    // its peer.
    if (one.socket.get() < 0 || ::connect(one.socket.get(), address.generic(), address.size) != 0) continue;
    if (Message(kQuestion, sizeof kQuestion).send(one.socket.get(), nullptr, -1)) asked.push_back(std::move(one));
  }
  return asked;
}

void take_answer(Asked& asked, std::vector<ProcessInventory>& inventories) {
  std::array<char, sizeof kQuestion> text;
  Message message(text.data(), text.size());
  const ssize_t size = message.receive(asked.socket.get(), nullptr, true);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  asked.done = true;
  if (message.descriptor() < 0) return;
  const Descriptor memory(message.descriptor());
  if (!message.sender() || !is_own_user(message.sender()->uid)) return;
  auto inventory = read_inventory(memory.get());
  if (inventory) inventories.push_back({static_cast<std::uint32_t>(message.sender()->pid), std::move(*inventory)});
}

// Waits until each process has answered or the time for its answer is over.
void take_answers(std::vector<Asked>& asked, std::vector<ProcessInventory>& inventories) {
  const Clock::time_point begun = Clock::now();
  for (;;) {
    std::vector<pollfd> waiting;
    bool any_punctual = false;
    for (const Asked& one : asked) {
      waiting.push_back({one.done ? -1 : one.socket.get(), POLLIN, 0});
      any_punctual = any_punctual || (!one.done && !one.late);
    }
    if (std::all_of(asked.begin(), asked.end(), [](const Asked& one) { return one.done; })) return;
    const auto end = begun + (any_punctual ? kAnswerTime : kLateTime);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) break;
    if (::poll(waiting.data(), waiting.size(), static_cast<int>(left)) < 0 && errno != EINTR) break;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      if (waiting[i].revents != 0) take_answer(asked[i], inventories);
    }
  }
  const LockGuard lock(late().mutex);
  for (const Asked& one : asked) {
    if (!one.done) late().until[one.name] = Clock::now() + kLateFor;
  }
}

}  // namespace

void publish_inventory() noexcept {
  Published& own = published();
  if (own.generation.load(std::memory_order_acquire) == fork_generation()) return;
  try {
    const LockGuard lock(own.mutex);
    if (own.generation.load(std::memory_order_relaxed) == fork_generation()) return;
    own.answering = Answering::start();
    if (own.answering) own.generation.store(fork_generation(), std::memory_order_release);
  } catch (const std::exception&) {  // no memory
  }
}

// The parent's Answering object is not destroyed, since its destructor would use CmLoop, which begins anew in the
// child.
void withdraw_inventory_in_child() {
  Published& own = published();
  assume_held(own.mutex);
  assume_held(late().mutex);
  if (own.answering) own.answering->abandon();
  new (&own.answering) std::shared_ptr<Answering>;
  new (&late().until) decltype(Late::until);  // another thread of the parent may have been changing the map
}

std::vector<ProcessInventory> ask_processes() {
  std::vector<ProcessInventory> inventories;
  std::string own_name;
  {
    const LockGuard lock(published().mutex);
    if (published().answering) own_name = published().answering->name();
  }
  std::vector<Asked> asked = ask_all(find_names(own_name));
  inventories.push_back({static_cast<std::uint32_t>(::getpid()), take_inventory()});
  take_answers(asked, inventories);
  std::stable_sort(inventories.begin(), inventories.end(),
                   [](const ProcessInventory& one, const ProcessInventory& other) { return one.pid < other.pid; });
  return inventories;
}

}  // namespace uiw::provider
