// A run's gradient compression: the hook that the config names, and its state as a checkpoint's
// entries. What each rule does: docs/compression.md.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/comm/communicator.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/parallel/data/gradient_hook.h"
#include "trireme/train/config/config.h"

namespace trireme::train {

// The hook of train.compression, after its warm-up; null without compression.
std::shared_ptr<parallel::GradientHook> make_gradient_hook(const TrainConfig& train);

inline constexpr const char* kCompressionPrefix = "compression.";

// "compression.<state>". What each rank has of its own gets a leading dimension over the ranks of
// `axes`, of which each holds one. None for a null hook.
std::vector<checkpoint::Entry> compression_entries(const parallel::GradientHook* hook,
                                                   std::span<const mesh::Axis> axes);

// Whether the checkpoint `folder` holds exactly these entries; not so after another number of data
// ranks, whose residuals cannot be split, or with another rule.
// Comm:       a word a rank
// Collective: every rank of `world`
// Throws:     CheckpointError on all ranks when the manifest cannot be read
bool has_compression_state(const std::filesystem::path& folder,
                           std::span<const checkpoint::Entry> entries, comm::Communicator& world);

// For a hook whose state did not fit: its warm-up goes on where the run's `step` finished steps put
// it, its residuals start from zero.
void restart_compression(const parallel::GradientHook* hook, const TrainConfig& train,
                         int64_t step);

// What the hook keeps on this rank.
int64_t compression_bytes(const parallel::GradientHook* hook);

}  // namespace trireme::train
