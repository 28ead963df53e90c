// What sums a run's gradients in place of the plain all-reduce: the hook that the config names, and
// its state as entries of a checkpoint. docs/guide/compression.md explains each rule.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/comm/communicator.h"
#include "trireme/mesh/layout.h"
#include "trireme/parallel/data/gradient_hook.h"
#include "trireme/train/config/config.h"
#include "trireme/train/optimizer/optimizer.h"

namespace trireme::train {

// What a hook asks the run's optimizer. Both outlive the hook.
struct OptimizerView {
  std::function<int64_t()> num_updates{};  // so far
  // See SignHookOptions.
  std::function<bool(const std::string& parameter, const at::Tensor& momentum)> find_momentum{};
};

// The hook of train.compression, with its warm-up, of train.gradient_sum or of an optimizer that
// exchanges signs; null for plain sums.
std::shared_ptr<parallel::GradientHook> make_gradient_hook(const RunConfig& config,
                                                           OptimizerView optimizer = {});

// Copies what this rank has of the parameter's first moment into `momentum`, whose other elements
// stay. Whether that is all of it.
// Shapes: momentum: the parameter's
bool copy_momentum(const Optimizer& optimizer, const std::string& parameter,
                   const at::Tensor& momentum);

inline constexpr const char* kCompressionPrefix = "compression.";

// The layout of a parameter over the axes that split it, and this rank's number in it.
using PlaceOf = std::function<std::pair<mesh::Layout, int>(const std::string& parameter)>;

// "compression.<state>". State that differs by rank gets a leading dimension over the ranks that
// sum the gradient; each rank holds one entry of it. Beyond that it is laid out as its parameter.
// State that these ranks hold together has no such dimension; where other axes split the parameter,
// its name ends in "@" and the number of the part. Empty for a null hook.
std::vector<checkpoint::Entry> compression_entries(const parallel::GradientHook* hook,
                                                   const PlaceOf& place_of);

// What to load of a checkpoint.
struct CompressionLoad {
  std::vector<checkpoint::Entry> entries{};
  std::function<void()> finish = [] {};  // once they are loaded
  // Some state is not there, or is another rule's, on some rank. Nothing is loaded if the rule is
  // another.
  bool restarted = false;
};
// Residuals of another number of ranks are shared out: neighbours' are summed where there are fewer
// ranks now, and ranks that are new begin with zero. What is not sent yet stays the same.
// Comm:       8 bytes from each rank to all
// Collective: every rank of `world`
CompressionLoad load_compression(const parallel::GradientHook* hook, const PlaceOf& place_of,
                                 const checkpoint::Summary& saved, comm::Communicator& world);

// Sets up a hook whose state did not fit. Its warm-up continues as after `step` finished steps.
void restart_compression(const parallel::GradientHook* hook, const TrainConfig& train,
                         int64_t step);

// Bytes that the hook keeps on this rank.
int64_t compression_bytes(const parallel::GradientHook* hook);

}  // namespace trireme::train
