// A run's gradient compression: the hook that the config names, and its state as entries of a
// checkpoint. docs/guide/compression.md explains each rule.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/comm/communicator.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/parallel/data/gradient_hook.h"
#include "trireme/train/config/config.h"

namespace trireme::train {

// The hook of train.compression, with its warm-up; null without compression.
std::shared_ptr<parallel::GradientHook> make_gradient_hook(const TrainConfig& train);

inline constexpr const char* kCompressionPrefix = "compression.";

// "compression.<state>". State that differs by rank gets a leading dimension over the ranks of
// `axes`; each rank holds one entry of it. Empty for a null hook.
std::vector<checkpoint::Entry> compression_entries(const parallel::GradientHook* hook,
                                                   std::span<const mesh::Axis> axes);

// Whether the checkpoint has exactly these entries, on every rank. False after a change of the
// number of data ranks, because their residuals cannot be split, and after a change of rule.
// Comm:       8 bytes from each rank to all
// Collective: every rank of `world`
bool has_compression_state(const checkpoint::Summary& checkpoint,
                           std::span<const checkpoint::Entry> entries, comm::Communicator& world);

// Sets up a hook whose state did not fit. Its warm-up continues as after `step` finished steps, and
// its residuals start from zero.
void restart_compression(const parallel::GradientHook* hook, const TrainConfig& train,
                         int64_t step);

// Bytes that the hook keeps on this rank.
int64_t compression_bytes(const parallel::GradientHook* hook);

}  // namespace trireme::train
