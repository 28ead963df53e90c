// Runs of learners that exchange with neighbours, and what a resume keeps of an exchange.
#include <filesystem>
#include <fstream>
#include <string>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/train/learner_run.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class LearnerGraphs : public LearnerRun {
 protected:
  // In fp64, with every checkpoint kept.
  RunConfig learners(const std::string& run, int num_learners,
                     std::vector<Override> overrides) const {
    overrides.insert(overrides.begin(), {{"train.precision", "fp64"},
                                         {"train.global_batch", "24"},
                                         {"train.micro_batch", "1"},
                                         {"train.steps", "8"},
                                         {"checkpoint.interval", "1"},
                                         {"checkpoint.keep", "100"},
                                         {"parallel.learners", std::to_string(num_learners)}});
    return config(run, std::move(overrides));
  }
  fs::path graph_file(const std::string& edges) const {
    const fs::path path = folder_ / "mine.graph";
    std::ofstream(path) << "learners 3\nround\n" << edges;
    return path;
  }
};

TEST_F(LearnerGraphs, CorrectedGossipIsTheSameAtEveryLayoutOfALearner) {
  for (const std::string method : {"gradient-tracking", "d2"}) {
    const std::vector<Override> corrected{{"outer.method", method}, {"outer.every", "2"}};
    run(learners(method, 4, corrected), 4);
    std::vector<Override> sharded = corrected;
    sharded.insert(sharded.end(), {{"parallel.data", "2"}, {"parallel.zero", "3"}});
    run(learners(method + "3", 4, sharded), 8);
    const auto expected = saved(method, 8);
    for (const auto& [name, tensor] : saved(method + "3", 8)) {
      if (name.starts_with("optimizer.") || name.starts_with("learners.")) continue;
      EXPECT_TRUE(at::allclose(tensor, expected.at(name), 1e-10, 1e-12)) << name;
    }
  }
}

// The corrections of three learners sum to zero, and those of two of them do not.
TEST_F(LearnerGraphs, CorrectionsAreOfTheLearnersThatHaveMadeThem) {
  for (const std::string method : {"gradient-tracking", "d2"}) {
    const std::vector<Override> apart{{"outer.method", method}, {"outer.every", "2"}};
    run(learners(method, 3, apart), 3);
    at::Tensor sum, first;
    for (const auto& [name, tensor] : saved(method, 4)) {
      if (!name.ends_with(concat("outer.", method, ".lm_head.weight"))) continue;
      first = sum.defined() ? first : tensor;
      sum = sum.defined() ? sum + tensor : tensor;
    }
    ASSERT_TRUE(sum.defined()) << method;
    EXPECT_GT(first.abs().max().item<double>(), 1e-6);
    EXPECT_LT(sum.abs().max().item<double>(), 1e-15);
    for (const int n : {2, 4}) {
      const std::string name = concat(method, " to ", n);
      copy_checkpoint(method, 4, name);
      std::vector<Override> other = apart;
      other.push_back({"resume.allow", "parallel.learners"});
      other.push_back({"train.steps", "5"});  // saved before the next exchange
      run(learners(name, n, other), n);
      size_t found = 0;
      for (const auto& [entry, tensor] : saved(name, 5)) {
        if (entry.find("outer." + method) == std::string::npos) continue;
        EXPECT_EQ(tensor.abs().max().item<double>(), 0) << entry;
        ++found;
      }
      EXPECT_GT(found, 0U);
    }
  }
}

// What an exchange says of itself is that of a run that was not interrupted, or is left out.
TEST_F(LearnerGraphs, AResumeWritesNoPartialMetricsOfAnExchange) {
  const std::vector<std::vector<Override>> settings{
      {{"outer.every", "4"}},
      {{"outer.every", "4"}, {"outer.fragments", "2"}, {"outer.delay", "1"}},
      {{"outer.every", "3"}, {"outer.method", "gossip"}}};
  for (size_t i = 0; i < settings.size(); ++i) {
    const std::string whole = concat("whole", i);
    run(learners(whole, 2, settings[i]), 2);
    const auto expected = metrics(whole);
    for (const int64_t step : {1, 2, 3, 4, 5}) {
      const std::string name = concat("again", i, "-", step);
      copy_checkpoint(whole, step, name);
      run(learners(name, 2, settings[i]), 2);
      size_t found = 0;
      for (const auto& line : metrics(name)) {
        const auto& same = expected.at(line["step"].get<size_t>() - 1);
        ASSERT_EQ(line["step"], same["step"]);
        for (const char* key : {"learner_loss", "learner_spread", "outer_bytes"}) {
          if (!line.contains(key)) continue;
          EXPECT_EQ(line[key], same[key]) << name << " " << key << " " << line["step"];
          ++found;
        }
      }
      EXPECT_GT(found, 0U) << name;
    }
  }
}

TEST_F(LearnerGraphs, AnotherFileOfAGraphIsRefusedAtAResume) {
  const std::string ring = "0 1 1/3\n1 2 1/3\n2 0 1/3\n1 0 1/3\n2 1 1/3\n0 2 1/3\n";
  const std::vector<Override> gossip{{"outer.method", "gossip"},
                                     {"outer.graph", graph_file(ring).string()},
                                     {"outer.every", "2"},
                                     {"train.steps", "4"}};
  run(learners("run", 3, gossip), 3);
  std::vector<Override> longer = gossip;
  longer.push_back({"train.steps", "6"});
  graph_file("# the same graph, written in another way\n" + ring);
  EXPECT_EQ(run(learners("run", 3, longer), 3), Outcome::kFinished);
  longer.push_back({"train.steps", "8"});
  graph_file("0 1 1/4\n1 0 1/4\n1 2 1/4\n2 1 1/4\n");
  EXPECT_THAT(harness::message_of<ConfigError>([&] { run(learners("run", 3, longer), 3); }),
              HasSubstr("whose file is another one"));
  longer.push_back({"resume.allow", "outer.graph"});
  EXPECT_EQ(run(learners("run", 3, longer), 3), Outcome::kFinished);
}

}  // namespace
}  // namespace trireme::train
