#include "trireme/verify/learner_tensors.h"

#include <filesystem>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "tests/verify/recorded.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/offline/saved_tensors.h"
#include "trireme/train/callbacks/gradient_record.h"
#include "trireme/verify/recorded_run.h"

namespace trireme::verify {
namespace {

using testing::ElementsAre;

at::Tensor filled(double value) { return at::full({3}, value); }

// Two learners, as their run saves them.
const Tensors kSaved = {{"a.weight", filled(1)},
                        {"a.buffer", filled(2)},
                        {"optimizer.momentum.a.weight", filled(3)},
                        {"learners.momentum.a.weight", filled(4)},
                        {"learners.0.a.weight", filled(5)},
                        {"learners.0.outer.residual.a.weight", filled(6)},
                        {"learners.1.a.weight", filled(7)},
                        {"learners.1.a.buffer", filled(8)},
                        {"learners.1.optimizer.momentum.a.weight", filled(9)}};

class LearnerTensorsTest : public testing::Test {
 protected:
  LearnerTensors tensors_of(int learner) {
    const std::filesystem::path root = folder_.path() / std::to_string(learner);
    save_tensors(root, 1, kSaved, "{}");
    return {std::make_unique<checkpoint::SavedTensors>(root / checkpoint::folder_name(1)), learner};
  }
  static std::vector<std::string> names(const LearnerTensors& tensors) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors.tensors()) names.push_back(name);
    return names;
  }
  harness::TemporaryFolder folder_;
};

TEST_F(LearnerTensorsTest, TheFirstHasItsOwnAndWhatAllHaveInCommon) {
  const LearnerTensors first = tensors_of(0);
  EXPECT_THAT(names(first), ElementsAre("a.buffer", "a.weight", "learners.common.a.weight",
                                        "learners.momentum.a.weight", "optimizer.momentum.a.weight",
                                        "optimizer.outer.residual.a.weight"));
  EXPECT_EQ(first.read("a.weight")[0].item<double>(), 5);
  EXPECT_EQ(first.read("learners.common.a.weight")[0].item<double>(), 1);
  const mesh::Box box{.offset = {1}, .size = {2}};
  EXPECT_TRUE(at::equal(first.read_box("optimizer.outer.residual.a.weight", box),
                        filled(6).narrow(0, 0, 2)));
}

TEST_F(LearnerTensorsTest, OthersHaveTheirOwn) {
  const LearnerTensors second = tensors_of(1);
  EXPECT_THAT(names(second), ElementsAre("a.buffer", "a.weight", "optimizer.momentum.a.weight"));
  EXPECT_EQ(second.read("a.weight")[0].item<double>(), 7);
}

TEST(LearnerNames, SayWhatATensorIs) {
  for (const char* name : {"optimizer.momentum.a", "learners.momentum.a", "optimizer.outer.base.a",
                           "learners.common.optimizer.master.a"}) {
    EXPECT_TRUE(is_state(name)) << name;
  }
  EXPECT_FALSE(is_state("learners.common.a"));
  EXPECT_FALSE(is_state("a"));
  EXPECT_FALSE(is_like_weight("optimizer.momentum.a"));
  for (const char* name : {"a", "optimizer.master.a", "learners.momentum.a"}) {
    EXPECT_TRUE(is_like_weight(name)) << name;
  }
  EXPECT_TRUE(is_common("learners.common.a"));
  EXPECT_FALSE(is_common("a"));
}

TEST_F(LearnerTensorsTest, ARunHasThemWithTheNumbersOfEachStep) {
  const std::filesystem::path run = folder_.path() / "run";
  EXPECT_EQ(num_learners(run), 0);
  save_tensors(run / "checkpoints", 1, kSaved, "{}");
  for (const int learner : {0, 1}) {
    const nlohmann::json state = {{"parameters", {"a.weight"}},
                                  {"numbers", {{"loss", 1.5 + learner}, {"grad_norm", nullptr}}}};
    save_tensors(train::folder_of_learner(run, learner) / "gradients", 1,
                 {{"a.weight", filled(learner)}}, state.dump());
  }
  EXPECT_EQ(num_learners(run), 2);
  const RecordedRun second(run, 1);
  EXPECT_EQ(second.num_steps(), 1);
  EXPECT_EQ(second.metric(1, "loss"), 2.5);
  EXPECT_NE(second.metric(1, "grad_norm"), second.metric(1, "grad_norm"));
  EXPECT_TRUE(at::equal(second.gradients(1)->read("a.weight"), filled(1)));
  EXPECT_TRUE(at::equal(second.checkpoint(1)->read("a.weight"), filled(7)));
}

}  // namespace
}  // namespace trireme::verify
