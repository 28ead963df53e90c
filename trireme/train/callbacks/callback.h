// What a program does beside training: stops early, averages weights, tells others. Callbacks are
// objects that every rank has and that hear of every event of a run, in one order on all of them.
// docs/callbacks.md shows how to write one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/comm/communicator.h"
#include "trireme/parallel/data/shard.h"
#include "trireme/train/metrics/metrics.h"
#include "trireme/train/task/keys.h"

namespace trireme::train {

struct RunConfig;

enum class Event { kStart, kEvaluate, kStep, kCheckpoint, kStop };
// By the name of the function that hears of it.
inline constexpr Choice<Event> kEvents[] = {{"on_start", Event::kStart},
                                            {"on_evaluate", Event::kEvaluate},
                                            {"on_step", Event::kStep},
                                            {"on_checkpoint", Event::kCheckpoint},
                                            {"on_stop", Event::kStop}};

// The run, as a callback sees it during an event.
class RunView {
 public:
  virtual ~RunView() = default;

  virtual const RunConfig& config() const = 0;
  virtual std::filesystem::path folder() const = 0;  // output.folder
  virtual comm::Communicator& world() = 0;
  virtual int64_t step() const = 0;  // finished steps
  // Of the last step. Timings and memory are the slowest rank's; all else is the same on all ranks.
  virtual const StepMetrics& metrics() const = 0;
  // This rank's part of each parameter it holds. A callback may write into the weights, and then
  // must call spread_weights().
  virtual const std::vector<parallel::Shard>& shards() = 0;
  // Brings the shards' weights to the ranks that compute with them.
  // Collective: every rank
  virtual void spread_weights() = 0;
  // The loss of the validation data with the weights as they are. Empty without validation data, or
  // when the run was asked to stop meanwhile.
  // Collective: every rank
  virtual std::optional<double> evaluate() = 0;

  // Adds a number to the last step's line in metrics.jsonl, in kEvaluate and kStep. Every rank adds
  // the same.
  virtual void add_metric(std::string name, double value) = 0;
  // Tells the user, in one line; shown on rank 0.
  virtual void tell(const std::string& line) = 0;
  // Saves a checkpoint after this step.
  virtual void request_checkpoint() = 0;
  // Ends the run after this step, with a checkpoint, when any rank asks. `reason` is for the user.
  // for_good: another start does not continue the run, because the callback asks again in kStart.
  virtual void stop(std::string reason, bool for_good) = 0;
};

// Callbacks run in the order of RunConfig::callbacks. When one throws on any rank, all ranks end
// with its error. A copy has the same keys, and its state is its own.
class Callback {
 public:
  virtual ~Callback() = default;
  virtual std::unique_ptr<Callback> clone() const = 0;

  // Adds the callback's keys. They may be in a section of its own or in another one.
  virtual void add_keys(Keys& /*keys*/) {}
  // Whether the keys switch it on. Otherwise it hears nothing and saves nothing.
  virtual bool is_on() const { return true; }
  // Checks its keys against the run's, before anything starts. metrics: the names that
  // find_metric() will know.
  // Throws: ConfigError
  virtual void check(const RunConfig& /*config*/, std::span<const std::string> /*metrics*/) const {}
  // The names that it adds to every evaluation's line.
  virtual std::vector<std::string> metric_names() const { return {}; }

  // Before the first step, after a checkpoint has been read.
  virtual void on_start(RunView& /*run*/) {}
  // After an evaluation, before on_step().
  virtual void on_evaluate(RunView& /*run*/) {}
  // After every step, also a skipped one, before its line is written.
  virtual void on_step(RunView& /*run*/) {}
  virtual void on_checkpoint(RunView& /*run*/, const std::filesystem::path& /*checkpoint*/) {}
  // Last, when the run ends without an error.
  virtual void on_stop(RunView& /*run*/) {}

  // What a checkpoint keeps of it: tensors, with the layout of the run's, and a text, the same on
  // all ranks. entries() is called after build(), and loading fills the tensors in place. A
  // checkpoint without its state leaves it as it was built.
  virtual void build(const std::vector<parallel::Shard>& /*shards*/) {}
  virtual std::vector<checkpoint::Entry> entries() const { return {}; }
  virtual std::string state() const { return ""; }
  // Throws: CheckpointError
  virtual void restore(const std::string& /*state*/) {}
};

// The name in a checkpoint of a callback's tensor: "callback.average.lm_head.weight".
std::string callback_tensor(std::string_view callback, std::string_view tensor);

// A callback that programs offer by name.
struct CallbackKind {
  std::string_view name;
  std::unique_ptr<Callback> (*make)();
};
using CallbackTable = std::span<const CallbackKind>;

// The callbacks that every program has, see docs/callbacks.md.
CallbackTable built_in_callbacks();

// "loss", "grad_norm", "validation_loss", or one of the task's or a callback's metrics; empty when
// the step has none of that name.
std::optional<double> find_metric(const StepMetrics& metrics, std::string_view name);

}  // namespace trireme::train
