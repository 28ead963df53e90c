// The run, as a callback sees it during an event.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/data/shard.h"
#include "trireme/train/metrics/histogram.h"
#include "trireme/train/metrics/metrics.h"

namespace trireme::train {

struct RunConfig;

// Valid during the event.
class RunView {
 public:
  virtual ~RunView() = default;

  virtual const RunConfig& config() const = 0;
  virtual std::filesystem::path folder() const = 0;  // output.folder
  // The ranks that are in the same step: all that train, or those of a learner.
  virtual comm::Communicator& world() = 0;
  virtual int64_t step() const = 0;  // finished steps
  // Metrics of the last step. Timings and memory are the largest over ranks; everything else is the
  // same on all ranks.
  virtual const StepMetrics& metrics() const = 0;
  // This rank's part of each parameter it holds. A callback may write into the weights, and then
  // must call spread_weights().
  virtual const std::vector<parallel::Shard>& shards() = 0;
  // Names of all parameters of the model, in its order. shards() may hold only some of them.
  virtual std::span<const std::string> parameter_names() const = 0;
  // Whether this rank is the first of those that hold the same part as this shard. Together, the
  // shards of all ranks for which this is true cover every parameter once.
  virtual bool counts(const parallel::Shard& shard) const = 0;
  // In kGradients: multiply the shards' gradients by this to undo a loss scale.
  virtual double gradient_factor() const = 0;
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
  // The same for a list of numbers.
  virtual void add_list(std::string name, std::vector<double> values) = 0;
  // Writes histograms of the last step for TensorBoard, in kEvaluate and kStep: those of rank 0.
  virtual void add_histograms(std::span<const NamedHistogram> histograms) = 0;
  // Tells the user, in one line; shown on rank 0.
  virtual void tell(const std::string& line) = 0;
  // Duration of this start's longest checkpoint so far, until it was on disk.
  virtual double longest_save_seconds() const = 0;
  // Saves a checkpoint after this step.
  virtual void request_checkpoint() = 0;
  // Ends the run after this step, with a checkpoint, when any rank asks. `reason` is for the user.
  // for_good: another start does not continue the run, because the callback asks again in kStart.
  virtual void stop(std::string reason, bool for_good) = 0;
  // The whole parameters of this rank's stages, as its operators see them. With ZeRO-3 they have
  // memory only while in use.
  virtual std::vector<std::pair<std::string, at::Tensor>> parameters() = 0;
  // How many ranks hold the same activations between the model's units.
  virtual int64_t activation_copies() const = 0;
  // The learner whose ranks world() has; unset: all ranks train together.
  virtual std::optional<int> learner() const { return std::nullopt; }
};

}  // namespace trireme::train
