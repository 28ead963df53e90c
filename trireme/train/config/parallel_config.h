// Section [parallel] of a config.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"
#include "trireme/parallel/context/context_form.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::train {

enum class AsyncTensor { kAuto, kOn, kOff };
inline constexpr Choice<AsyncTensor> kAsyncTensors[] = {
    {"auto", AsyncTensor::kAuto}, {"on", AsyncTensor::kOn}, {"off", AsyncTensor::kOff}};

// Which parameters the servers have.
enum class Served { kAll, kTables };
inline constexpr Choice<Served> kServed[] = {{"all", Served::kAll}, {"tables", Served::kTables}};

// The transports of comm/rendezvous that a training run may use.
std::vector<std::string> train_transports();

struct ParallelConfig {
  TRIREME_KEYS_BEGIN(ParallelConfig)
  TRIREME_NAMED_KEY(bool, automatic, "auto", false, kMayChange,
                    "choose the layout, train.micro_batch and train.recompute for these ranks, "
                    "whatever those keys say")
  TRIREME_KEY(std::string, cluster, "", kMayChange,
              "CLUSTER file that describes these ranks, for auto and for the prediction after "
              "training; empty = measure them; none = no prediction")
  TRIREME_KEY(int64_t, data, 0, kMayChange, "data-parallel ranks; 0 = what the other axes leave",
              Range{0, kMaxRanks})
  TRIREME_KEY(int64_t, zero, 0, kMayChange, "ZeRO stage over the data ranks, 1 to 3; 0 = DDP",
              Range{0, 3})
  TRIREME_KEY(int64_t, shard, 0, kMayChange, "zero: ranks that shard one copy; 0 = all data ranks",
              Range{0, kMaxRanks})
  TRIREME_KEY(int64_t, gathered_units, 3, kMayChange,
              "zero = 3: gather the next block ahead while fewer than this many are gathered",
              Range{1, kMaxLayers})
  TRIREME_KEY(int64_t, tensor, 1, kMayChange, "tensor-parallel ranks", Range{1, kMaxRanks})
  TRIREME_KEY(bool, sequence_parallel, false, kMayChange,
              "tensor: norms and residuals hold only this rank's tokens, which saves memory")
  TRIREME_KEY(AsyncTensor, async_tensor, AsyncTensor::kAuto, kMayChange,
              "tensor: communicate while multiplying; auto = what the first steps show to be "
              "faster",
              kAsyncTensors)
  TRIREME_KEY(int64_t, pipeline, 1, kMayChange, "pipeline ranks", Range{1, kMaxRanks})
  TRIREME_KEY(std::string, schedule, "1f1b", kMayChange, "pipeline schedule",
              parallel::schedule_names)
  TRIREME_KEY(int64_t, stages_per_rank, 0, kMayChange,
              "pipeline stages per rank; 0 = what the schedule asks for, 1 or 2",
              Range{0, kMaxLayers})
  TRIREME_KEY(std::string, stage_layers, "", kMayChange,
              "layers of each stage, such as 3,3; empty = as even as their cost allows")
  TRIREME_KEY(int64_t, stage_memory, 0, kMayChange,
              "limit on a rank's estimated states and activations, in bytes, when layers are split "
              "by cost; 0 = no limit",
              Range{0, kMaxMemory})
  TRIREME_KEY(int64_t, rebalance_interval, 0, kMayChange,
              "measure the stages every N steps, and move layers if that pays; 0 = never",
              Range{0, kMaxSteps})
  TRIREME_KEY(double, rebalance_threshold, 0.1, kMayChange,
              "a move must save this share of the slowest stage's time", Range{0, 1})
  TRIREME_KEY(int64_t, context, 1, kMayChange, "context-parallel ranks", Range{1, kMaxRanks})
  TRIREME_KEY(parallel::ContextForm, context_form, parallel::ContextForm::kRing, kMayChange,
              "context: pass keys and values round a ring, or exchange heads (Ulysses)",
              parallel::kContextForms)
  TRIREME_KEY(int64_t, expert, 1, kMayChange,
              "ranks, of data and context, that share out the experts", Range{1, kMaxRanks})
  TRIREME_KEY(int64_t, expert_chunk, 0, kMayChange,
              "tokens that a rank sends to experts at once, which keep nothing of them and compute "
              "them again in backward; 0 = all at once",
              Range{0, kMaxBatch* kMaxSequence})
  TRIREME_KEY(
      int64_t, expert_replicas, 0, kMayChange,
      "copy so many of the step before's busiest experts of each block to every rank, where "
      "their tokens then stay; 0 = none",
      Range{0, kMaxExperts})
  TRIREME_KEY(int64_t, servers, 0, kMayChange,
              "number of ranks, the last ones, that are parameter servers; 0 = none",
              Range{0, kMaxRanks})
  TRIREME_KEY(Served, served, Served::kAll, kMayChange,
              "servers: what they own: all = all parameters; tables = only the embedding tables; "
              "workers train the rest synchronously",
              kServed)
  TRIREME_KEY(int64_t, staleness, 0, kMayChange,
              "servers: how many steps a worker may be ahead of the slowest; 0 = synchronous, -1 = "
              "unlimited",
              Range{-1, 1e6})
  TRIREME_KEY(int64_t, server_copies, 1, kMayChange,
              "servers: how many of them hold each parameter, so that some may die",
              Range{1, kMaxRanks})
  TRIREME_KEY(
      bool, host_sums, false, kMayChange,
      "servers: the ranks of a host sum their gradients, and the first of them talks to the "
      "servers for all")
  TRIREME_KEY(std::string, replay, "", kMayChange,
              "servers: folder server-log of a run whose order of updates to repeat; empty = none")
  TRIREME_KEY(std::string, transport, "auto", kMayChange,
              "how ranks communicate (mpi: started by mpirun)", train_transports)
  TRIREME_KEY(int64_t, timeout_seconds, 300, kMayChange,
              "how long a rank waits for another before the run ends and names it",
              Range{1, kMaxSeconds})
  TRIREME_KEY(int64_t, heap_bytes, 0, kMayChange,
              "limit on a rank's shared memory for gradients and activations; 0 = what /dev/shm "
              "has, at most 2 TiB divided by the host's ranks",
              Range{0, kMaxMemory})
  TRIREME_KEYS_END()
};

}  // namespace trireme::train
