// A prediction of one training step: the schedule that the executor runs, with predicted seconds.
// Ranks that differ only in data, context or tensor coordinate do the same, so one rank for each
// pipeline coordinate is simulated, whatever the number of ranks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/machine/memory_ledger.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/parallel/pipeline/schedule/timeline.h"
#include "trireme/plan/device/cluster.h"
#include "trireme/plan/step/stage_seconds.h"

namespace trireme::plan {

// The time of a pipeline for all microbatches, and the activations that its ranks hold, from timing
// the schedule that the executor runs. A schedule of very many actions is timed for its first
// microbatches and extended, so that the cost of a prediction does not grow with the batch.
struct PipelineTime {
  double seconds = 0;
  // For each rank the most microbatches of its stages that it holds, as a mean over its stages.
  std::vector<double> held{};
};

// The largest number of actions, transfers among them, that is timed whole, and that a timeline is
// drawn of.
inline constexpr int64_t kMostTimedActions = 1 << 18;
inline constexpr int64_t kMostDrawnActions = 1 << 22;

// About the actions of a schedule.
int64_t num_actions(std::string_view schedule, const parallel::ScheduleOptions& options);

// Times all microbatches if there are at most `most_actions`. Otherwise it times two and four
// rounds of as many microbatches as ranks: from then on each round takes as long as the one before.
// Nothing when even these are more than kMostDrawnActions.
// Throws: as parallel::make_schedule()
std::optional<PipelineTime> time_pipeline(const std::string& schedule,
                                          const parallel::ScheduleOptions& options,
                                          const parallel::PipelineCosts& costs,
                                          int64_t most_actions = kMostTimedActions);

// Memory of the rank that needs the most, in bytes.
struct StepMemory {
  double weights = 0;
  double gradients = 0;  // that stay from microbatch to microbatch
  double states = 0;
  double outer = 0;        // common weights of learners, and what goes with them
  double activations = 0;  // of all microbatches that it holds
  double passing = 0;      // logits, and what a layer needs while it runs
  double gathered = 0;     // units of ZeRO-3
  double buckets = 0;      // gradients on their way
  double reserved = 0;     // driver and libraries
  int pipeline_rank = 0;

  double model_states() const { return weights + gradients + states + outer; }
  double temporary() const { return passing + gathered + buckets; }
  double tensors() const { return model_states() + activations + temporary(); }
  double total() const { return tensors() + reserved; }
  // The tensors in the order of MemoryKind, so that a run's ledger can be read beside them.
  std::array<double, kNumMemoryKinds> by_kind() const {
    return {weights, gradients, states + outer, activations + passing, gathered, buckets, 0};
  }
};

// The breakdown of a step's seconds. The parts add up to the step.
struct StepSeconds {
  double compute = 0;  // of the busiest rank
  double tensor = 0;   // exposed communication, by axis
  double context = 0;
  double expert = 0;
  double data = 0;
  double outer = 0;   // what learners exchange, a mean over the steps of a round
  double bubble = 0;  // the pipeline waits
  double optimizer = 0;
  double rest = 0;  // data, norm, logging

  double total() const { return compute + communication() + bubble + optimizer + rest; }
  double communication() const { return tensor + context + expert + data + outer; }
};

struct StepPrediction {
  StepSeconds seconds{};
  StepMemory memory{};
  double bubble_fraction = 0;  // of the pipeline's time
  // Per step, over all ranks.
  double model_flops = 0;
  double hardware_flops = 0;
  double tokens = 0;
  int64_t num_devices = 1;
  double peak = 0;  // of a device
  double available_bytes = 0;

  double step_seconds() const { return seconds.total(); }
  double tokens_per_second() const { return tokens / step_seconds(); }
  double flops_per_device() const {
    return model_flops / step_seconds() / static_cast<double>(num_devices);
  }
  double hardware_flops_per_device() const {
    return hardware_flops / step_seconds() / static_cast<double>(num_devices);
  }
  bool fits() const { return memory.total() <= available_bytes; }
};

// The layers and ranks of the pipeline's stages.
struct StageLayout {
  std::vector<int> layers{};  // of each stage, along the model
  std::vector<int> rank_of_stage{};

  // The part of the model that each stage is.
  std::vector<model::ModelPart> parts() const;
};
// Divides the layers as evenly as their cost allows, as the runtime does.
// Throws: ConfigError when there are fewer layers than stages
StageLayout stage_layout(const Workload& work);

// The schedule of a step, and its timeline in predicted seconds.
struct StepTimeline {
  parallel::Schedule schedule{};
  parallel::Timeline timeline{};
};
// Throws: ConfigError when it has more than kMostDrawnActions
StepTimeline step_timeline(const Workload& work, const Cluster& cluster, const StageLayout& layout);

// For schedules with very many actions, only the first are timed, or none.
// Throws: ConfigError when the schedule or the stages are impossible
StepPrediction predict_step(const Workload& work, const Cluster& cluster,
                            const StageLayout& layout);

// The same without the schedule: a formula for the bubble, and for what a rank holds. For searching
// many layouts.
StepPrediction estimate_step(const Workload& work, const Cluster& cluster,
                             const StageLayout& layout);

}  // namespace trireme::plan
