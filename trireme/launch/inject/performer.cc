#include "trireme/launch/inject/performer.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/machine.h"
#include "trireme/launch/inject/network_fault.h"

namespace trireme::launch {
namespace {

using std::chrono::milliseconds;

void send(int64_t process_id, int signal) {
  // kill() takes 0, -1 and below for groups of processes.
  if (process_id <= 1) throw Error(concat("process ", process_id, " is not a worker"));
  if (::kill(static_cast<pid_t>(process_id), signal) == 0) return;
  throw Error(concat("cannot send signal ", signal, " to process ", process_id, ": ",
                     std::strerror(errno)));
}

std::string processes_text(std::span<const int64_t> process_ids) {
  std::string text = process_ids.size() == 1 ? "process " : "processes ";
  for (size_t i = 0; i < process_ids.size(); ++i)
    text += concat(i == 0 ? "" : ", ", process_ids[i]);
  return text;
}

}  // namespace

// An injection whose end is to come.
// A fault that lasts ends in the destructor too: an agent that ends with an exception must not
// leave a host stopped, cut off or full.
class Performer::Running {
 public:
  Running(const Injection& injection, milliseconds until) : injection(injection), until(until) {}
  ~Running() {
    try {
      end();
    } catch (const std::exception&) {  // nobody is left to be told
    }
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  // A process that is to go on later. Its id may belong to another one by then.
  struct Stopped {
    int64_t process_id;
    uint64_t start;
  };

  // Returns what it did.
  std::string end() {
    std::string text = "is over";
    for (const Stopped& process : std::exchange(stopped, {})) {
      const auto stat = process_stat(process.process_id);
      // The start time tells a process from a later one with the same id, which must not get
      // SIGCONT.
      if (!stat || stat->start != process.start) {
        text = concat("process ", process.process_id, " had ended");
        continue;
      }
      send(process.process_id, SIGCONT);
      text = concat("process ", process.process_id, " goes on");
    }
    if (network) network->end();
    network.reset();
    disk.reset();
    return text;
  }

  Injection injection;
  milliseconds until;
  std::vector<Stopped> stopped{};
  std::optional<NetworkFault> network{};
  std::optional<DiskFill> disk{};

  // Returns what it did.
  std::string begin(const PerformerOptions& options, std::span<const int64_t> process_ids);

 private:
  std::string signal(std::span<const int64_t> process_ids);
};

std::string Performer::Running::signal(std::span<const int64_t> process_ids) {
  if (process_ids.empty()) throw Error("no such process runs on this host");
  int number = SIGKILL;
  if (injection.fault == InjectedFault::kKill) number = injection.signal;
  if (injection.fault == InjectedFault::kStop) number = SIGSTOP;
  for (const int64_t process_id : process_ids) {
    const auto stat = process_stat(process_id);
    send(process_id, number);
    if (number == SIGSTOP && stat) stopped.push_back({process_id, stat->start});
  }
  return concat("sent signal ", number, " to ", processes_text(process_ids));
}

std::string Performer::Running::begin(const PerformerOptions& options,
                                      std::span<const int64_t> process_ids) {
  switch (injection.fault) {
    case InjectedFault::kKill:
    case InjectedFault::kStop:
    case InjectedFault::kExit: return signal(process_ids);
    case InjectedFault::kPartition:
    case InjectedFault::kDelay:
    case InjectedFault::kLoss:
      // The agent may be killed during the fault, by the campaign itself. Then nothing would undo
      // it, and a machine that is cut off cannot be repaired over its network.
      if (!options.may_cut_machine && is_network_of_machine()) {
        throw Error(
            "refused, because it would change the network of the whole machine; start the "
            "agent in a network namespace (ip netns exec)");
      }
      network.emplace(injection, options.device.empty() ? network_device() : options.device);
      return concat("changed ", network->device());
    case InjectedFault::kFill:
      disk.emplace(options.folder, options.max_fill_bytes);
      return concat("took the last ", disk->num_bytes(), " bytes of ", options.folder.string());
    case InjectedFault::kLeave:
    case InjectedFault::kJoin: break;
  }
  throw Error(concat(name_of(injection.fault), " is up to the agent"));
}

Performer::Performer(PerformerOptions options) : options_(std::move(options)) {}
Performer::~Performer() = default;

InjectionReport Performer::begin(const Injection& injection, std::span<const int64_t> process_ids,
                                 milliseconds now) {
  InjectionReport report{.injection = injection,
                         .process_id = process_ids.empty() ? 0 : process_ids.front()};
  auto running = std::make_unique<Running>(injection, now + injection.duration);
  try {
    report.text = concat(to_string(injection), ": ", running->begin(options_, process_ids));
    report.succeeded = true;
    if (injection.duration.count() > 0) running_.push_back(std::move(running));
  } catch (const Error& error) {
    // A fault that cannot be injected ends the drill's event, never the run.
    report.text = concat(to_string(injection), ": ", error.what());
  }
  return report;
}

std::vector<InjectionReport> Performer::end_due(milliseconds now) {
  std::vector<InjectionReport> reports;
  std::erase_if(running_, [&](const std::unique_ptr<Running>& running) {
    if (now < running->until) return false;
    InjectionReport report{.injection = running->injection, .is_end = true};
    if (!running->stopped.empty()) report.process_id = running->stopped.front().process_id;
    try {
      report.text = concat(to_string(running->injection), ": ", running->end());
      report.succeeded = true;
    } catch (const Error& error) {
      report.text = concat(to_string(running->injection), ": cannot end it: ", error.what());
    }
    reports.push_back(std::move(report));
    return true;
  });
  return reports;
}

namespace {

[[noreturn]] void fail(const std::filesystem::path& folder, int code) {
  throw Error(concat("cannot fill the disk of ", folder.string(), ": ", std::strerror(code)));
}

}  // namespace

DiskFill::DiskFill(const std::filesystem::path& folder, int64_t max_bytes) {
  struct statvfs system {};
  if (::statvfs(folder.c_str(), &system) != 0) fail(folder, errno);
  const auto block = static_cast<int64_t>(system.f_frsize);
  const auto num_free = static_cast<int64_t>(system.f_bavail) * block;
  if (num_free > max_bytes) {
    throw Error(concat("refuses to fill the disk of ", folder.string(), ": ", num_free,
                       " bytes are free, expected at most ", max_bytes,
                       "; put the run on a small file system"));
  }
  std::string name = (folder / ".trireme-fill-XXXXXX").string();
  file_ = Descriptor(::mkostemp(name.data(), O_CLOEXEC));
  if (!file_.is_open()) fail(folder, errno);
  // At once: however this process ends, the kernel then gives the space back.
  ::unlink(name.c_str());
  // Large pieces while they fit, then smaller ones: what statvfs() says may not be exact.
  for (int64_t piece = num_free; piece >= block;) {
    // fallocate() and not write(): it takes blocks without moving a byte.
    const int code = ::fallocate(file_.get(), 0, num_bytes_, piece) == 0 ? 0 : errno;
    if (code == 0) {
      num_bytes_ += piece;
      // Space that others free meanwhile is not chased.
      if (num_bytes_ >= max_bytes) break;
    } else if (code == ENOSPC || code == EDQUOT || code == EFBIG) {
      piece /= 2;
    } else if (code != EINTR) {
      fail(folder, code);
    }
  }
}

}  // namespace trireme::launch
