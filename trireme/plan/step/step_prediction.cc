// Length: one prediction, whose seconds and bytes come from the same stages.
#include "trireme/plan/step/step_prediction.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "trireme/parallel/pipeline/schedule/schedule_check.h"
#include "trireme/parallel/pipeline/schedule/split.h"
#include "trireme/plan/cost/device_seconds.h"
#include "trireme/plan/cost/layer_costs.h"

namespace trireme::plan {
namespace {

PipelineTime time_all(const std::string& name, const parallel::ScheduleOptions& options,
                      const parallel::PipelineCosts& costs) {
  const parallel::Schedule schedule = parallel::make_schedule(name, options);
  PipelineTime time{.seconds = parallel::make_timeline(schedule, costs).cost()};
  const double stages_per_rank = static_cast<double>(schedule.num_stages()) / schedule.num_ranks();
  for (const parallel::PeakActivations& peak : parallel::peak_activations(schedule)) {
    time.held.push_back(peak.until_weight / stages_per_rank);
  }
  return time;
}

}  // namespace

int64_t num_actions(std::string_view schedule, const parallel::ScheduleOptions& options) {
  const int64_t stages = int64_t{options.num_ranks} * parallel::num_chunks_of(schedule, options);
  // Three computations, and the sends and receives of both directions.
  return (options.num_ranks == 1 ? 3 : 7) * stages * options.num_microbatches;
}

std::optional<PipelineTime> time_pipeline(const std::string& schedule,
                                          const parallel::ScheduleOptions& options,
                                          const parallel::PipelineCosts& costs,
                                          int64_t most_actions) {
  if (num_actions(schedule, options) <= most_actions) return time_all(schedule, options, costs);
  parallel::ScheduleOptions two = options, four = options;
  two.num_microbatches = std::min(options.num_microbatches, 2 * options.num_ranks);
  four.num_microbatches = std::min(options.num_microbatches, 4 * options.num_ranks);
  if (num_actions(schedule, four) > kMostDrawnActions) return std::nullopt;
  const PipelineTime first = time_all(schedule, two, costs);
  PipelineTime time = time_all(schedule, four, costs);
  if (four.num_microbatches == two.num_microbatches) return time;
  const double rounds = static_cast<double>(options.num_microbatches - four.num_microbatches) /
                        (four.num_microbatches - two.num_microbatches);
  const auto extend = [&](double& value, double before) { value += rounds * (value - before); };
  extend(time.seconds, first.seconds);
  for (size_t rank = 0; rank < time.held.size(); ++rank) extend(time.held[rank], first.held[rank]);
  return time;
}

// The time of the pipeline comes from one of two places: predict_step() times the executor's own
// schedule, estimate_step() has a formula for the bubble, which a search can afford for each
// candidate. All else is put together by one function, so that the two differ in nothing but the
// pipeline. The busiest rank's computation and communication are shown; what the pipeline takes
// beyond them is the bubble. Stages of the same blocks are computed once, as a long pipeline has
// many.

namespace {

parallel::ScheduleOptions options_of(const Workload& work, int64_t num_microbatches) {
  return {.num_ranks = static_cast<int>(work.axes.pipeline),
          .num_microbatches = static_cast<int>(num_microbatches),
          .num_chunks = work.axes.pipeline == 1 ? 1 : static_cast<int>(work.stages_per_rank)};
}

std::string schedule_of(const Workload& work) {
  return work.axes.pipeline == 1 ? "1f1b" : work.schedule;
}

std::vector<StageSeconds> all_stages(const Workload& work, const Cluster& cluster,
                                     const StageLayout& layout) {
  // Stages of the same blocks take the same time, and most do, unless some blocks are frozen.
  std::map<std::pair<int64_t, int64_t>, StageSeconds> known;  // by layers, and the sparse of them
  std::vector<StageSeconds> stages;
  for (const model::ModelPart& part : layout.parts()) {
    const int64_t sparse = num_sparse(work.model, part);
    if (part.embeds || part.has_head || work.blocks) {
      stages.push_back(stage_seconds(work, cluster, part));
      continue;
    }
    const auto [same, is_new] = known.try_emplace({part.num_layers, sparse});
    if (is_new) same->second = stage_seconds(work, cluster, part);
    stages.push_back(same->second);
  }
  return stages;
}

parallel::PipelineCosts costs_of(const Workload& work, const Cluster& cluster,
                                 const std::vector<StageSeconds>& stages) {
  const double transfer = stage_transfer_seconds(work, cluster);
  // A rank that sends and receives computes slower meanwhile.
  const double slower = cluster.device.transfer_cost * transfer;
  parallel::PipelineCosts costs{.stages = {}, .communication = transfer - slower};
  for (const StageSeconds& stage : stages) {
    const double backward = stage.backward.total() + slower;
    costs.stages.push_back({.forward = stage.forward.total() + slower,
                            .backward_input = backward * (1 - stage.weight_share),
                            .backward_weight = backward * stage.weight_share});
  }
  return costs;
}

// The work of one pipeline rank in a step.
struct RankWork {
  PhaseSeconds busy{};  // of all microbatches
  StageSeconds::Parameters parameters{};
  StageSeconds::Parameters expert_parameters{};
  double last_backward = 0;  // of one microbatch: what reduction of gradients may hide behind
};

std::vector<RankWork> work_of_ranks(const Workload& work, const std::vector<StageSeconds>& stages,
                                    const StageLayout& layout) {
  std::vector<RankWork> ranks(static_cast<size_t>(work.axes.pipeline));
  const double microbatches = number(work.num_microbatches());
  for (size_t i = 0; i < stages.size(); ++i) {
    RankWork& rank = ranks[static_cast<size_t>(layout.rank_of_stage[i])];
    rank.busy += stages[i].forward * microbatches;
    rank.busy += stages[i].backward * microbatches;
    rank.parameters += stages[i].parameters;
    rank.expert_parameters += stages[i].expert_parameters;
    rank.last_backward += stages[i].backward.compute;
  }
  return ranks;
}

// The reduction of gradients that does not hide behind the last microbatch's backward, and the
// gathering of what ZeRO-1 and 2 have divided.
double reduction_seconds(const Workload& work, const Cluster& cluster, const RankWork& rank) {
  const NumberSizes sizes = work.sizes.of_trained();
  const double bytes = rank.parameters.trained * sizes.gradient,
               of_experts = rank.expert_parameters.trained * sizes.gradient;
  const auto calls = [&](double of) { return std::ceil(of / number(work.bucket_bytes)); };
  double reduction = 0;
  if (work.sizes.rank_first) {
    // Each microbatch's backward has it: stage_seconds.cc.
  } else if (work.zero == 0) {
    reduction = all_reduce_seconds(cluster, data_group(work), bytes, calls(bytes)) +
                all_reduce_seconds(cluster, expert_data_group(work), of_experts, calls(of_experts));
  } else {
    reduction =
        reduce_scatter_seconds(cluster, shard_group(work), bytes, calls(bytes)) +
        replica_seconds(work, cluster, bytes + (work.axes.expert == 1 ? of_experts : 0)) +
        reduce_scatter_seconds(cluster, expert_shard_group(work), of_experts, calls(of_experts));
  }
  const double hidden = work.overlap ? std::min(reduction, 0.9 * rank.last_backward) : 0;
  double gathers = 0;
  if (work.zero == 1 || work.zero == 2) {
    const double whole = rank.parameters.trained * sizes.weight,
                 expert = rank.expert_parameters.trained * sizes.weight;
    gathers = all_gather_seconds(cluster, shard_group(work), whole, calls(bytes)) +
              all_gather_seconds(cluster, expert_data_group(work), expert, calls(of_experts));
  }
  return reduction - hidden + cluster.device.overlap_cost * hidden + gathers;
}

// Reads gradients for their norm, and reads and writes weights and states. What is on a disk passes
// through it, one part while another is updated: gradients twice, all else both ways. So does what
// is on a GPU's host, over the link, unless the host makes the update.
double optimizer_seconds(const Workload& work, const Cluster& cluster, const RankWork& rank) {
  const NumberSizes sizes = work.sizes.of_trained();
  const double ranks = work.zero == 0 ? 1 : number(work.axes.sharing());
  const double of_experts = work.zero == 0 ? 1 : number(work.axes.sharing_experts());
  const double parameters =
      rank.parameters.trained / ranks + rank.expert_parameters.trained / of_experts;
  const double bytes = 2 * sizes.gradient + 2 * sizes.weight + 2 * sizes.states_and_masters();
  const Device& device = cluster.device;
  const double host_rate = device.host_memory_rate / number(cluster.devices_per_node);
  const double update = sizes.updated_by_host
                            ? parameters * bytes / host_rate
                            : parameters * bytes / device.update_rate(sizes.weight);
  const double on_disk = sizes.states_on_disk ? sizes.states_and_masters() : 0;
  double transfers = 2 * on_disk * parameters / cluster.device.disk_rate;
  const auto add = [&](double size, double rate, bool is_on_disk) {
    const bool crosses = rate > 0 && (is_on_disk || !sizes.updated_by_host);
    if (crosses) transfers += 2 * size * parameters / rate;
  };
  add(sizes.weight, sizes.weight_offload_rate, sizes.weights_on_disk);
  add(sizes.kept_gradient(), sizes.gradient_offload_rate, sizes.gradients_on_disk);
  return std::max(update, transfers);
}

// Parameters of a stage's largest table, which is a unit and a bucket of its own; 0: it has none.
StageSeconds::Parameters table_parameters(const Workload& work, const StageLayout& layout,
                                          size_t index) {
  const ModelCounts& counts = work.counts();
  const double first = index == 0 ? counts.embedding_parameters : 0;
  const double last = index + 1 == layout.layers.size() ? counts.head_parameters : 0;
  const PartTraining& training = first >= last ? work.embedding : work.head;
  const double all = std::max(first, last) / number(work.axes.tensor);
  return {.all = all, .trained = training.trained * all, .kept = training.kept * all};
}

// Gathered units, and buckets that do not stay (gradient_reducer.cc). Three are on their way
// while the next fills, which with ZeRO-3 is all of a unit. The table's may be among them. Where a
// microbatch's sum is added to those before, each bucket on its way has a sum of its own.
StepMemory transit_memory(const Workload& work, const StageSeconds::Parameters& of_block,
                          const StageSeconds::Parameters& of_table) {
  StepMemory memory;
  if (work.zero == 3) {
    memory.gathered =
        (number(work.gathered_units) * of_block.kept + of_table.kept) * work.sizes.weight;
  }
  if (work.zero < 2 && !work.reproducible && !work.sizes.rank_first) return memory;
  // Whole buckets wait for the last microbatch: they are the gradients held until then.
  const bool adds_whole = !work.sizes.rank_first && work.num_microbatches() > 1;
  if (adds_whole && !work.reproducible) return memory;
  const double bucket = number(work.bucket_bytes), gradient = work.sizes.of_trained().gradient;
  const double on_way = std::max(bucket, of_table.trained * gradient) + 2 * bucket;
  memory.buckets = on_way + (work.zero == 3 ? of_block.trained * gradient : bucket);
  if (work.sizes.rank_first && !work.reproducible && work.num_microbatches() > 1) {
    memory.buckets += on_way / (work.zero == 0 ? 1 : number(work.axes.sharing()));
  }
  return memory;
}

// Memory of a rank beyond states and kept activations: what is in transit, and what passes.
StepMemory temporary_memory(const Workload& work, const StageSeconds& stage,
                            const StageLayout& layout, size_t index, double passing) {
  const double layers = std::max(1, layout.layers[index]);
  const StageSeconds::Parameters of_table = table_parameters(work, layout, index);
  StageSeconds::Parameters of_block = stage.parameters;
  of_block += stage.expert_parameters;
  of_block += of_table * -1;
  const auto mean = [&](double sum) { return std::max(0.0, sum) / layers; };
  StepMemory memory = transit_memory(
      work, {mean(of_block.all), mean(of_block.trained), mean(of_block.kept)}, of_table);
  // There are no more gradients than those of the stage.
  const double gradient = work.sizes.of_trained().gradient;
  memory.buckets = std::min(
      memory.buckets, gradient * (stage.parameters.trained + stage.expert_parameters.trained));
  memory.passing = passing;
  if (work.input_offload_rate > 0) {
    constexpr double kBuffers = 4 + 2;  // the store's, and what is copied to one and from one
    memory.passing += kBuffers * stored_input_bytes(work).largest;
  }
  return memory;
}

// Peak memory of a block's backward pass: the whole block's if it is recomputed. Where the last
// blocks of a stage are not, what they have kept is free before the first recomputation.
double backward_bytes(const Workload& work, const model::ModelPart& stage) {
  if (!work.recompute.block || work.recompute.num_blocks < stage.num_layers) {
    return 4 * tokens_of(work) * number(work.model.width) * work.sizes.weight;
  }
  Workload plain = work.of_layer(std::max<int64_t>(stage.end() - 1, 0));
  plain.recompute = {};
  const LayerKinds kinds = layer_kinds(plain);
  return (work.model.sparse.is_sparse(0) ? kinds.sparse : kinds.dense).activations;
}

// The logits that exist at once, with their gradients, and on a CPU that multiplies bf16 no faster
// than fp32 the head's weight, which is widened for their products: linear_cross_entropy.h.
double logits_bytes(const Workload& work, const Device& device) {
  const HeadWork head = head_work(work);
  const bool widens = !device.is_asynchronous && work.sizes.weight < work.sizes.wide &&
                      !(work.sizes.is_bf16 && device.peak_half > device.peak_single);
  const double weight = head.logits.columns * head.logits.inner;
  const double chunk =
      device.is_asynchronous ? number(int64_t{1} << 26) / head.logits.columns : 256;
  const double rows = work.has_whole_logits ? head.logits.rows : std::min(head.logits.rows, chunk);
  return rows * head.logits.columns * (work.sizes.weight + work.sizes.wide) +
         (widens ? weight * work.sizes.wide : 0);
}

// On a GPU norms and activations are fused kernels, which keep their input.
Workload as_on_device(const Workload& work, const Device& device) {
  Workload on = work;
  if (device.is_asynchronous) {
    on.kept_by_block.copies_keys = true;
    on.kept_by_block.feed_forward =
        std::min(on.kept_by_block.feed_forward, on.kept_by_block.most_on_gpu);
  }
  return on;
}

// Adds weights, gradients and optimizer states of a stage. Returns the bytes of states on a disk.
double add_states(const Workload& work, const StageSeconds& stage, StepMemory& memory) {
  double on_disk = 0;
  const NumberSizes sizes = work.sizes.of_trained();
  const auto add = [&](const StageSeconds::Parameters& parameters, int64_t ranks) {
    const StateBytes bytes = state_bytes_by_kind(sizes, work.zero, ranks);
    memory.weights += parameters.kept * bytes.weights;
    memory.gradients += parameters.trained * bytes.gradients;
    memory.states += parameters.trained * bytes.states;
    memory.outer += parameters.trained * bytes.outer;
    if (sizes.states_on_disk) {
      const double parts = work.zero == 0 ? 1 : number(ranks);
      on_disk += parameters.trained * sizes.states_and_masters() / parts;
    }
  };
  add(stage.parameters, work.axes.sharing());
  add(stage.expert_parameters, work.axes.sharing_experts());
  return on_disk;
}

// held: microbatches of each rank's stages that it holds at a time, as a mean over its stages.
StepMemory memory_of(const Workload& work, const Cluster& cluster, const StageLayout& layout,
                     const std::vector<StageSeconds>& stages, const std::vector<double>& held) {
  const bool stores_scores = !has_fused_attention(work, cluster);
  KeptByStages kept(work, stores_scores, cluster.expert_skew);
  // A stage keeps what it sends until its backward pass.
  const double sent =
      work.axes.pipeline > 1 ? rows_of(work) * number(work.model.width) * work.sizes.weight : 0;
  std::vector<StepMemory> ranks(held.size());
  std::vector<double> on_disk(held.size());
  const std::vector<model::ModelPart> parts = layout.parts();
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto rank = static_cast<size_t>(layout.rank_of_stage[i]);
    if (!parts[i].has_head) ranks[rank].activations += held[rank] * sent;
    on_disk[rank] += add_states(work, stages[i], ranks[rank]);
    ranks[rank].activations += held[rank] * kept.of(parts[i]);
    const double block_bytes = backward_bytes(work, parts[i]);
    // The logits are gone when the first block's backward begins.
    const double passing =
        parts[i].has_head ? std::max(block_bytes, logits_bytes(work, cluster.device)) : block_bytes;
    const StepMemory temporary = temporary_memory(work, stages[i], layout, i, passing);
    if (temporary.temporary() > ranks[rank].temporary()) {
      ranks[rank].passing = temporary.passing;
      ranks[rank].gathered = temporary.gathered;
      ranks[rank].buckets = temporary.buckets;
    }
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].pipeline_rank = static_cast<int>(rank);
    StepMemory& memory = ranks[rank];
    memory.states += kStateBuffers * std::min(work.sizes.state_buffer, on_disk[rank]);
    memory.reserved =
        cluster.device.reserved_bytes + cluster.device.fragmentation * memory.tensors();
  }
  return *std::ranges::max_element(ranks, {}, &StepMemory::total);
}

}  // namespace

std::vector<model::ModelPart> StageLayout::parts() const {
  std::vector<model::ModelPart> parts;
  int64_t first = 0;
  for (size_t stage = 0; stage < layers.size(); first += layers[stage++]) {
    parts.push_back({.first_layer = first,
                     .num_layers = layers[stage],
                     .embeds = stage == 0,
                     .has_head = stage + 1 == layers.size()});
  }
  return parts;
}

StageLayout stage_layout(const Workload& work) {
  const parallel::Schedule example =
      parallel::make_schedule(schedule_of(work), options_of(work, 1));
  StageLayout layout{.rank_of_stage = example.rank_of_stage};
  layout.layers = parallel::split_layers(layer_costs(work), {.num_stages = example.num_stages()});
  return layout;
}

namespace {

// Adds what a teacher costs that reads all microbatches before the first forward: its forwards, one
// behind the other along the stages, its weights, and the hidden states that the last stage keeps.
// A layout with more stages than the teacher has layers is refused elsewhere.
void add_teacher(const Workload& work, const Cluster& cluster, int64_t num_stages,
                 StepPrediction& step) {
  if (!work.teacher || work.teacher->model.layers < num_stages) return;
  const Workload teacher = work_of_teacher(work);
  const StageLayout layout = stage_layout(teacher);
  const std::vector<StageSeconds> stages = all_stages(teacher, cluster, layout);
  std::vector<PhaseSeconds> forwards(static_cast<size_t>(work.axes.pipeline));
  std::vector<StepMemory> ranks(forwards.size());
  double first = 0;  // of one microbatch through all stages
  for (size_t i = 0; i < stages.size(); ++i) {
    const auto rank = static_cast<size_t>(layout.rank_of_stage[i]);
    forwards[rank] += stages[i].forward;
    first += stages[i].forward.total();
    add_states(teacher, stages[i], ranks[rank]);
    if (i + 1 == stages.size()) {
      ranks[rank].activations += number(work.num_microbatches()) * rows_of(teacher) *
                                 number(teacher.model.width) * work.sizes.weight;
    }
  }
  const PhaseSeconds busiest = *std::ranges::max_element(forwards, {}, &PhaseSeconds::total) *
                               number(work.num_microbatches());
  step.seconds.compute += busiest.compute;
  step.seconds.tensor += busiest.tensor;
  step.seconds.context += busiest.context;
  step.seconds.expert += busiest.expert;
  step.seconds.data += busiest.data;
  step.seconds.bubble += first - busiest.total() / number(work.num_microbatches());
  // Of the rank that has most of it, which may be another than the student's.
  const StepMemory& most = *std::ranges::max_element(ranks, {}, &StepMemory::tensors);
  step.memory.weights += most.weights;
  step.memory.activations += most.activations;
  step.memory.reserved += cluster.device.fragmentation * most.tensors();
  const double forward_flops = teacher.counts().flops_per_token / 3 * step.tokens;
  step.model_flops += forward_flops;
  step.hardware_flops += forward_flops;
}

// pipeline_seconds: the busiest rank's work, and its bubble.
StepPrediction put_together(const Workload& work, const Cluster& cluster, const StageLayout& layout,
                            const std::vector<StageSeconds>& stages, double pipeline_seconds,
                            const std::vector<double>& held) {
  const std::vector<RankWork> ranks = work_of_ranks(work, stages, layout);
  const auto busiest =
      std::ranges::max_element(ranks, {}, [](const RankWork& rank) { return rank.busy.total(); });
  StepPrediction step;
  step.seconds.compute = busiest->busy.compute;
  step.seconds.tensor = busiest->busy.tensor;
  step.seconds.context = busiest->busy.context;
  step.seconds.expert = busiest->busy.expert;
  step.seconds.bubble = std::max(0.0, pipeline_seconds - busiest->busy.total());
  double after = 0;
  for (const RankWork& rank : ranks) {
    after = std::max(after, reduction_seconds(work, cluster, rank));
    step.seconds.optimizer =
        std::max(step.seconds.optimizer, optimizer_seconds(work, cluster, rank));
  }
  step.seconds.data = busiest->busy.data + after;
  // The count of a step's terms, its losses, and what ranks say at its end.
  constexpr double kSmallCalls = 3;
  step.seconds.rest = cluster.device.step_seconds +
                      kSmallCalls * small_call_seconds(cluster, {work.axes.num_ranks(), 1});
  step.bubble_fraction = step.seconds.bubble / std::max(pipeline_seconds, 1e-30);
  step.memory = memory_of(as_on_device(work, cluster.device), cluster, layout, stages, held);
  // Each pipeline of a data rank, and its tensor and context ranks, do the same.
  const double copies =
      number(work.num_microbatches() * work.axes.token_ranks() * work.axes.tensor);
  for (const StageSeconds& stage : stages) step.hardware_flops += stage.repeated_flops * copies;
  step.tokens = work.tokens_per_step();
  step.model_flops = work.flops_per_token() * step.tokens;
  step.hardware_flops += step.model_flops;
  step.num_devices = work.axes.num_ranks();
  step.peak = cluster.device.peak(work.sizes.weight);
  step.available_bytes = cluster.device.memory_bytes;
  add_teacher(work, cluster, std::ssize(layout.layers), step);
  return step;
}

}  // namespace

StepTimeline step_timeline(const Workload& work, const Cluster& cluster,
                           const StageLayout& layout) {
  const parallel::ScheduleOptions options = options_of(work, work.num_microbatches());
  const std::string name = schedule_of(work);
  TRIREME_CHECK(num_actions(name, options) <= kMostDrawnActions, "a timeline of ",
                options.num_microbatches, " microbatches on ", options.num_ranks,
                " pipeline ranks has about ", num_actions(name, options),
                " actions; expected at most ", kMostDrawnActions,
                ": draw one of fewer microbatches");
  StepTimeline step{.schedule = parallel::make_schedule(name, options)};
  step.timeline = parallel::make_timeline(
      step.schedule, costs_of(work, cluster, all_stages(work, cluster, layout)));
  return step;
}

StepPrediction predict_step(const Workload& work, const Cluster& cluster,
                            const StageLayout& layout) {
  const std::vector<StageSeconds> stages = all_stages(work, cluster, layout);
  const auto time = time_pipeline(schedule_of(work), options_of(work, work.num_microbatches()),
                                  costs_of(work, cluster, stages));
  if (!time) return estimate_step(work, cluster, layout);
  return put_together(work, cluster, layout, stages, time->seconds, time->held);
}

StepPrediction estimate_step(const Workload& work, const Cluster& cluster,
                             const StageLayout& layout) {
  const std::vector<StageSeconds> stages = all_stages(work, cluster, layout);
  double busiest = 0, all = 0;
  for (const RankWork& rank : work_of_ranks(work, stages, layout)) {
    busiest = std::max(busiest, rank.busy.total());
  }
  for (const StageSeconds& stage : stages) all += stage.forward.total() + stage.backward.total();
  const double p = number(work.axes.pipeline), m = number(work.num_microbatches());
  const double chunks = number(std::max<int64_t>(1, work.stages_per_rank));
  // The bubble of 1F1B. A zero-bubble schedule fills about two thirds of it.
  const double filled = work.schedule == "zero-bubble" ? 1.0 / 3 : 1;
  const double transfers = 2 * (p - 1) * stage_transfer_seconds(work, cluster);
  std::vector<double> held;
  for (int64_t rank = 0; rank < work.axes.pipeline; ++rank) {
    const double first = work.schedule == "zero-bubble" ? p : p - number(rank);
    const double more = chunks > 1 ? (p - 1) / chunks : 0;
    held.push_back(std::min(m, first + more));
  }
  return put_together(work, cluster, layout, stages,
                      busiest + filled * all / chunks * (p - 1) / p + transfers, held);
}

}  // namespace trireme::plan
