#include "trireme/plan/step/step_prediction.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/plan/harness.h"
#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

Workload megatron(int64_t tensor, int64_t pipeline, int64_t data, int64_t global, int64_t micro,
                  model::ModelConfig config) {
  Workload work = mixed(std::move(config));
  work.axes.tensor = tensor;
  work.axes.pipeline = pipeline;
  work.axes.data = data;
  work.global_batch = global;
  work.micro_batch = micro;
  return work;
}

StepPrediction predict(const Workload& work, const Cluster& cluster) {
  return predict_step(work, cluster, stage_layout(work));
}

double percent_of_a100(double flops, double seconds, int64_t devices) {
  return 100 * flops / seconds / number(devices) / 312e12;
}

// Source: Korthikanti et al. 2022, arXiv:2205.05198, tables 3 and 5: MFU and HFU of printed times
TEST(Step, UtilisationsAreKorthikantis) {
  const Cluster cluster = cluster_of("a100-80gb", 8, 8);
  Workload small = megatron(8, 1, 1, 4, 4, gpt(48, 6144, 64));
  set_recompute(small, model::Recompute::kSelective);
  const StepPrediction of_22b = predict(small, cluster);
  EXPECT_NEAR(percent_of_a100(of_22b.model_flops, 1.10, 8), 41.5, 0.25);
  EXPECT_NEAR(percent_of_a100(of_22b.hardware_flops, 1.10, 8), 43.7, 0.25);
  Workload large = megatron(8, 8, 1, 64, 1, gpt(96, 12288, 96));
  set_recompute(large, model::Recompute::kSelective);
  const StepPrediction of_175b = predict(large, cluster);
  EXPECT_NEAR(percent_of_a100(of_175b.model_flops, 13.75, 64), 51.4, 0.1);
  EXPECT_NEAR(percent_of_a100(of_175b.hardware_flops, 13.75, 64), 52.8, 0.1);
}

// Source: Smith et al. 2022, arXiv:2201.11990, section 3: 126, 121 and 113 TFLOP/s per GPU at 60.1,
//         50.2 and 44.4 s on 280, 350 and 420 nodes
TEST(Step, OperationsAreThoseOfMtNlg) {
  struct Row {
    int64_t data;
    double seconds, teraflops;
  };
  for (const Row& row : {Row{8, 60.1, 126}, Row{10, 50.2, 121}, Row{12, 44.4, 113}}) {
    Workload work = megatron(8, 35, row.data, 1920, 1, gpt(105, 20480, 128));
    set_recompute(work, model::Recompute::kFull);
    const StepPrediction step = predict(work, cluster_of("a100-80gb", 35 * row.data, 8));
    EXPECT_NEAR(step.hardware_flops / row.seconds / number(step.num_devices) / 1e12, row.teraflops,
                0.75);
  }
}

TEST(Step, SecondsAddUp) {
  const Workload work = megatron(2, 2, 2, 16, 1, gpt(8, 1024, 16));
  const StepPrediction step = predict(work, cluster_of("a100-80gb", 1, 8));
  EXPECT_DOUBLE_EQ(step.tokens_per_second() * step.step_seconds(), 16 * 2048);
  EXPECT_GT(step.seconds.bubble, 0);
  EXPECT_GT(step.seconds.tensor, 0);
  EXPECT_GT(step.seconds.data, 0);
  EXPECT_EQ(step.seconds.context, 0);
  EXPECT_LT(step.hardware_flops_per_device(), step.peak);
}

TEST(Step, AnOptimizerHasItsOwnRate) {
  const Workload work = megatron(1, 1, 1, 1, 1, gpt(2, 256, 4));
  Cluster cluster = cluster_of("cpu", 1, 1);
  const double plain = predict(work, cluster).seconds.optimizer;
  cluster.device.bf16_update_share = cluster.device.memory_share / 2;
  EXPECT_DOUBLE_EQ(predict(work, cluster).seconds.optimizer, 2 * plain);
}

TEST(Step, TheScheduleIsTheRuntimes) {
  Workload work = megatron(1, 4, 1, 8, 1, gpt(16, 1024, 16));
  const Cluster cluster = cluster_of("a100-80gb", 1, 4);
  const StageLayout layout = stage_layout(work);
  const StepTimeline plain = step_timeline(work, cluster, layout);
  EXPECT_EQ(plain.schedule.name, "1f1b");
  EXPECT_EQ(plain.schedule.num_microbatches, 8);
  const double bubble = predict_step(work, cluster, layout).bubble_fraction;
  EXPECT_NEAR(bubble, plain.timeline.bubble(), 0.02);
  work.schedule = "interleaved";
  work.stages_per_rank = 4;
  EXPECT_LT(predict(work, cluster).bubble_fraction, bubble);
}

TEST(Step, AnEstimateIsNearThePrediction) {
  for (const int64_t pipeline : {1, 2, 8}) {
    const Workload work = megatron(1, pipeline, 2, 64, 1, gpt(16, 2048, 16));
    const Cluster cluster = cluster_of("a100-80gb", 2, 8);
    const StageLayout layout = stage_layout(work);
    const StepPrediction exact = predict_step(work, cluster, layout),
                         near = estimate_step(work, cluster, layout);
    EXPECT_NEAR(near.step_seconds() / exact.step_seconds(), 1, 0.1) << pipeline;
    EXPECT_NEAR(near.memory.total() / exact.memory.total(), 1, 0.05) << pipeline;
  }
}

TEST(Step, ZeroDividesTheStates) {
  const Cluster cluster = cluster_of("a100-80gb", 1, 8);
  double before = INFINITY;
  for (int64_t zero = 0; zero <= 3; ++zero) {
    Workload work = megatron(1, 1, 8, 8, 1, gpt(16, 2048, 16));
    work.zero = zero;
    work.axes.shard = zero == 0 ? 1 : 8;
    const double states = predict(work, cluster).memory.model_states();
    EXPECT_LT(states, before);
    before = states;
  }
}

TEST(Step, SkewedExpertsCostTimeAndMemoryButNoModelFlops) {
  Workload work = mixed(sparse_llama());
  work.axes = {.data = 8, .expert = 8};
  work.global_batch = 8;
  Cluster cluster = cluster_of("a100-80gb", 1, 8);
  const StepPrediction even = predict(work, cluster);
  cluster.expert_skew = 4;
  const StepPrediction skewed = predict(work, cluster);
  EXPECT_GT(skewed.seconds.expert, 1.5 * even.seconds.expert);  // part of it is latency
  EXPECT_GE(skewed.seconds.compute, even.seconds.compute);
  EXPECT_GT(skewed.memory.activations, even.memory.activations);
  EXPECT_EQ(skewed.memory.model_states(), even.memory.model_states());
  EXPECT_EQ(skewed.hardware_flops, even.hardware_flops);
}

TEST(Step, StatesOnADiskPassThroughItBothWays) {
  Workload work = megatron(1, 1, 1, 1, 1, gpt(4, 1024, 16));
  const Cluster cluster = cluster_of("a100-80gb", 1, 1);
  const StepPrediction in_memory = predict(work, cluster);
  work.sizes.states_on_disk = true;
  const StepPrediction on_disk = predict(work, cluster);
  const double bytes = in_memory.memory.model_states() - on_disk.memory.model_states();
  EXPECT_NEAR(on_disk.seconds.optimizer, 2 * bytes / cluster.device.disk_rate,
              1e-9 * on_disk.seconds.optimizer);
}

TEST(Step, InputsOfBlocksLeaveTheDeviceBehindItsComputation) {
  Workload work = megatron(1, 1, 1, 4, 1, gpt(24, 2048, 16));
  work.recompute = {.block = true};
  const Cluster cluster = cluster_of("a100-80gb", 1, 1);
  const StepPrediction kept = predict(work, cluster);
  work.input_offload_rate = 1e15;
  const StepPrediction fast = predict(work, cluster);
  const double input = 1.0 * number(work.micro_batch * work.model.sequence_length) *
                       number(work.model.width) * work.sizes.weight;
  EXPECT_NEAR(kept.memory.activations - fast.memory.activations, 24 * input, 1e-9 * 24 * input);
  EXPECT_NEAR(fast.memory.temporary() - kept.memory.temporary(), 6 * input, 1e-9 * input);
  EXPECT_EQ(fast.seconds.compute, kept.seconds.compute);
  // Slower than the blocks compute: each microbatch waits for every input twice.
  work.input_offload_rate = 1e6;
  const double transfers =
      2 * 24 * input / work.input_offload_rate * number(work.num_microbatches());
  EXPECT_GT(predict(work, cluster).seconds.compute, transfers);
  EXPECT_LT(predict(work, cluster).seconds.compute, 1.1 * transfers);
}

TEST(Step, RecomputationOfSomeBlocksIsBetweenThatOfNoneAndOfAll) {
  for (const int64_t pipeline : {1, 2}) {
    Workload work = megatron(1, pipeline, 1, 4, 1, gpt(24, 2048, 16));
    set_recompute(work, model::Recompute::kNone);
    const Cluster cluster = cluster_of("a100-80gb", 1, static_cast<int>(pipeline));
    StepPrediction before = predict(work, cluster);
    const double none = before.memory.activations;
    work.recompute = {.block = true};
    const double all = predict(work, cluster).memory.activations;
    for (int64_t blocks = 1; blocks <= 24; ++blocks) {  // stages may have more than 12
      work.recompute.num_blocks = blocks;
      const StepPrediction step = predict(work, cluster);
      EXPECT_GE(step.seconds.compute, before.seconds.compute);
      EXPECT_LE(step.memory.activations, before.memory.activations);
      if (pipeline == 1) {
        EXPECT_NEAR(step.memory.activations, none + (all - none) * number(blocks) / 24,
                    1e-9 * none);
      }
      before = step;
    }
    EXPECT_DOUBLE_EQ(before.memory.activations, all);
    if (pipeline > 1) continue;
    work.input_offload_rate = 1e15;
    const double without = predict(work, cluster).memory.activations;
    work.recompute.num_stored = 12;  // the inputs of half of them leave
    EXPECT_NEAR(predict(work, cluster).memory.activations, (all + without) / 2, 1e-9 * all);
  }
}

TEST(Step, PartsOfWeightsAndGradientsLeaveTheDeviceAndPassTheirLink) {
  Workload work = megatron(1, 1, 8, 32, 1, gpt(24, 2048, 16));
  work.zero = 3;
  hold_gradients(work);
  const Cluster cluster = cluster_of("a100-80gb", 1, 8);
  const StepPrediction kept = predict(work, cluster);
  work.sizes.weight_offload_rate = work.sizes.gradient_offload_rate = kUnknownRate;
  const StepPrediction apart = predict(work, cluster);
  EXPECT_EQ(apart.step_seconds(), kept.step_seconds());
  EXPECT_EQ(apart.memory.states, kept.memory.states);
  work.sizes.updated_by_host = true;
  const StepPrediction free = predict(work, cluster);
  EXPECT_EQ(free.memory.weights, 0);
  EXPECT_EQ(free.memory.gradients, 0);
  EXPECT_EQ(free.memory.states, 0);
  // The host updates what it holds, however slow the link is.
  const NumberSizes& sizes = work.sizes;
  const double parameters = kept.memory.weights / sizes.weight;
  const double bytes = 2 * (sizes.gradient + sizes.weight + sizes.states_and_masters());
  const double host_seconds = parameters * bytes / (cluster.device.host_memory_rate / 8);
  EXPECT_NEAR(free.seconds.optimizer, host_seconds, 1e-9 * host_seconds);
  work.sizes.weight_offload_rate = work.sizes.gradient_offload_rate = 1e6;
  EXPECT_EQ(predict(work, cluster).seconds.optimizer, free.seconds.optimizer);
  work.sizes.weights_on_disk = true;
  EXPECT_NEAR(predict(work, cluster).seconds.optimizer, 2 * kept.memory.weights / 1e6,
              1e-6 * kept.memory.weights);
  work.sizes.weights_on_disk = work.sizes.updated_by_host = false;
  EXPECT_NEAR(free.step_seconds() - free.seconds.optimizer,
              kept.step_seconds() - kept.seconds.optimizer, 1e-9 * kept.step_seconds());
  // So slow that only the transfers count: the formula of docs/guide/offload.md. The embedding and
  // the head, 8 % of the parameters, are not gathered for a backward.
  constexpr double kRate = 1e5;
  const auto m = number(work.num_microbatches());
  const double weights = kept.memory.weights * (2 * m + 2);
  const double gradients = kept.memory.gradients * (2 * m + 2);
  work.sizes.weight_offload_rate = kRate;
  work.sizes.gradient_offload_rate = kUnknownRate;
  EXPECT_NEAR(predict(work, cluster).step_seconds(), weights / kRate, 0.08 * weights / kRate);
  work.sizes.weight_offload_rate = kUnknownRate;
  work.sizes.gradient_offload_rate = kRate;
  EXPECT_NEAR(predict(work, cluster).step_seconds(), gradients / kRate, 0.08 * gradients / kRate);
}

TEST(Step, SmallerStatesTakeLessMemoryAndTime) {
  Workload work = megatron(1, 1, 1, 4, 1, gpt(24, 2048, 16));
  const Cluster cluster = cluster_of("a100-80gb", 1, 1);
  const StepPrediction wide = predict(work, cluster);
  work.sizes.states = 2 * (1 + 4.0 / 64);
  const StepPrediction narrow = predict(work, cluster);
  const ModelCounts& counts = work.counts();
  const double parameters =
      counts.embedding_parameters + counts.head_parameters + 24 * counts.dense_parameters;
  const double saved = parameters * (8 - work.sizes.states);
  EXPECT_NEAR(wide.memory.model_states() - narrow.memory.model_states(), saved, 1e-9 * saved);
  EXPECT_LT(narrow.seconds.optimizer, wide.seconds.optimizer);
}

TEST(Step, MemoryIsThatOfTheWorstRank) {
  const Workload work = megatron(1, 4, 1, 16, 1, gpt(16, 2048, 16));
  const StepMemory memory = predict(work, cluster_of("a100-80gb", 1, 4)).memory;
  EXPECT_EQ(memory.pipeline_rank, 0);  // holds most microbatches, and the embedding
}

TEST(Step, KindsOfMemorySumToIt) {
  for (int64_t zero = 0; zero <= 3; ++zero) {
    Workload work = megatron(1, 1, 8, 8, 1, gpt(16, 2048, 16));
    work.zero = zero;
    work.axes.shard = zero == 0 ? 1 : 8;
    const StepMemory memory = predict(work, cluster_of("a100-80gb", 1, 8)).memory;
    const std::array<double, kNumMemoryKinds> kinds = memory.by_kind();
    const double sum = std::accumulate(kinds.begin(), kinds.end(), 0.0);
    EXPECT_NEAR(sum, memory.tensors(), 1e-9 * sum);
    const StateBytes each = state_bytes_by_kind(work.sizes, zero, work.axes.sharing());
    EXPECT_NEAR(memory.gradients / memory.weights, each.gradients / each.weights, 1e-9);
    EXPECT_NEAR(memory.states / memory.weights, each.states / each.weights, 1e-9);
    EXPECT_EQ(memory.gathered > 0, zero == 3);
  }
}

TEST(Step, BucketsThatStayAreTheGradients) {
  Workload work = megatron(1, 1, 4, 4, 1, gpt(16, 2048, 16));
  const Cluster cluster = cluster_of("a100-80gb", 1, 4);
  EXPECT_EQ(predict(work, cluster).memory.buckets, 0);
  work.zero = 2;
  work.axes.shard = 4;
  work.sizes.rank_first = true;
  const ModelCounts& counts = work.counts();
  const double table = std::max(counts.embedding_parameters, counts.head_parameters);
  const double on_way = table * work.sizes.gradient + 2 * number(work.bucket_bytes);
  EXPECT_EQ(predict(work, cluster).memory.buckets, on_way + number(work.bucket_bytes));
  work.global_batch = 16;  // several microbatches: each bucket has a sum beside it
  EXPECT_EQ(predict(work, cluster).memory.buckets, on_way + number(work.bucket_bytes) + on_way / 4);
}

TEST(Step, LogitsOfAFewTokensExistAtOnce) {
  Workload work = megatron(1, 1, 1, 4, 4, gpt(2, 512, 4));
  const Cluster cluster = cluster_of("cpu", 1, 1);
  const double some = predict(work, cluster).memory.passing;
  work.model.vocab_size *= 2;
  // And the head's weight, which the CPU widens.
  const double chunk = number(work.model.vocab_size / 2) *
                       (256 * (work.sizes.weight + work.sizes.wide) + 512 * work.sizes.wide);
  EXPECT_NEAR(predict(work, cluster).memory.passing - some, chunk, 1e-9 * chunk);
}

TEST(Step, ACpuWidensTheHeadsWeightForItsProducts) {
  Workload work = megatron(1, 1, 1, 4, 4, gpt(2, 512, 4));
  const auto V = number(work.model.vocab_size);
  const double weight = V * 512;
  const auto passing = [&](double itemsize, const char* device) {
    work.sizes.weight = itemsize;
    return predict(work, cluster_of(device, 1, 1)).memory.passing;
  };
  EXPECT_NEAR(passing(4, "cpu") - passing(2, "cpu"), 256 * V * 2 - weight * 4, 1e-9 * weight);
  const double rows = std::min(number(int64_t{1} << 26) / V, tokens_of(work));
  EXPECT_NEAR(passing(4, "a100-80gb") - passing(2, "a100-80gb"), rows * V * 2, 1e-9 * weight);
}

TEST(Step, SumsOverMicrobatchesAreGradientsAndNotBuckets) {
  Workload work = megatron(1, 1, 4, 16, 1, gpt(16, 2048, 16));
  work.zero = 2;
  work.axes.shard = 4;
  work.rank_first = false;
  hold_gradients(work);
  const StepMemory memory = predict(work, cluster_of("a100-80gb", 1, 4)).memory;
  EXPECT_EQ(memory.buckets, 0);
  const double parameters = memory.weights / work.sizes.weight;
  EXPECT_NEAR(memory.gradients, parameters * work.sizes.gradient * (1 + 1 / 4.0),
              1e-9 * memory.gradients);
}

TEST(Step, SixteenThousandRanksAreOneForEachStage) {
  const Workload work = megatron(8, 16, 128, 2048, 1, gpt(128, 25600, 160));
  const StepPrediction step = predict(work, cluster_of("a100-80gb", 2048, 8));
  EXPECT_EQ(step.num_devices, 16384);
  EXPECT_GT(step.step_seconds(), 0);
}

TEST(Step, MoreStagesThanLayersAreRefused) {
  const Workload work = megatron(1, 8, 1, 8, 1, gpt(4, 256, 4));
  EXPECT_THROW(stage_layout(work), ConfigError);
}

TEST(Step, ATeacherAddsItsForwardsItsWeightsAndTheHiddenStatesOfAStep) {
  const Cluster cluster = cluster_of("a100-80gb", 1, 4);
  Workload work = megatron(2, 1, 2, 16, 2, gpt(8, 1024, 16));
  const StepPrediction alone = predict(work, cluster);
  const Workload other = megatron(1, 1, 1, 1, 1, gpt(16, 2048, 32));
  work.teacher = std::make_shared<const Workload>(other);
  const StepPrediction taught = predict(work, cluster);
  const StepPrediction teacher = predict(work_of_teacher(work), cluster);
  EXPECT_DOUBLE_EQ(taught.model_flops - alone.model_flops, teacher.model_flops / 3);
  EXPECT_DOUBLE_EQ(taught.memory.weights - alone.memory.weights, teacher.memory.weights);
  EXPECT_EQ(taught.memory.gradients, alone.memory.gradients);
  EXPECT_EQ(taught.memory.states, alone.memory.states);
  const double tokens = 8 * number(work.model.sequence_length);  // of a data rank
  EXPECT_DOUBLE_EQ(taught.memory.activations - alone.memory.activations, tokens * 2048 * 2);
  // It has no backward.
  EXPECT_NEAR(taught.seconds.compute - alone.seconds.compute, teacher.seconds.compute,
              1e-9 * teacher.seconds.compute);
  work.teacher = nullptr;
  EXPECT_THROW(work_of_teacher(work), InternalError);
}

}  // namespace
}  // namespace trireme::plan
