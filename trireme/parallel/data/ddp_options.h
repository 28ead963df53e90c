// The options of DistributedDataParallel, and the ranks that it works on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/data/gradient_hook.h"
#include "trireme/parallel/data/part_memory.h"
#include "trireme/parallel/data/shard.h"
#include "trireme/parallel/data/unit.h"

namespace trireme::parallel {

struct DdpOptions {
  // States to shard over the ranks: 0 none (DDP), 1 optimizer state, 2 also gradients, 3 also
  // parameters.
  int zero = 0;
  // ZeRO-3: the parts that run() runs, in the order of forward. Other parameters stay whole.
  std::vector<Unit> units{};
  // ZeRO-3: gather a unit ahead only while fewer units than this are gathered; 1: never gather
  // ahead. Backward gathers a unit before it releases the one after it.
  int max_gathered_units = 3;
  // Approximate size of the buckets in which gradients are sent. Smaller ones start earlier; larger
  // ones need fewer synchronisations. The result's bits do not depend on it.
  int64_t bucket_bytes = 4 << 20;
  // true: communicate on the group's progress thread while this one computes. false: communicate in
  // the computing thread.
  bool overlap = true;
  // Buckets live in the group's symmetric memory, where they are reduced fastest. Set to false on a
  // host with too little shared memory.
  bool symmetric = true;
  // The order in which gradients are added. false: a rank adds up its microbatches, then the ranks'
  // sums are added, once per step; every stage holds whole gradients from the first microbatch to
  // the last. true: each microbatch is summed over the ranks in rank order, behind its backward,
  // and each rank adds up its part of these sums in the order of microbatches. ZeRO-2 and 3 then
  // hold a few buckets beside that part, whatever the number of microbatches; each microbatch costs
  // the traffic of a step. All stages have the same bits in one order.
  bool rank_first = false;
  // rank_first without `reproducible`: add up bf16 and fp16 microbatches in fp32, and keep
  // gradients in fp32. What is sent keeps its dtype.
  bool add_in_fp32 = false;
  // Sum gradients over microbatches and ranks in one fixed binary tree. The bits are then the same
  // for every number of ranks that share the same microbatches; both numbers must be powers of two.
  // Its leaves are numbered rank by rank: leaf r * m + j is microbatch j of m on rank r. With
  // rank_first microbatch by microbatch: leaf j * p + r. Costs one more buffer of gradients (with
  // rank_first: of this rank's part) per doubling of the microbatches.
  bool reproducible = false;
  // Sum bf16 and fp16 gradients in fp32, and keep them in fp32: 4 bytes per parameter instead of 2.
  bool reduce_in_fp32 = false;
  // Never split a parameter among ranks: for optimizers that need it whole.
  bool whole_parameters = false;
  // Sums the gradients in place of the all-reduce: compression, or a rule of yours. Sees every
  // bucket whole, in the computing thread. Every ZeRO stage has the bits of DDP with the same hook.
  // Excludes `reproducible` and replicas of a shard group.
  std::shared_ptr<GradientHook> hook{};
  // Keep this rank's parts of the units' weights (ZeRO-3) and of all gradients (ZeRO-2 and 3)
  // elsewhere between uses; null: with the parameters. The parts of parameters outside all units
  // stay with them. Bits do not depend on it where the CPU computes.
  std::shared_ptr<PartMemory> weights_home{};
  std::shared_ptr<PartMemory> gradients_home{};
  // Fills the weights of shards. For ZeRO and parameters without memory (sharded_weights.h), which
  // no rank ever has whole: each rank fills what it owns, and replicas of a shard group take the
  // first one's values. The other parameters take rank 0's values.
  std::function<void(std::span<const Shard> shards)> initialise{};
  // Maps a parameter name to its layout over the other axes and this rank's index in it. Empty: no
  // other axis splits parameters.
  std::function<std::pair<mesh::Layout, int>(const std::string& name)> outer_layout{};
  // The names of the module's parameters and buffers that this instance looks after; empty: all.
  // Others may belong to another instance, over other groups. Units may have both.
  std::function<bool(const std::string& name)> selects{};
  // Measure microbatch_squares(), at the cost of one more pass over the gradients.
  bool measure_squares = false;
};

// Ranks with different data. Gradients are summed over both groups.
struct DataGroups {
  comm::Communicator& shard;              // shard the states (hybrid shard: the ranks of a host)
  comm::Communicator* replica = nullptr;  // hold the same part of the states; null: only this rank
};

// Throws: ConfigError when an option is out of range or excludes another
void check_options(const DdpOptions& options, bool has_replicas);

}  // namespace trireme::parallel
