// A run's callbacks: called in their order on every rank, failing together, with one state in the
// checkpoint.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/train/callbacks/callback.h"
#include "trireme/train/callbacks/named_callback.h"

namespace trireme::train::inline internal {

// What callbacks ask of a run.
struct CallbackRequests {
  struct Stop {
    std::string reason;
    bool for_good = false;
  };
  std::optional<Stop> stop;
  bool checkpoint = false;
};

// What any rank asks for, for all: the stop of the first that asks for one.
// Comm:       16 bytes per rank all-gathered, and the reasons when there is a stop
// Collective: every rank of `world`
void agree(comm::Communicator& world, CallbackRequests& requests);

// Those that are on and concern the run. `callbacks` must outlive it. Not thread safe.
class Callbacks {
 public:
  Callbacks(std::span<NamedCallback> callbacks, const RunConfig& config);

  bool empty() const { return callbacks_.empty(); }

  // Whether any of them wants Event::kGradients in this step; only those get it.
  bool wants_gradients(int64_t step) const;

  // Comm:       8 bytes per rank all-gathered after each callback that gets the event
  // Collective: every rank of the run's world
  // Throws:     on every rank what a callback throws on any of them, with its name, the rank and
  //             the event: as ConfigError, CheckpointError, Error (a file), or InternalError (all
  //             else, which is a bug of the callback)
  void call(Event event, RunView& run, const std::filesystem::path& checkpoint = {});

  // For the tensors of shards that were built anew.
  void build(const std::vector<parallel::Shard>& shards);
  // "callback.<name>.<tensor>".
  std::vector<checkpoint::Entry> entries() const;
  std::map<std::string, std::string> states() const;

  // What to read from a checkpoint in which those of `saved` kept their states: the entries of
  // those that are on now, and the prefixes of all others' tensors.
  struct Wanted {
    std::vector<checkpoint::Entry> entries;
    std::vector<std::string> ignored;
  };
  Wanted wanted(const std::map<std::string, std::string>& saved) const;
  void restore(const std::map<std::string, std::string>& saved);

 private:
  std::vector<NamedCallback*> callbacks_;
};

}  // namespace trireme::train::inline internal
