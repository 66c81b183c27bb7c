// SPDX-License-Identifier: MIT
#include "tests/faults/trial.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "tests/faults/lives/life.h"

namespace faults {
namespace {

Use* g_use = nullptr;
Live* g_live = nullptr;

long open_descriptors() {
  DIR* const directory = ::opendir("/proc/self/fd");
  if (directory == nullptr) return -1;
  long count = -3;  // ".", ".." and the directory's own
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count;
}

void say(char* into, std::size_t size, const std::string& text) {
  const std::size_t old = std::strlen(into);
  std::snprintf(into + old, size - old, "%s%s", old == 0 ? "" : "; ", text.c_str());
}

std::string said(const Trouble& trouble) {
  return trouble.what + (trouble.error != 0 ? std::string(": ") + ::strerrorname_np(trouble.error) : "");
}

// A life from its beginning to its end; what made it fail, or nothing.
bool live(const std::string& name, Trouble& trouble) {
  const std::unique_ptr<Life> life = new_life(name);
  try {
    life->make();
    life->talk();
    life->end();
    return true;
  } catch (const Trouble& caught) {
    trouble = caught;
    return false;
  }
}

}  // namespace

std::string text_of(const Frames& frames) {
  std::string text;
  static const char* const kNames[] = {"", "libuiw", "preload", "plugin", "library"};
  for (const std::uint64_t frame : frames) {
    if (frame == 0) break;
    char one[64];
    std::snprintf(one, sizeof one, "%s%s+0x%llx", text.empty() ? "" : " ", kNames[(frame >> kObjectShift) & 7],
                  static_cast<unsigned long long>(frame & ((std::uint64_t{1} << kObjectShift) - 1)));
    text += one;
  }
  return text;
}

namespace {

// Where what lives was allocated, and what is open, for a person who looks for a leak: FAULTS_LIVE names the file.
std::vector<Frames>* g_places = nullptr;

void list_allocations(bool is_reference) {
  const char* const path = std::getenv("FAULTS_LIVE");
  if (path == nullptr) return;
  std::vector<Frames> places;
  places.reserve(g_live(nullptr) + 1000);  // the list is locked while it is read
  g_places = &places;
  g_live([](const Frames& frames, std::size_t) {
    if (g_places->size() < g_places->capacity()) g_places->push_back(frames);
  });
  std::map<std::string, int> counts;
  for (const Frames& one : places) ++counts[faults::text_of(one)];
  std::FILE* const file = std::fopen((std::string(path) + (is_reference ? ".reference" : ".fault")).c_str(), "w");
  if (file == nullptr) return;
  for (const auto& [place, number] : counts) std::fprintf(file, "%d %s\n", number, place.c_str());
  for (int fd = 3; fd < 1024; ++fd) {
    char target[256] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (::readlink(link.c_str(), target, sizeof target - 1) > 0) std::fprintf(file, "descriptor %d %s\n", fd, target);
  }
  std::fclose(file);
}

void count(Verdict& verdict) {
  verdict.descriptors = open_descriptors();
  verdict.allocations = static_cast<long>(g_live(nullptr));
}

// The streams of the connection that is there; libuiw.so may use one on any of its threads while the call fails.
void spare_streams(Control& control) {
  DIR* const directory = ::opendir("/proc/self/fd");
  if (directory == nullptr) return;
  std::size_t count = 0;
  while (const dirent* const entry = ::readdir(directory)) {
    const int fd = std::atoi(entry->d_name);
    int type = 0, listens = 0;
    socklen_t size = sizeof type;
    if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) continue;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens != 0) continue;
    if (count < control.spared.size()) control.spared[count++] = fd;
  }
  ::closedir(directory);
}

// Waits until no more is left than in the end of a run without a fault. Sockets that linger and threads that end need a
// moment.
bool settles(const Course& course, Verdict& verdict, const Reference& reference) {
  const auto begin = Clock::now();
  for (;;) {
    count(verdict);
    const bool good = verdict.descriptors <= reference.descriptors;
    if (good && (!course.allocations || verdict.allocations <= reference.allocations)) return true;
    const auto passed = Clock::now() - begin;
    if (passed > std::chrono::seconds(12) || (good && passed > std::chrono::seconds(1))) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// How much more there is after some lives, with the fault in each of them or in none. `injected`: in how many it was.
struct Growth {
  long descriptors = 0, allocations = 0;
  long injected = 0;
};
Growth growth_of(const Course& course, Shared& shared, bool with_fault) {
  constexpr int kTimes = 5;
  Trouble trouble;
  Verdict& verdict = shared.verdict;
  const Reference before{verdict.descriptors, verdict.allocations};
  Growth growth;
  for (int i = 0; i < kTimes; ++i) {
    shared.control.seen = 0;
    shared.control.injected = 0;
    shared.control.armed = with_fault;
    live(course.life, trouble);
    shared.control.armed = false;
    growth.injected += shared.control.injected > 0 ? 1 : 0;
  }
  g_not_given_back.clear();
  settles(course, verdict, before);
  growth.descriptors = verdict.descriptors - before.descriptors;
  growth.allocations = verdict.allocations - before.allocations;
  return growth;
}

// More may be left for other reasons than a fault: each thread of uiw's has memory of its own, tables have grown, and
// sockets that ask the kernel are kept. What a fault leaves behind grows with each fault, and more than without one.
bool grows(const Course& course, Shared& shared) {
  growth_of(course, shared, false);  // what grows in the first lives has grown then
  const Growth faulty = growth_of(course, shared, true), other = growth_of(course, shared, false);
  shared.control.injected = 1;
  const auto leaks = [&](long with, long without) {
    return faulty.injected > 1 && with - std::max(without, 0L) >= faulty.injected;
  };
  return leaks(faulty.descriptors, other.descriptors) ||
         (course.allocations && leaks(faulty.allocations, other.allocations));
}

void check_leaks(const Course& course, Shared& shared, const Reference& reference) {
  Verdict& verdict = shared.verdict;
  if (settles(course, verdict, reference)) return;
  const std::string more = std::to_string(verdict.descriptors - reference.descriptors) + " more descriptors, " +
                           std::to_string(verdict.allocations - reference.allocations) + " more allocations";
  if (grows(course, shared)) say(verdict.wrong, sizeof verdict.wrong, more);
}

}  // namespace

bool is_preloaded() {
  g_use = reinterpret_cast<Use*>(::dlsym(RTLD_DEFAULT, "faults_use"));
  g_live = reinterpret_cast<Live*>(::dlsym(RTLD_DEFAULT, "faults_live"));
  return g_use != nullptr && g_live != nullptr;
}

void run_trial(const Course& course, Shared& shared, const Reference* reference) {
  Verdict& verdict = shared.verdict;
  const auto wrong = [&](const std::string& text) { say(verdict.wrong, sizeof verdict.wrong, text); };
  g_use(&shared.control);
  Trouble trouble;
  std::unique_ptr<Life> bystander;
  try {
    if (course.warm) {
      if (!live(course.life, trouble)) return wrong("before any fault: " + said(trouble));
      bystander = new_life(course.life);
      bystander->make();
      bystander->talk();
      spare_streams(shared.control);
    }
    shared.control.armed = true;
    verdict.worked = live(course.life, trouble);
    shared.control.armed = false;
    if (!verdict.worked) {
      std::snprintf(verdict.outcome, sizeof verdict.outcome, "%s", trouble.what.c_str());
      verdict.error = trouble.error;
      if (trouble.error == ETIME) wrong(trouble.what);
    }
    for (const Trouble& each : g_not_given_back) wrong(said(each));
    g_not_given_back.clear();
    if (bystander) {
      for (std::atomic<int>& one : shared.control.spared) one = 0;
      bystander->talk();
      bystander->end();
      bystander.reset();
    }
  } catch (const Trouble& caught) {
    wrong("another connection: " + said(caught));
  }
  if (!live(course.life, trouble)) wrong("the next life: " + said(trouble));
  for (const Trouble& each : g_not_given_back) wrong("in the next life: " + said(each));
  if (reference == nullptr) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    count(verdict);
  } else if (verdict.wrong[0] == 0) {
    check_leaks(course, shared, *reference);
  }
  list_allocations(reference == nullptr);
  verdict.finished = true;
}

}  // namespace faults
