// Seconds of one microbatch on one pipeline stage, and of the communication within it.
#pragma once

#include <cstdint>

#include "trireme/model/family/parts.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/plan/cost/device_seconds.h"
#include "trireme/plan/cost/workload.h"
#include "trireme/plan/device/cluster.h"

namespace trireme::plan {

// Seconds of one direction, forward or backward.
struct PhaseSeconds {
  double compute = 0;
  // Not hidden behind computation, by axis.
  double tensor = 0;
  double context = 0;
  double expert = 0;
  double data = 0;  // ZeRO-3's gathers and, under ZeRO-2 and 3, the reduction of each microbatch

  double total() const { return compute + tensor + context + expert + data; }
  PhaseSeconds& operator+=(const PhaseSeconds& other);
  PhaseSeconds operator*(double factor) const;
};

struct StageSeconds {
  PhaseSeconds forward{};
  PhaseSeconds backward{};  // with what it computes again
  // The part of the backward that gives the gradient of weights.
  double weight_share = 0.5;
  // Of this rank's stage: those that every token uses, and those of its experts.
  struct Parameters {
    double all = 0;      // without adapters
    double trained = 0;  // with adapters
    double kept = 0;     // as many in the run's dtype take the bytes of all weights, with adapters

    Parameters& operator+=(const Parameters& other);
    Parameters operator*(double factor) const;
  };
  Parameters parameters{};
  Parameters expert_parameters{};
  // Floating-point operations that backward does again.
  double repeated_flops = 0;
};

// Whether the cluster's attention of this model is fused.
bool has_fused_attention(const Workload& work, const Cluster& cluster);

// The groups of an axis, in the order of the mesh: tensor ranks are neighbours, then context, then
// shard, then data, then pipeline.
Group tensor_group(const Workload& work);
Group context_group(const Workload& work);
Group shard_group(const Workload& work);  // of the states: shard and context
Group data_group(const Workload& work);   // of the gradients: data and context
Group expert_group(const Workload& work);
Group expert_data_group(const Workload& work);
// Of the states of experts. Each rank has all of them where the expert axis has one rank.
Group expert_shard_group(const Workload& work);
Group pipeline_group(const Workload& work);

// Of sharding ranks, each of which has summed its part of `bytes` of gradients with those of its
// shard group: the sum over the groups, which have a copy of the states each.
double replica_seconds(const Workload& work, const Cluster& cluster, double bytes);

StageSeconds stage_seconds(const Workload& work, const Cluster& cluster,
                           const model::ModelPart& part);

// Time from the end of a stage to the start of the next one on another rank: one microbatch's
// activations.
double stage_transfer_seconds(const Workload& work, const Cluster& cluster);

}  // namespace trireme::plan
