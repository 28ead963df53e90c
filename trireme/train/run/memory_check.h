// Checks whether a run can fit the machine at all, before anything of the model is allocated, and
// advises when memory runs out all the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "trireme/train/config/config.h"

namespace trireme::train {

// The least memory a rank needs, in bytes: its share of weights, gradients and optimizer states,
// and of a teacher's weights, what one microbatch's forward keeps, and the samples of a step. The
// mean over pipeline stages. Excludes optimizer states on disk, buckets, gathered weights and
// libtorch itself.
struct MemoryNeed {
  double states = 0;  // with an exchange of learners that goes on behind the training
  double activations = 0;
  double exchange = 0;  // of learners, between two steps
  double samples = 0;
  double total() const { return states + std::max(activations, exchange) + samples; }
};
MemoryNeed least_memory(const RunConfig& config);

// The same of a rank that holds a teacher (parallel.teachers): its weights.
double least_teacher_memory(const RunConfig& config);

// Throws: ConfigError when `num_ranks` ranks, all on this machine, need more than
//         `available_bytes`, with the largest part, the keys that reduce it, and how far
void check_memory(const RunConfig& config, int num_ranks, int64_t available_bytes);

// What a rank needs at least, and which keys lower it by how much.
// config: resolved for `num_ranks`, its data open.
std::string memory_advice(const RunConfig& config, int num_ranks);

// The same for a rank that holds a teacher.
std::string teacher_memory_advice(const RunConfig& config);

// Call while an exception is handled. Rethrows it; a failed allocation becomes a ConfigError that
// says how a rank can need less. advice: memory_advice(), which takes some milliseconds, or null
// before the config is known; shared_advice: for a host whose shared memory is full.
[[noreturn]] void rethrow_with_memory_advice(const std::function<std::string()>& advice = nullptr,
                                             std::string_view shared_advice = "");

// Tells how much of a host's shared memory the run needs in total, and what to do. The error itself
// only names the part that did not fit. "" when the run's gradients are not in shared memory.
// config: resolved.
std::string shared_memory_advice(const RunConfig& config);

}  // namespace trireme::train
