// SPDX-License-Identifier: MIT
// Lets calls of uiw's fail, one in each run of a life, and says what came of it. The first form runs under LD_PRELOAD
// of libfaults.so and libuiw-preload.so:
//
//   uiw_faults LIFE [--warm] [--fresh] [--allocations] [--function NAME] [--error NAME] [--nth N] [--for-good]
//              [--sites] [--every K] [--from R] [--jobs J] [--verbose]
//
//   uiw_faults --control FILE --log | --points | --function NAME --error NAME --nth N | --result
//
// The second form is for another program, which runs under LD_PRELOAD of libfaults.so with FAULTS_CONTROL=FILE in its
// environment. --log makes its next run log its calls; --points prints the faults that are possible in them; the third
// command chooses the fault of the next run; --result prints where the program met it, or nothing.
//
// --sites takes of the calls that one place in uiw makes by one way only the first; --every only each K-th of each
// function that is left, beginning with another one for each R. A line for each run in which something is wrong, or
// with --verbose for each, then a line that counts them.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/faults/errors.h"
#include "tests/faults/lives/life.h"
#include "tests/faults/trial.h"

namespace faults {
namespace {

struct Options {
  Course course;
  std::string function, error;
  long nth = -1, every = 1, from = 0;
  std::size_t jobs = 2;
  bool for_good = false, sites = false, verbose = false;
  std::string control;  // the file of another program's
  bool log = false, points = false, result = false;
};

struct Point {
  Function function;
  int error;
  long nth;
};

const char* name_of(int error) { return error == kShort ? "short" : ::strerrorname_np(error); }

// A process that runs one trial.
class Trial {
  // A life may wait ten seconds for a peer that does not answer, and a trial that looks for leaks has ten lives more.
  static constexpr std::chrono::seconds kMost{120};

 public:
  Trial() : shared_(map()) {}
  Shared& shared() { return *shared_; }
  Point point{};

  void start(const Course& course, const Reference* reference) {
    shared_->verdict = {};
    std::fflush(nullptr);
    runtime_ = course.fresh ? new_directory() : "";
    pid_ = ::fork();
    if (pid_ == 0) {
      if (course.fresh) ::setenv("UIW_RUNTIME_DIR", runtime_.c_str(), 1);
      run_trial(course, *shared_, reference);
      std::fflush(nullptr);
      ::_exit(0);  // what a process leaves behind at its end is not asked for here
    }
    if (pid_ < 0) std::abort();
    end_ = Clock::now() + kMost;
  }
  bool runs() const { return pid_ > 0; }
  // Whether it has ended, by itself or because its time was over.
  bool ended() {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) {
      if (Clock::now() < end_) return false;
      look_at_threads();
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, &status, 0);
      wrong("hangs");
    } else if (WIFSIGNALED(status)) {
      wrong(std::string("dies of SIG") + ::sigabbrev_np(WTERMSIG(status)));
    } else if (!shared_->verdict.finished && shared_->verdict.wrong[0] == 0) {
      wrong("ends with " + std::to_string(WEXITSTATUS(status)));
    }
    pid_ = -1;
    std::error_code ignored;
    if (!runtime_.empty()) std::filesystem::remove_all(runtime_, ignored);
    return true;
  }

 private:
  static std::string new_directory() {
    const char* const base = std::getenv("UIW_RUNTIME_DIR");
    std::string path = std::string(base != nullptr ? base : "/tmp") + "/XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) std::abort();
    return path;
  }
  static Shared* map() {
    void* const memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    return new (memory) Shared;
  }
  void wrong(const std::string& text) {
    char* const into = shared_->verdict.wrong;
    const std::size_t old = std::strlen(into);
    std::snprintf(into + old, sizeof shared_->verdict.wrong - old, "%s%s", old == 0 ? "" : "; ", text.c_str());
  }
  void look_at_threads() const {
    if (::getenv("FAULTS_GDB") == nullptr) return;
    const std::string command =
        "gdb -p " + std::to_string(pid_) + " -batch -ex 'thread apply all bt 14' 2>/dev/null 1>&2";
    if (::system(command.c_str()) != 0) return;
  }

  Shared* shared_;
  pid_t pid_ = -1;
  std::string runtime_;
  Clock::time_point end_;
};

void plan(Control& control, const Point& point, bool for_good, bool logging) {
  control.function = point.function;
  control.error = point.error;
  control.nth = point.nth;
  control.for_good = for_good;
  control.logging = logging;
  control.armed = false;
  control.seen = 0;
  control.injected = 0;
  control.logged = 0;
}

void finish(Trial& trial) {
  while (!trial.ended()) ::poll(nullptr, 0, 1);
}

// Runs without a fault: what is left in the end, and which calls there are. Exits where they do not work.
Reference survey(const Options& options, std::vector<Call>& calls) {
  Reference reference;
  Trial trial;
  for (int run = 0; run < 3; ++run) {
    plan(trial.shared().control, {Function::count, 0, 0}, false, true);
    trial.start(options.course, nullptr);
    finish(trial);
    const Verdict& verdict = trial.shared().verdict;
    if (verdict.wrong[0] != 0 || !verdict.worked) {
      std::printf("without a fault: %s %s %s\n", verdict.wrong, verdict.outcome,
                  verdict.error != 0 ? ::strerrorname_np(verdict.error) : "");
      std::exit(1);
    }
    reference.descriptors = std::max(reference.descriptors, verdict.descriptors);
    reference.allocations = std::max(reference.allocations, verdict.allocations);
    const std::size_t count = std::min<std::size_t>(trial.shared().control.logged, Control::kLogged);
    // The first run is another if it puts the files of the devices into the runtime directory, where they stay.
    calls.assign(trial.shared().control.log.begin(), trial.shared().control.log.begin() + count);
  }
  return reference;
}

// Of each function every K-th, beginning with another one for each, so that every function is among them.
std::vector<Point> thinned(const std::vector<Point>& all, const Options& options) {
  std::map<Function, long> totals, numbers;
  for (const Point& point : all) ++totals[point.function];
  std::vector<Point> some;
  for (const Point& point : all) {
    const long step = std::min(options.every, totals[point.function]);
    const long first = (options.from + static_cast<long>(point.function)) % step;
    if (numbers[point.function]++ % step == first) some.push_back(point);
  }
  return some;
}

std::vector<Point> points(const Options& options, const std::vector<Call>& calls) {
  std::vector<Point> all;
  std::map<std::pair<Function, int>, long> numbers;
  std::set<std::tuple<Function, int, Frames>> known;
  for (const Call& call : calls) {
    for (const int error : errors_of(call.function)) {
      if (!is_possible(error, call.traits)) continue;
      const long nth = numbers[{call.function, error}]++;
      if (!options.function.empty() && options.function != name_of(call.function)) continue;
      if (!options.error.empty() && options.error != name_of(error)) continue;
      if (options.nth >= 0 && options.nth != nth) continue;
      if (options.sites && !known.insert({call.function, error, call.frames}).second) continue;
      all.push_back({call.function, error, nth});
    }
  }
  return thinned(all, options);
}

struct Counts {
  long run = 0, hit = 0, worked = 0, wrong = 0;
};

void judge(Trial& trial, const Options& options, Counts& counts) {
  const Control& control = trial.shared().control;
  Verdict& verdict = trial.shared().verdict;
  const int injected = control.injected.load();
  std::string wrong = verdict.wrong;
  const std::string more =
      wrong.empty() ? objection({control.function, control.error, verdict.worked, verdict.outcome, verdict.error}) : "";
  if (injected > 0) wrong += more;
  ++counts.run;
  counts.hit += injected > 0 ? 1 : 0;
  counts.worked += verdict.worked ? 1 : 0;
  counts.wrong += wrong.empty() ? 0 : 1;
  if (wrong.empty() && !options.verbose) return;
  std::printf("%s %s %s %ld: %s%s%s%s at %s\n", wrong.empty() ? "well" : "WRONG", name_of(control.function),
              name_of(control.error), control.nth, verdict.worked ? "works" : verdict.outcome,
              verdict.error != 0 ? (std::string(" ") + ::strerrorname_np(verdict.error)).c_str() : "",
              wrong.empty() ? "" : " | ", wrong.c_str(),
              injected > 0 ? text_of(control.hit.frames).c_str() : "nowhere");
  std::fflush(stdout);
}

Counts run_all(const Options& options, const std::vector<Point>& all, const Reference& reference) {
  std::vector<Trial> trials(options.jobs);
  Counts counts;
  std::size_t next = 0, running = 0;
  while (next < all.size() || running > 0) {
    bool moved = false;
    for (Trial& trial : trials) {
      if (trial.runs() && trial.ended()) {
        judge(trial, options, counts);
        --running;
        moved = true;
      }
      if (!trial.runs() && next < all.size()) {
        plan(trial.shared().control, all[next++], options.for_good, false);
        trial.start(options.course, &reference);
        ++running;
        moved = true;
      }
    }
    if (!moved) ::poll(nullptr, 0, 1);
  }
  return counts;
}

// What another program does next, or has done.
int use_control(const Options& options) {
  const int fd = ::open(options.control.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0 || ::ftruncate(fd, sizeof(Control)) != 0) return 1;
  void* const memory = ::mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (memory == MAP_FAILED) return 1;
  Control& control = *static_cast<Control*>(memory);
  if (options.points) {
    const std::size_t count = std::min<std::size_t>(control.logged, Control::kLogged);
    for (const Point& point : points(options, {control.log.begin(), control.log.begin() + count}))
      std::printf("%s %s %ld\n", name_of(point.function), name_of(point.error), point.nth);
    return 0;
  }
  if (options.result) {
    if (control.injected > 0) std::printf("%s\n", text_of(control.hit.frames).c_str());
    return 0;
  }
  Point point{Function::count, 0, 0};
  for (int number = 0; number < static_cast<int>(Function::count) && !options.log; ++number) {
    const auto function = static_cast<Function>(number);
    for (const int error : errors_of(function)) {
      if (options.function == name_of(function) && options.error == name_of(error))
        point = {function, error, options.nth};
    }
  }
  if (!options.log && point.function == Function::count) return 2;
  plan(control, point, options.for_good, options.log);
  control.armed = true;
  return 0;
}

int usage() {
  std::fprintf(stderr, "usage: uiw_faults LIFE [options], under libfaults.so\n");
  return 2;
}

int run(int argc, char** argv) {
  Options options;
  if (argc < 2) return usage();
  options.course.life = argv[1];
  for (int i = options.course.life == "--control" ? 1 : 2; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (word == "--warm")
      options.course.warm = true;
    else if (word == "--allocations")
      options.course.allocations = true;
    else if (word == "--fresh")
      options.course.fresh = true;
    else if (word == "--for-good")
      options.for_good = true;
    else if (word == "--sites")
      options.sites = true;
    else if (word == "--verbose")
      options.verbose = true;
    else if (word == "--control")
      options.control = value();
    else if (word == "--log")
      options.log = true;
    else if (word == "--points")
      options.points = true;
    else if (word == "--result")
      options.result = true;
    else if (word == "--function")
      options.function = value();
    else if (word == "--error")
      options.error = value();
    else if (word == "--nth")
      options.nth = std::atol(value());
    else if (word == "--every")
      options.every = std::max(1L, std::atol(value()));
    else if (word == "--from")
      options.from = std::atol(value());
    else if (word == "--jobs")
      options.jobs = static_cast<std::size_t>(std::max(1L, std::atol(value())));
    else
      return usage();
  }
  if (!options.control.empty()) return use_control(options);
  if (!is_preloaded()) return usage();
  std::vector<Call> calls;
  const Reference reference = survey(options, calls);
  const std::vector<Point> all = points(options, calls);
  const Counts counts = run_all(options, all, reference);
  std::printf("%zu calls, %zu faults, %ld met, %ld made no difference, %ld wrong\n", calls.size(), all.size(),
              counts.hit, counts.worked, counts.wrong);
  return counts.wrong != 0 || counts.run == 0 ? 1 : 0;
}

}  // namespace
}  // namespace faults

int main(int argc, char** argv) { return faults::run(argc, argv); }
