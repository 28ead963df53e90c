// A run's callbacks: called in their order on every rank, failing together, with one state in the
// checkpoint.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/train/callbacks/callback.h"

namespace trireme::train {

// Requests of callbacks to a run.
struct CallbackRequests {
  struct Stop {
    std::string reason;
    bool for_good = false;
  };
  std::optional<Stop> stop;
  bool checkpoint = false;
};

// Applies the requests of any rank to all ranks. Of several stops, the first rank's counts.
// Comm:       16 bytes per rank all-gathered, and the reasons when there is a stop
// Collective: every rank of `world`
void agree(comm::Communicator& world, CallbackRequests& requests);

// Called like checkpoint::OnWait, with the callback that the ranks are in.
using OnCallbackWait = std::function<void(const std::string& callback, std::span<const int> ranks,
                                          std::chrono::milliseconds waited)>;

// The callbacks that are on and concern the run. `callbacks` must outlive it. Not thread safe.
class Callbacks {
 public:
  Callbacks(std::span<NamedCallback> callbacks, const RunConfig& config,
            OnCallbackWait on_wait = {});

  bool empty() const { return callbacks_.empty(); }

  // Whether any of them wants Event::kGradients in this step; only those get it.
  bool wants_gradients(int64_t step) const;

  // Of the one that wants this step's probes; null: none does.
  // Throws: ConfigError when two want them
  verify::ProbeSink* probes(int64_t step);

  // A callback may take long on one rank, such as an upload on rank 0: the others wait for it as
  // they do for a slow disk, see checkpoint::gather_or_throw().
  // Comm:       that of checkpoint::gather_or_throw() for each callback that gets the event, over a
  //             group of its own, because callbacks may communicate over the run's world; the first
  //             call splits it off
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

  // Selects what to read from a checkpoint that holds the states of the callbacks in `saved`: the
  // entries of active callbacks, and the tensor prefixes of all others, to ignore.
  struct Wanted {
    std::vector<checkpoint::Entry> entries;
    std::vector<std::string> ignored;
  };
  Wanted wanted(const std::map<std::string, std::string>& saved) const;
  void restore(const std::map<std::string, std::string>& saved);

 private:
  std::vector<NamedCallback*> callbacks_;
  OnCallbackWait on_wait_;
  std::unique_ptr<comm::Communicator> group_;  // of the run's world; null before the first call
};

}  // namespace trireme::train
