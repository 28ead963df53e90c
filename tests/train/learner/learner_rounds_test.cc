// Learners that are runs of their own, each with ranks as threads, and a service in this process.
#include "trireme/train/learner/learner_rounds.h"

#include <atomic>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/rendezvous/sockets.h"
#include "tests/harness/ranks.h"
#include "tests/train/text_run.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/comm/rounds/round_service.h"
#include "trireme/comm/store/store_server.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/run/inputs.h"
#include "trireme/train/state/saved_form.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kLearners = 3;

class LearnerRoundsTest : public TextRun {
 protected:
  LearnerRoundsTest() {
    comm::Port port;
    address_ = concat("127.0.0.1:", port.number());
    port.release();
    serve();
  }
  // Begins anew with another service.
  void serve() {
    server_.reset();
    service_ = std::make_unique<comm::RoundService>(comm::RoundServiceOptions{
        .table = {.places = kLearners, .lease = std::chrono::seconds(100)}});
    server_ = comm::serve_rounds(*service_, address_, nullptr);
  }

  RunConfig learners(const std::string& name, std::vector<Override> overrides = {}) const {
    overrides.insert(overrides.begin(), {{"parallel.learners", std::to_string(kLearners)},
                                         {"train.global_batch", "12"},
                                         {"train.micro_batch", "1"},
                                         {"outer.every", "2"}});
    return config(name, std::move(overrides));
  }
  RunConfig learner(int place, const std::string& name,
                    std::vector<Override> overrides = {}) const {
    overrides.insert(overrides.end(),
                     {{"outer.meeting", address_}, {"outer.place", std::to_string(place)}});
    return learners(concat(name, place), std::move(overrides));
  }
  // Trains to the end.
  static void run_one(const RunConfig& learner, int num_ranks) {
    harness::run_ranks(num_ranks, [&](comm::Communicator& world) {
      TrainObserver observer;
      Trainer(learner, world, observer).run([] { return false; });
    });
  }
  // All of them at once, each on `num_ranks` ranks.
  void run_all(const std::string& name, const std::vector<Override>& overrides, int num_ranks) {
    std::vector<std::thread> threads;
    for (int place = 0; place < kLearners; ++place) {
      threads.emplace_back([&, place] { run_one(learner(place, name, overrides), num_ranks); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  // The model's tensors at the end.
  std::map<std::string, at::Tensor> weights(const std::string& run) const {
    std::map<std::string, at::Tensor> found;
    const fs::path checkpoint = folder_ / run / "checkpoints" / checkpoint::folder_name(6, 1);
    for (const auto& [name, tensor] : checkpoint::load_global(checkpoint)) {
      if (!name.starts_with("optimizer.") && !name.starts_with(kLearnerPrefix)) {
        found[name] = tensor;
      }
    }
    return found;
  }
  void expect_same_bits(const std::string& actual, const std::string& expected) const {
    const auto a = weights(actual), b = weights(expected);
    ASSERT_EQ(a.size(), b.size());
    EXPECT_GT(b.size(), 10U);
    for (const auto& [name, tensor] : b) EXPECT_TRUE(a.at(name).equal(tensor)) << actual << name;
  }

  // A state and rounds for each rank of each learner, in threads of their own.
  template <typename Function>
  void with_states(const Function& function, int num_ranks = 1,
                   const std::vector<Override>& overrides = {}) {
    std::vector<std::thread> threads;
    for (int place = 0; place < kLearners; ++place) {
      threads.emplace_back([&, place] {
        std::vector<Override> all{{"parallel.gradient_order", "microbatch-first"}};
        all.insert(all.end(), overrides.begin(), overrides.end());
        RunConfig mine = learner(place, "state", all);
        open_inputs(mine, num_ranks);
        harness::run_ranks(num_ranks, [&](comm::Communicator& world) {
          const auto same_place = world.split(world.rank(), 0, "learners");
          const mesh::DeviceMesh mesh(world, mesh_axes(mine.parallel));
          Callbacks callbacks(mine.callbacks, mine, {});
          TrainingState state(mine, mesh, world, callbacks, nullptr, {});
          state.build();
          LearnerRounds rounds(mine, world);
          LearnerState of_learner(mine, state, *same_place, std::nullopt, &rounds);
          function(place, state, of_learner, rounds);
        });
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  static void fill(TrainingState& state, double by) {
    const c10::NoGradGuard no_grad;
    for (const parallel::Shard& shard : state.model().shards()) shard.weights.add_(by);
  }

  std::string address_;
  std::unique_ptr<comm::RoundService> service_;
  std::unique_ptr<comm::StoreServer> server_;
};

TEST_F(LearnerRoundsTest, LearnersOfTheirOwnHaveTheBitsOfRanksOfOneRun) {
  const std::vector<std::pair<int, std::vector<Override>>> cases{
      {1, {}},
      {1, {{"outer.method", "average"}}},
      {1, {{"outer.wire", "int8"}, {"outer.kept", "0.5"}}},
      {1, {{"outer.every", "4"}}},  // the last exchange is a mean
      {2, {{"parallel.zero", "3"}, {"parallel.gradient_order", "microbatch-first"}}},
      {2, {{"parallel.tensor", "2"}, {"model.kv_heads", "2"}}}};
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [num_ranks, overrides] = cases[i];
    const std::string one = concat("one", i), own = concat("own", i, "-");
    run(learners(one, overrides), kLearners * num_ranks);
    serve();
    run_all(own, overrides, num_ranks);
    for (int place = 0; place < kLearners; ++place) expect_same_bits(concat(own, place), one);
    EXPECT_TRUE(service_->is_done());
  }
}

TEST_F(LearnerRoundsTest, DecoupledOnesThatAreAllInTimeHaveTheBitsOfDiloco) {
  run(learners("one"), kLearners);
  run_all("own", {{"outer.method", "decoupled"}}, 1);
  for (int place = 0; place < kLearners; ++place) expect_same_bits(concat("own", place), "one");
}

TEST_F(LearnerRoundsTest, WhatADecoupledOneSaysTooLateCountsInItsNextRoundByItsSteps) {
  std::mutex mutex;
  std::set<std::string> hashes;
  std::atomic<bool> is_decided = false, has_left = false, is_in_again = false;
  std::atomic<int> num_joined = 0;
  const auto await = [](const std::atomic<bool>& what) {
    while (!what) std::this_thread::yield();
  };
  const auto visit = [&](int place, TrainingState& state, LearnerState& learner,
                         LearnerRounds& rounds) {
    const at::Tensor before = learner.common();
    EXPECT_FALSE(rounds.join(learner, 0, 100));
    // Two are a quorum: the third would come after their round.
    for (++num_joined; num_joined < kLearners;) std::this_thread::yield();
    fill(state, place == 0 ? 0.25 : place == 1 ? 0.5 : 1.0);
    if (place == 2) await(is_decided);
    learner.start(0, {}, 0.5);
    if (place == 2) {
      EXPECT_EQ(rounds.exchange(learner, 2), 2);
      EXPECT_FALSE(rounds.has_counted());
      await(has_left);
      is_in_again = true;
    } else {
      EXPECT_FALSE(rounds.exchange(learner, 2));
      EXPECT_THAT(rounds.places(), ElementsAre(0, 1));
      learner.finish(0);
      rounds.commit(learner, 2);
      is_decided = true;
    }
    // The mean of both, for which weights do not change.
    EXPECT_TRUE(learner.common().allclose(before + 0.375, 0, 1e-6)) << place;
    if (place == 1) {
      rounds.leave();
      has_left = true;
      return;
    }
    if (place == 0) await(is_in_again);
    fill(state, place == 0 ? 0.5 : 0.25);
    learner.start(0, {}, place == 0 ? 1 : 0.25);
    EXPECT_FALSE(rounds.exchange(learner, 4));
    EXPECT_THAT(rounds.places(), ElementsAre(0, 2));
    learner.finish(0);
    rounds.commit(learner, 4);
    const double mean = (1 * 0.5 + 0.5 * 1.0 + 0.25 * 0.25) / (1 + 0.5 + 0.25);
    EXPECT_TRUE(learner.common().allclose(before + 0.375 + mean, 0, 1e-6)) << place;
    const std::lock_guard lock(mutex);
    hashes.insert(learner.common_hash());
  };
  with_states(visit, 1,
              {{"outer.method", "decoupled"},
               {"outer.quorum", "2"},
               {"outer.optimizer", "sgd"},
               {"outer.learning_rate", "1"},
               {"outer.momentum", "0"}});
  EXPECT_EQ(hashes.size(), 1U);
}

TEST_F(LearnerRoundsTest, OneThatComesAfterTheLastRoundTakesItsWeights) {
  const std::vector<Override> overrides{{"parallel.zero", "2"},
                                        {"parallel.gradient_order", "microbatch-first"}};
  run_all("own", overrides, 2);
  EXPECT_TRUE(service_->is_done());
  run_one(learner(2, "late", overrides), 2);  // in another folder, so as a new run
  expect_same_bits("late2", "own2");
  EXPECT_TRUE(metrics("late2").empty());
  EXPECT_TRUE(service_->is_done());
}

TEST_F(LearnerRoundsTest, OneThatIsNotFiniteIsLeftOutOnAll) {
  std::mutex mutex;
  std::set<std::string> hashes;
  with_states([&](int place, TrainingState& state, LearnerState& learner, LearnerRounds& rounds) {
    EXPECT_FALSE(rounds.join(learner, 0, 100));
    fill(state, place == 1 ? std::numeric_limits<double>::quiet_NaN() : 0.25 * place);
    learner.start(0, {});
    EXPECT_FALSE(rounds.exchange(learner, 2));
    EXPECT_THAT(rounds.places(), ElementsAre(0, 1, 2));
    EXPECT_THAT(learner.finish(0).excluded, ElementsAre(1));
    rounds.commit(learner, 2);
    for (const parallel::Shard& shard : state.model().shards()) {
      EXPECT_TRUE(shard.weights.isfinite().all().item<bool>());
    }
    const std::lock_guard lock(mutex);
    hashes.insert(learner.common_hash());
  });
  EXPECT_EQ(hashes.size(), 1U);
}

TEST_F(LearnerRoundsTest, OneThatBeginsAgainGetsTheStateOfALearnerWithSeveralRanks) {
  std::mutex mutex;
  std::set<std::string> hashes;
  int arrivals = 0;  // of learner 2
  const auto await_return = [&] {
    for (bool is_back = false; !is_back; std::this_thread::yield()) {
      const std::lock_guard lock(mutex);
      for (const std::string& line : service_->take_news()) {
        arrivals += line.starts_with("learner 2 is here") ? 1 : 0;
      }
      is_back = arrivals == 2;
    }
  };
  const auto visit = [&](int place, TrainingState& state, LearnerState& learner,
                         LearnerRounds& rounds) {
    const auto do_round = [&](int64_t step) {
      fill(state, 0.25 * place);
      learner.start(0, {});
      EXPECT_FALSE(rounds.exchange(learner, step));
      learner.finish(0);
      rounds.commit(learner, step);
    };
    EXPECT_FALSE(rounds.join(learner, 0, 100));
    do_round(2);
    if (place == 2) {
      EXPECT_EQ(rounds.join(learner, 0, 100), 4);
    } else {
      await_return();
      do_round(4);
    }
    const std::lock_guard lock(mutex);
    hashes.insert(learner.common_hash());
  };
  with_states(visit, 2);
  EXPECT_EQ(hashes.size(), 1U);
}

TEST_F(LearnerRoundsTest, CommonWeightsComeWithTheirMomentum) {
  at::Tensor given;
  with_states([&](int place, TrainingState& state, LearnerState& learner, LearnerRounds& rounds) {
    rounds.join(learner, 0, 100);
    fill(state, 0.5);
    learner.start(0, {});
    EXPECT_FALSE(rounds.exchange(learner, 2));
    learner.finish(0);
    rounds.commit(learner, 2);
    if (place == 0) given = learner.common();
  });
  serve();
  with_states([&](int place, TrainingState& state, LearnerState& learner, LearnerRounds&) {
    if (place != 0) return;
    const std::string before = learner.common_hash();
    fill(state, std::numeric_limits<double>::quiet_NaN());
    learner.take_common(given);
    EXPECT_NE(learner.common_hash(), before);
    EXPECT_TRUE(learner.common().equal(given));
    EXPECT_GT(given.slice(0, given.numel() / 2).abs().max().item<double>(), 0);
    int64_t begin = 0;
    for (const parallel::Shard& shard : state.model().shards()) {
      const auto part = given.narrow(0, begin, shard.weights.numel()).view_as(shard.weights);
      EXPECT_TRUE(shard.weights.equal(part)) << shard.name;
      begin += shard.weights.numel();
    }
  });
}

TEST_F(LearnerRoundsTest, WhatDecidesTheStepsIsCommonAndWhereTheyRunIsNot) {
  const std::string text = common_settings(learner(1, "run"));
  for (const char* const key :
       {"train.seed = ", "train.global_batch = ", "outer.every = ", "optimizer.learning_rate = ",
        "parallel.learners = ", "parallel.zero = ", "model.layers = "}) {
    EXPECT_THAT(text, HasSubstr(key));
  }
  for (const char* const key : {"outer.place", "outer.meeting", "output.folder", "data.path"}) {
    EXPECT_EQ(text.find(key), std::string::npos) << key;
  }
  EXPECT_EQ(text, common_settings(learner(2, "another")));
}

}  // namespace
}  // namespace trireme::train
