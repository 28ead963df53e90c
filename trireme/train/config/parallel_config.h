// Section [parallel] of a config.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"
#include "trireme/mesh/axis_kinds.h"
#include "trireme/parallel/context/sequence_split.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::train {

enum class AsyncTensor { kAuto, kOn, kOff };
inline constexpr Choice<AsyncTensor> kAsyncTensors[] = {
    {"auto", AsyncTensor::kAuto}, {"on", AsyncTensor::kOn}, {"off", AsyncTensor::kOff}};

// The parameters that servers own.
enum class Served { kAll, kTables };
inline constexpr Choice<Served> kServed[] = {{"all", Served::kAll}, {"tables", Served::kTables}};

// The transports of comm/rendezvous that a training run may use.
std::vector<std::string> train_transports();

// The transport for GPU tensors between ranks.
enum class GpuTransport { kNccl, kCudaIpc };
inline constexpr Choice<GpuTransport> kGpuTransports[] = {{"nccl", GpuTransport::kNccl},
                                                          {"cuda-ipc", GpuTransport::kCudaIpc}};

// The order in which the gradients of microbatches and ranks are added (docs/design/numerics.md).
enum class GradientOrder { kAuto, kMicrobatchFirst, kRankFirst };
inline constexpr Choice<GradientOrder> kGradientOrders[] = {
    {"auto", GradientOrder::kAuto},
    {"microbatch-first", GradientOrder::kMicrobatchFirst},
    {"rank-first", GradientOrder::kRankFirst}};

struct ParallelConfig {  // NOLINT(clang-analyzer-optin.performance.Padding): the order of --help
  TRIREME_KEYS_BEGIN(ParallelConfig)
  TRIREME_NAMED_KEY(bool, automatic, "auto", false, kMayChange,
                    "let the planner choose the layout, train.micro_batch and train.recompute; "
                    "overrides those keys")
  TRIREME_KEY(std::string, cluster, "", kMayChange,
              "CLUSTER file that describes the ranks, for parallel.auto and the prediction after "
              "training; empty = measure them, none = no prediction")
  TRIREME_KEY(int64_t, data, 0, kMayChange,
              "data-parallel ranks; 0 = the ranks that the other axes leave", Range{0, kMaxRanks})
  TRIREME_KEY(int64_t, zero, 0, kMayChange,
              "ZeRO stage over the data-parallel ranks, 1 to 3; 0 = DDP", Range{0, 3})
  TRIREME_KEY(int64_t, shard, 0, kMayChange,
              "ZeRO: ranks that share one sharded copy of the states (hybrid sharding); 0 = all "
              "data-parallel ranks",
              Range{0, kMaxRanks})
  TRIREME_KEY(GradientOrder, gradient_order, GradientOrder::kAuto, kMayChange,
              "order in which gradients are added; microbatch-first = over a rank's microbatches, "
              "then over ranks, once per step; rank-first = over ranks in each microbatch, which "
              "ZeRO-2 and 3 need to hold only their part of the gradients; auto = rank-first for "
              "new runs with zero = 2 or 3, otherwise microbatch-first",
              kGradientOrders)
  TRIREME_KEY(int64_t, gathered_units, 3, kMayChange,
              "ZeRO-3: maximum number of blocks gathered at a time; 1 = do not gather ahead",
              Range{1, kMaxLayers})
  TRIREME_KEY(int64_t, tensor, 1, kMayChange, "tensor-parallel ranks", Range{1, kMaxRanks})
  TRIREME_KEY(bool, sequence_parallel, false, kMayChange,
              "tensor: shard norms and residuals over the sequence, which saves activation memory")
  TRIREME_KEY(AsyncTensor, async_tensor, AsyncTensor::kAuto, kMayChange,
              "tensor: overlap communication with matrix products; auto = measure both in the "
              "first steps and keep the faster",
              kAsyncTensors)
  TRIREME_KEY(int64_t, pipeline, 1, kMayChange, "pipeline-parallel ranks", Range{1, kMaxRanks})
  TRIREME_KEY(std::string, schedule, "1f1b", kMayChange, "pipeline schedule",
              parallel::schedule_names)
  TRIREME_KEY(int64_t, stages_per_rank, 0, kMayChange,
              "pipeline: stages per rank; 0 = 1, or 2 for schedules that need several",
              Range{0, kMaxLayers})
  TRIREME_KEY(std::string, stage_layers, "", kMayChange,
              "pipeline: comma-separated numbers of layers per stage, such as 4,2; empty = balance "
              "the stages by cost")
  TRIREME_KEY(int64_t, stage_memory, 0, kMayChange,
              "pipeline: memory limit for balancing stages, on a rank's estimated states and "
              "activations, in bytes; 0 = no limit",
              Range{0, kMaxMemory})
  TRIREME_KEY(int64_t, rebalance_interval, 0, kMayChange,
              "pipeline: measure the stages every N steps and move layers if that pays; 0 = never",
              Range{0, kMaxSteps})
  TRIREME_KEY(double, rebalance_threshold, 0.1, kMayChange,
              "pipeline: smallest gain that justifies moving layers, as a fraction of the slowest "
              "stage's time",
              Range{0, 1})
  TRIREME_KEY(int64_t, context, 1, kMayChange, "context-parallel ranks", Range{1, kMaxRanks})
  TRIREME_KEY(parallel::ContextForm, context_form, parallel::ContextForm::kRing, kMayChange,
              "context: attention across sequence shards; ring = pass keys and values around a "
              "ring, all-to-all = exchange heads (Ulysses)",
              parallel::kContextForms)
  TRIREME_KEY(int64_t, expert, 1, kMayChange,
              "expert-parallel ranks, within the data and context ranks", Range{1, kMaxRanks})
  TRIREME_KEY(
      int64_t, expert_chunk, 0, kMayChange,
      "expert: tokens that a rank sends to experts at a time, to limit memory; expert activations "
      "are recomputed in the backward pass; 0 = all at once, without recomputation",
      Range{0, kMaxBatch* kMaxSequence})
  TRIREME_KEY(int64_t, expert_replicas, 0, kMayChange,
              "expert: number of busiest experts per block, by the previous step, to copy to every "
              "rank, so that their tokens need not travel; 0 = none",
              Range{0, kMaxExperts})
  TRIREME_KEY(
      int64_t, learners, 1, kMustStay,
      "groups of ranks that train by themselves, each with all other axes, and exchange "
      "what they have learned every outer.every steps; 1 = all ranks train together, hosts = "
      "the ranks of each host are one",
      Range{.minimum = 1, .maximum = kMaxRanks, .zero = "hosts"})
  TRIREME_KEY(int64_t, servers, 0, kMayChange,
              "number of ranks that are parameter servers, the last ones; 0 = none",
              Range{0, kMaxRanks})
  TRIREME_KEY(
      Served, served, Served::kAll, kMayChange,
      "parameters that the servers own; all = every parameter, tables = embedding tables only, "
      "while workers train the rest synchronously",
      kServed)
  TRIREME_KEY(int64_t, staleness, 0, kMayChange,
              "servers: maximum number of steps by which a worker may be ahead of the slowest; 0 = "
              "synchronous, -1 = unlimited",
              Range{-1, 1e6})
  TRIREME_KEY(
      int64_t, server_copies, 1, kMayChange,
      "servers: number of servers that hold each parameter; 2 or more survive the loss of a server",
      Range{1, kMaxRanks})
  TRIREME_KEY(bool, host_sums, false, kMayChange,
              "servers: sum gradients within each host, so that one rank per host exchanges data "
              "with the servers")
  TRIREME_KEY(std::string, replay, "", kMayChange,
              "servers: folder server-log of an earlier run whose order of updates is repeated; "
              "empty = off")
  TRIREME_KEY(int64_t, teachers, 0, kMayChange,
              "number of ranks that hold the teacher of a distillation and train nothing, the last "
              "ones; 0 = the ranks that train hold it",
              Range{0, kMaxRanks})
  TRIREME_KEY(int64_t, teacher_tensor, 1, kMayChange,
              "teachers: tensor-parallel ranks that share one copy of the teacher",
              Range{1, kMaxRanks})
  TRIREME_KEY(std::string, transport, "auto", kMayChange,
              "transport between ranks; mpi = start the ranks with mpirun", train_transports)
  TRIREME_KEY(GpuTransport, gpu_transport, GpuTransport::kNccl, kMayChange,
              "transport between GPUs; nccl = one GPU per rank, cuda-ipc = the ranks of one host "
              "share its first GPU and reduce in rank order",
              kGpuTransports)
  TRIREME_KEY(int64_t, timeout_seconds, 300, kMayChange,
              "longest wait for another rank, in seconds; the error then names that rank",
              Range{1, kMaxSeconds})
  TRIREME_KEY(int64_t, heap_bytes, 0, kMayChange,
              "limit on a rank's shared memory for gradients and activations, in bytes; 0 = all of "
              "/dev/shm, or 2 TiB divided by the ranks of the host if that is less",
              Range{0, kMaxMemory})
  TRIREME_KEYS_END()
};

// The sizes of the axes beside data. Each key is parallel.<axis>.
struct AxisKey {
  std::string_view axis;
  int64_t ParallelConfig::*size;
};
inline constexpr AxisKey kAxisKeys[] = {{"tensor", &ParallelConfig::tensor},
                                        {"context", &ParallelConfig::context},
                                        {"expert", &ParallelConfig::expert},
                                        {"pipeline", &ParallelConfig::pipeline}};

// The ranks of one learner that read samples of their own: those of data, and of axes within it
// that add ranks.
inline int64_t sample_ranks(const ParallelConfig& parallel) {
  int64_t ranks = parallel.data;
  for (const AxisKey& key : kAxisKeys) {
    const mesh::AxisKind& kind = mesh::kind_of(key.axis);
    if (kind.tokens == mesh::Tokens::kOtherSamples && !kind.is_folded) ranks *= parallel.*key.size;
  }
  return ranks;
}

}  // namespace trireme::train
