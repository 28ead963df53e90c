// Carries out injections on this host: signals to workers, faults of this host's network, a full
// disk. Ends them when their time is over, and when it is destroyed.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/file/file.h"
#include "trireme/launch/inject/injection.h"

namespace trireme::launch {

struct PerformerOptions {
  std::string device{};            // for faults of the network; "": network_device()
  std::filesystem::path folder{};  // whose disk is filled
  int64_t max_fill_bytes = int64_t{4} << 30;
  // Network faults of a process that shares the network of process 1. They would stay if this
  // process were killed, so they are refused otherwise.
  bool may_cut_machine = false;
};

// The outcome of an injection, for the journal.
struct InjectionReport {
  Injection injection{};
  bool succeeded = false;
  bool is_end = false;     // the fault is over
  int64_t process_id = 0;  // of the first process; 0: none
  std::string text{};      // one line: "kill rank=1: sent signal 9 to process 4711", or why not
};

// Not thread safe.
class Performer {
 public:
  explicit Performer(PerformerOptions options = {});
  ~Performer();
  Performer(const Performer&) = delete;
  Performer& operator=(const Performer&) = delete;

  // process_ids: the processes that the target means, which this process has not reaped: a rank's,
  // those of this host's workers, or the agent's own. kExit sends SIGKILL; that the code is another
  // one is the agent's to pretend. kLeave and kJoin are the agent's to do and are refused. A fault
  // that cannot be injected is a report, not an exception.
  InjectionReport begin(const Injection& injection, std::span<const int64_t> process_ids,
                        std::chrono::milliseconds now);
  // Ends those whose time is over. Call it now and then.
  std::vector<InjectionReport> end_due(std::chrono::milliseconds now);

 private:
  class Running;

  PerformerOptions options_;
  std::vector<std::unique_ptr<Running>> running_;
};

// A full disk: takes all free space of a folder's file system. The file has no name, so that the
// kernel gives the space back whatever becomes of this process.
class DiskFill {
 public:
  // max_bytes: refuses to take more.
  // Throws: Error, one line
  DiskFill(const std::filesystem::path& folder, int64_t max_bytes);

  int64_t num_bytes() const { return num_bytes_; }

 private:
  Descriptor file_;
  int64_t num_bytes_ = 0;
};

}  // namespace trireme::launch
