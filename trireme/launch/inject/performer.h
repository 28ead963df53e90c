// Carries out injections on this host: signals to workers, faults of this host's network, a full
// disk. Undoes them when their time is over and when it is destroyed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/launch/inject/injection.h"

namespace trireme::launch::inline internal {

struct PerformerOptions {
  // The network device to cut or to slow down; "": the one that has the default route, else the
  // only one that is up and is not the loopback.
  std::string device{};
  std::filesystem::path folder{};  // where to fill the disk
};

// What happened, for the journal.
struct InjectionReport {
  Injection injection{};
  bool succeeded = false;
  bool is_end = false;     // the fault is over
  int64_t process_id = 0;  // of the worker; 0: none
  std::string text{};      // one line: "sent signal 9 to rank 1 (process 4711)", or why it failed
};

// Not thread safe.
class Performer {
 public:
  explicit Performer(PerformerOptions options = {});
  ~Performer();
  Performer(const Performer&) = delete;
  Performer& operator=(const Performer&) = delete;

  // process_ids: of the workers that the injection means (one for a rank; all of this host's for
  // Target::kWorkersOfHost; this agent's own for kAgent). kExit, kLeave and kJoin are the agent's
  // to do and are refused here. Never throws for a fault that cannot be injected; the report says
  // why. Network faults need CAP_NET_ADMIN, and only touch this process's network namespace.
  InjectionReport begin(const Injection& injection, const std::vector<int64_t>& process_ids,
                        std::chrono::milliseconds now);
  // Ends those whose time is over.
  std::vector<InjectionReport> end_due(std::chrono::milliseconds now);

 private:
  struct Running {
    Injection injection;
    std::vector<int64_t> process_ids;
    std::chrono::milliseconds until;
  };
  std::string undo(const Running& running);

  PerformerOptions options_;
  std::vector<Running> running_;
};

}  // namespace trireme::launch::inline internal
