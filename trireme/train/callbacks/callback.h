// Callbacks extend training: they stop early, average weights, or notify others. Every rank has the
// same callbacks, and they receive every event of a run in the same order on all ranks.
// docs/guide/callbacks.md shows how to write one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/mesh/probe.h"
#include "trireme/parallel/data/shard.h"
#include "trireme/train/callbacks/run_view.h"
#include "trireme/train/metrics/metrics.h"
#include "trireme/train/task/copy_box.h"
#include "trireme/train/task/keys.h"
#include "trireme/train/task/task.h"

namespace trireme::train {

enum class Event { kStart, kGradients, kEvaluate, kStep, kCheckpoint, kStop };
// Named after the function that receives the event.
inline constexpr Choice<Event> kEvents[] = {
    {"on_start", Event::kStart},           {"on_gradients", Event::kGradients},
    {"on_evaluate", Event::kEvaluate},     {"on_step", Event::kStep},
    {"on_checkpoint", Event::kCheckpoint}, {"on_stop", Event::kStop}};

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
  // Whether it has something to do in this run, if it is on. Otherwise as if it were off.
  virtual bool concerns(const RunConfig& /*config*/) const { return true; }
  // Checks its keys against the run's, before anything starts. metrics: the names that
  // find_metric() will know.
  // Throws: ConfigError
  virtual void check(const RunConfig& /*config*/, std::span<const std::string> /*metrics*/) const {}
  // The names that it adds to every evaluation's line.
  virtual std::vector<std::string> metric_names() const { return {}; }

  // Before the first step, after a checkpoint has been read.
  virtual void on_start(RunView& /*run*/) {}
  // Who gets this step's probes (mesh/probe.h), until the next one's are asked for; null: nobody.
  virtual verify::ProbeSink* probes(int64_t /*step*/) { return nullptr; }
  // Whether on_gradients() is called in this step, the same on every rank.
  virtual bool wants_gradients(int64_t /*step*/) const { return false; }
  // Between a step's backward and its optimizer, if wants_gradients(), also in a step that is then
  // skipped. The shards' gradients are summed over ranks and not clipped; the weights are those
  // that they belong to. metrics() has the step, loss, norm and learning rate; step() is one less.
  // Only for reading.
  virtual void on_gradients(RunView& /*run*/) {}
  // After an evaluation, before on_step().
  virtual void on_evaluate(RunView& /*run*/) {}
  // After every step, also a skipped one, before its line is written.
  virtual void on_step(RunView& /*run*/) {}
  virtual void on_checkpoint(RunView& /*run*/, const std::filesystem::path& /*checkpoint*/) {}
  // Last, when the run ends without an error.
  virtual void on_stop(RunView& /*run*/) {}

  // The state that checkpoints keep: tensors, with layouts of the run, and a text, equal on all
  // ranks. entries() is called after build(), and loading fills the tensors in place. A checkpoint
  // without its state leaves it as it was built.
  virtual void build(const std::vector<parallel::Shard>& /*shards*/) {}
  virtual std::vector<checkpoint::Entry> entries() const { return {}; }
  virtual std::string state() const { return ""; }
  // Throws: CheckpointError
  virtual void restore(const std::string& /*state*/) {}

  // Whether it can run where learners train apart. The ranks of each learner then call it together,
  // RunView::world() has them, and all learners must ask the same of the run in the same step.
  virtual bool works_in_learners() const { return false; }
};

// Prefix of the callbacks' tensors in a checkpoint.
inline constexpr std::string_view kCallbackPrefix = "callback.";

// The name in a checkpoint of a callback's tensor: "callback.average.lm_head.weight".
std::string callback_tensor(std::string_view callback, std::string_view tensor);

// The callbacks that every program has, see docs/guide/callbacks.md.
CallbackTable built_in_callbacks();

// A callback of a config.
struct NamedCallback {
  std::string name;
  CopyBox<Callback> callback;
};

// Whether it takes part in the run.
inline bool hears(const NamedCallback& named, const RunConfig& config) {
  return named.callback->is_on() && named.callback->concerns(config);
}

// Numbers by name, as the text that a callback keeps in a checkpoint.
using StateNumbers = std::map<std::string, double>;

// JSON; every number reads back as the same bits, NaN too.
std::string write_state(const StateNumbers& numbers);

// Throws: CheckpointError when it is not such a text, or lacks a number of `names`; the message
//         names the callback
StateNumbers read_state(const std::string& state, std::string_view callback,
                        std::initializer_list<std::string_view> names);

// numbers.at(name) as a count.
// Throws: CheckpointError when it is none, from 0 to 2^53
int64_t count_in(const StateNumbers& numbers, const std::string& name, std::string_view callback);

}  // namespace trireme::train
