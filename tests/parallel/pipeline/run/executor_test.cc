#include "trireme/parallel/pipeline/run/executor.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "tests/parallel/pipeline/net.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

struct Trial {
  std::string schedule = "1f1b";
  int num_ranks = 1;
  int num_microbatches = 1;
  at::ScalarType dtype = at::kDouble;
  bool defers = false;
  double seed = 1;
};

std::string describe(const Trial& trial) {
  return concat(trial.schedule, ", ", trial.num_ranks, " ranks, ", trial.num_microbatches,
                " microbatches, ", toString(trial.dtype), trial.defers ? ", deferred" : "");
}

struct Outcome {
  Gradients gradients;
  std::vector<at::Tensor> losses;
  std::vector<PeakActivations> peaks;
};

Schedule schedule_of(const Trial& trial) {
  return make_schedule(trial.schedule,
                       {.num_ranks = trial.num_ranks, .num_microbatches = trial.num_microbatches});
}

Feed feed_of(const Trial& trial) {
  return [m = trial.num_microbatches](const std::string& edge, int64_t microbatch) {
    return Net::feed(edge, microbatch, m);
  };
}

// Plain autograd, one microbatch after the other.
Outcome oracle(const Trial& trial) {
  Outcome outcome;
  Net net(trial.dtype);
  for (int i = 0; i < trial.num_microbatches; ++i) {
    const at::Tensor loss = net.loss(i, trial.num_microbatches);
    loss.backward(at::full_like(loss, trial.seed));
    outcome.losses.push_back(loss.detach());
  }
  outcome.gradients = net.gradients();
  return outcome;
}

// This rank's part, put together with the others' under `mutex`.
void run_rank(comm::Communicator& group, const Trial& trial, Outcome& outcome, std::mutex& mutex) {
  DeferredWork deferred;
  Net net(trial.dtype, trial.defers ? &deferred : nullptr);
  const Schedule schedule = schedule_of(trial);
  PipelineExecutor pipeline(group, net.stages(schedule.num_stages()), schedule,
                            {.fed = {"tokens", "targets"}, .deferred = &deferred});
  PipelineResult result = pipeline.run(feed_of(trial), trial.seed);
  EXPECT_TRUE(deferred.empty());
  const std::lock_guard lock(mutex);
  outcome.peaks[group.rank()] = result.profile.peak;
  if (result.outputs.contains("loss")) outcome.losses = result.outputs["loss"];
  int begin = 0, stage = 0;
  for (const int count : layers_of_stages(schedule.num_stages())) {
    const Gradients all = net.gradients(begin, begin + count);
    if (schedule.rank_of_stage[stage++] == group.rank())
      outcome.gradients.insert(all.begin(), all.end());
    else
      EXPECT_TRUE(all.empty());
    begin += count;
  }
}

void expect_same(const Outcome& actual, const Outcome& expected, const std::string& what) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size()) << what;
  for (size_t i = 0; i < expected.losses.size(); ++i)
    harness::assert_same_bits(actual.losses[i], expected.losses[i], concat(what, ", loss ", i));
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size()) << what;
  for (const auto& [name, gradient] : expected.gradients)
    harness::assert_same_bits(actual.gradients.at(name), gradient, what + ", " + name);
}

Outcome run_threads(const Trial& trial) {
  Outcome outcome;
  outcome.peaks.resize(static_cast<size_t>(trial.num_ranks));
  std::mutex mutex;
  harness::run_ranks(trial.num_ranks,
                     [&](comm::Communicator& group) { run_rank(group, trial, outcome, mutex); });
  return outcome;
}

TEST(PipelineExecutor, EveryScheduleHasTheBitsOfOneRank) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    for (const int num_microbatches : {1, 2, 3, 5, 8}) {
      Trial trial{.num_microbatches = num_microbatches, .dtype = dtype, .seed = 0.25};
      const Outcome expected = oracle(trial);
      for (const std::string& name : schedule_names()) {
        trial.schedule = name;
        for (trial.num_ranks = 1; trial.num_ranks <= 4; ++trial.num_ranks) {
          for (const bool defers : {false, true}) {
            trial.defers = defers;
            const Outcome actual = run_threads(trial);
            expect_same(actual, expected, describe(trial));
            EXPECT_EQ(actual.peaks, peak_activations(schedule_of(trial))) << describe(trial);
          }
        }
      }
    }
  }
}

TEST(PipelineExecutor, RunsOverProcesses) {
  const Trial trial{
      .schedule = "zero-bubble-v", .num_ranks = 3, .num_microbatches = 5, .defers = true};
  const auto statuses = harness::fork_ranks(3, [&](comm::Communicator& group) {
    const Outcome expected = oracle(trial);
    Outcome own;
    own.peaks.resize(3);
    std::mutex mutex;
    run_rank(group, trial, own, mutex);
    EXPECT_FALSE(own.gradients.empty());
    for (const auto& [name, gradient] : own.gradients)
      harness::assert_same_bits(gradient, expected.gradients.at(name), name);
  });
  for (const harness::ExitStatus status : statuses) EXPECT_EQ(status, 0);
}

// Sleeps before every message.
class DelayedCommunicator : public harness::CountingCommunicator {
 public:
  DelayedCommunicator(comm::Communicator& inner, uint64_t seed)
      : CountingCommunicator(inner), random_(seed) {}
  comm::WorkPtr run(comm::Collective call) override {
    if (call.is_message()) delay();
    return CountingCommunicator::run(std::move(call));
  }

 private:
  void delay() { std::this_thread::sleep_for(std::chrono::microseconds(random_() % 1500)); }
  std::mt19937_64 random_;
};

TEST(PipelineExecutor, DelaysChangeNothing) {
  for (const std::string& name : schedule_names()) {
    const Trial trial{.schedule = name, .num_ranks = 3, .num_microbatches = 5, .defers = true};
    Outcome actual;
    actual.peaks.resize(3);
    std::mutex mutex;
    harness::run_ranks(3, [&](comm::Communicator& group) {
      DelayedCommunicator delayed(group, 10 + group.rank());
      run_rank(delayed, trial, actual, mutex);
    });
    expect_same(actual, oracle(trial), describe(trial));
  }
}

TEST(PipelineExecutor, SeveralRunsAddUpAndAnEvaluationLeavesNothing) {
  const Trial trial{.schedule = "interleaved", .num_ranks = 2, .num_microbatches = 3};
  const Outcome expected = oracle(trial);
  harness::run_ranks(2, [&](comm::Communicator& group) {
    Net net(trial.dtype);
    const Schedule schedule = schedule_of(trial);
    PipelineExecutor pipeline(group, net.stages(4), schedule, {.fed = {"tokens", "targets"}});
    PipelineResult evaluation = pipeline.evaluate(feed_of(trial));
    EXPECT_TRUE(net.gradients().empty());
    EXPECT_EQ(evaluation.profile.peak, PeakActivations{});
    for (int i = 0; i < 2; ++i) {
      PipelineResult result = pipeline.run(feed_of(trial));
      if (group.rank() != 1) continue;
      ASSERT_EQ(result.outputs.size(), 2u);  // loss, predictions
      for (size_t j = 0; j < 3; ++j) {
        EXPECT_FALSE(result.outputs["loss"][j].requires_grad());
        harness::assert_same_bits(result.outputs["loss"][j], expected.losses[j], "loss");
        harness::assert_same_bits(evaluation.outputs["loss"][j], expected.losses[j], "evaluation");
      }
    }
  });
}

TEST(PipelineExecutor, SendsWhatItsHeaderSays) {
  const Trial trial{.num_ranks = 2, .num_microbatches = 4};
  harness::run_ranks(2, [&](comm::Communicator& inner) {
    harness::CountingCommunicator group(inner);
    Net net(trial.dtype);
    PipelineExecutor pipeline(group, net.stages(2), schedule_of(trial),
                              {.fed = {"tokens", "targets"}});
    const PipelineResult result = pipeline.run(feed_of(trial));
    EXPECT_EQ(result.profile.bytes_sent, group.ledger().of(group.name(), "send").bytes);
    // Rank 0 sends x1, x4 and the integers "classes" of 3, 3, 3 and 1 rows, and one header each.
    const int64_t rows = 10, header = 96;
    const int64_t expected = group.rank() == 0 ? rows * (7 + 6 + 1) * 8 + 4 * 3 * header
                                               : rows * (7 + 6) * 8 + 4 * 3 * header;
    EXPECT_EQ(result.profile.bytes_sent, expected);
    EXPECT_EQ(result.profile.actions.size(), 8u);
  });
}

// One tensor of memory in each graph: as many are alive as the validator says.
TEST(PipelineExecutor, GraphsAreFreedAsSoonAsTheScheduleAllows) {
  for (const std::string& name : schedule_names()) {
    const Schedule schedule = make_schedule(name, {.num_ranks = 2, .num_microbatches = 6});
    std::vector<PeakActivations> peaks = peak_activations(schedule);
    harness::run_ranks(2, [&](comm::Communicator& group) {
      std::atomic<int> live = 0;
      int most = 0;
      std::vector<PipelineStage> stages;
      for (int s = 0; s < schedule.num_stages(); ++s) {
        const bool last = s + 1 == schedule.num_stages();
        const at::Tensor weight = at::ones({2}, at::kDouble).requires_grad_();
        stages.push_back(
            {.name = concat(s),
             .inputs = {concat("x", s)},
             .outputs = {last ? "loss" : concat("x", s + 1)},
             .forward = [&live, &most, last, weight](int64_t, std::vector<at::Tensor> inputs) {
               most = std::max(most, ++live);
               auto* memory = new double[2]{0.5, 0.5};
               const at::Tensor kept = at::from_blob(
                   memory, {2},
                   [&live](void* data) {
                     delete[] static_cast<double*>(data);
                     --live;
                   },
                   at::kDouble);
               const at::Tensor y = inputs[0] * weight * kept;
               return std::vector<at::Tensor>{last ? y.sum() : y};
             }});
      }
      PipelineExecutor pipeline(group, stages, schedule, {.fed = {"x0"}});
      static_cast<void>(
          pipeline.run([](const std::string&, int64_t) { return at::ones({2}, at::kDouble); }));
      EXPECT_EQ(live, 0) << name;
      EXPECT_EQ(most, peaks[group.rank()].until_backward) << name;
    });
  }
}

// Stages 1, 2 and 3 read what stage 0 writes: x.
struct Fan {
  std::vector<at::Tensor> weights;
  Fan() {
    for (int s = 0; s < 4; ++s)
      weights.push_back(((at::arange(3, at::kFloat) + s) * 1.3).sin().requires_grad_());
  }
  at::Tensor step(int s, const at::Tensor& x, const at::Tensor& y) const {
    const at::Tensor z = x * weights[s];
    if (s < 2) return z;
    return s == 3 ? at::tanh(z + y).sum() : at::tanh(z + y);
  }
  std::vector<PipelineStage> stages() const {
    std::vector<PipelineStage> stages;
    const std::vector<std::vector<std::string>> inputs = {{"in"}, {"x"}, {"x", "y1"}, {"x", "y2"}};
    const char* outputs[] = {"x", "y1", "y2", "loss"};
    for (int s = 0; s < 4; ++s) {
      stages.push_back({.name = concat(s),
                        .inputs = inputs[s],
                        .outputs = {outputs[s]},
                        .forward = [this, s](int64_t, std::vector<at::Tensor> tensors) {
                          return std::vector<at::Tensor>{step(s, tensors.front(), tensors.back())};
                        }});
    }
    return stages;
  }
  static at::Tensor feed(int64_t microbatch) {
    const at::Tensor index = at::arange(6, at::kFloat) + static_cast<double>(microbatch);
    return (index * 0.7).cos().view({2, 3});
  }
};

TEST(PipelineExecutor, AnEdgeWithSeveralReadersSumsTheirGradientsFromTheLastStageOn) {
  constexpr int kMicrobatches = 4;
  const Fan plain;
  for (int i = 0; i < kMicrobatches; ++i) {
    const at::Tensor x = plain.step(0, Fan::feed(i), {});
    plain.step(3, x, plain.step(2, x, plain.step(1, x, {}))).backward();
  }
  for (const auto& [num_ranks, chunks] : {std::pair(1, 4), std::pair(2, 2), std::pair(4, 1)}) {
    const Schedule schedule = make_schedule(
        "interleaved",
        {.num_ranks = num_ranks, .num_microbatches = kMicrobatches, .num_chunks = chunks});
    harness::run_ranks(num_ranks, [&](comm::Communicator& group) {
      const Fan fan;
      PipelineExecutor pipeline(group, fan.stages(), schedule, {.fed = {"in"}});
      static_cast<void>(pipeline.run(
          [](const std::string&, int64_t microbatch) { return Fan::feed(microbatch); }));
      for (int s = 0; s < 4; ++s) {
        if (schedule.rank_of_stage[s] == group.rank()) {
          harness::assert_same_bits(fan.weights[s].grad(), plain.weights[s].grad(),
                                    concat("weight ", s));
        }
      }
    });
  }
}

TEST(PipelineExecutor, BackwardsAreWrapped) {
  harness::run_ranks(2, [](comm::Communicator& group) {
    DeferredWork deferred;
    Net net(at::kDouble, &deferred);
    std::vector<std::string> calls;
    bool seen = false;
    const auto wrap = [&](const char* what) {
      return [&, what](int stage, int64_t microbatch, const std::function<void()>& work) {
        calls.push_back(concat(what, stage, microbatch));
        // Stage 1 has nothing but matrices: their gradients come with the first weight part.
        if (stage == 1) {
          EXPECT_EQ(net.gradients().empty(), !seen);
        }
        seen |= std::string_view(what) == "weight";
        work();
      };
    };
    const Trial trial{.schedule = "zero-bubble", .num_ranks = 2, .num_microbatches = 2};
    PipelineExecutor pipeline(group, net.stages(2), schedule_of(trial),
                              {.fed = {"tokens", "targets"},
                               .around_backward = wrap("input"),
                               .around_backward_weight = wrap("weight"),
                               .deferred = &deferred});
    static_cast<void>(pipeline.run(feed_of(trial)));
    std::sort(calls.begin(), calls.end());
    const int rank = group.rank();
    EXPECT_EQ(calls,
              (std::vector<std::string>{concat("input", rank, 0), concat("input", rank, 1),
                                        concat("weight", rank, 0), concat("weight", rank, 1)}));
  });
}

TEST(PipelineExecutor, AFailureOfOneRankEndsAllOfThem) {
  for (const std::string& name : schedule_names()) {
    std::atomic<int> lost = 0;
    harness::run_ranks(
        3,
        [&](comm::Communicator& group) {
          const Trial trial{.schedule = name, .num_ranks = 3, .num_microbatches = 4};
          const Schedule schedule = schedule_of(trial);
          Net net(at::kDouble);
          std::vector<PipelineStage> stages = net.stages(schedule.num_stages());
          stages[1].forward = [forward = stages[1].forward](int64_t microbatch,
                                                            std::vector<at::Tensor> inputs) {
            if (microbatch == 2) throw std::runtime_error("out of oars");
            return forward(microbatch, std::move(inputs));
          };
          PipelineExecutor pipeline(group, stages, schedule, {.fed = {"tokens", "targets"}});
          try {
            static_cast<void>(pipeline.run(feed_of(trial)));
            ADD_FAILURE() << name << ": rank " << group.rank() << " succeeded";
          } catch (const CommError& error) {
            ++lost;
            EXPECT_NE(std::string(error.what()).find("out of oars"), std::string::npos)
                << error.what();
          } catch (const std::runtime_error& error) {
            EXPECT_EQ(std::string(error.what()), "out of oars");
            EXPECT_EQ(schedule.rank_of_stage[1], group.rank());
          }
        },
        {.timeout = std::chrono::seconds(20)});
    EXPECT_EQ(lost, 2) << name;
  }
}

void expect_refused(const std::function<void(comm::Communicator&)>& make,
                    const std::vector<std::string>& words) {
  harness::run_ranks(2, [&](comm::Communicator& group) {
    try {
      make(group);
      ADD_FAILURE() << "accepted; expected " << words.front();
    } catch (const ConfigError& error) {
      for (const std::string& word : words)
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  });
}

TEST(PipelineExecutor, RefusesWhatDoesNotFit) {
  const auto make = [](int ranks, int stages, const PipelineOptions& options,
                       int microbatches = 2) {
    return [=](comm::Communicator& group) {
      Net net(at::kDouble);
      PipelineExecutor(
          group, net.stages(stages),
          make_schedule("1f1b",
                        {.num_ranks = ranks,
                         .num_microbatches = microbatches + group.rank() * (microbatches == 7)}),
          options);
    };
  };
  const PipelineOptions good{.fed = {"tokens", "targets"}};
  expect_refused(make(3, 3, good), {"3 ranks", "has 2"});
  expect_refused(make(2, 3, good), {"2 stages", "there are 3"});
  expect_refused(make(2, 2, {.fed = {"tokens"}}), {"targets", "nobody feeds"});
  expect_refused(make(2, 2, {.fed = {"tokens", "targets"}, .loss = "lost"}), {"\"lost\""});
  expect_refused(make(2, 2, {.fed = {"tokens", "targets"}, .loss = "x1"}), {"x1", "is read"});
  expect_refused(make(2, 2, good, 7), {"rank 1", "a different pipeline from rank 0"});
}

}  // namespace
}  // namespace trireme::parallel
