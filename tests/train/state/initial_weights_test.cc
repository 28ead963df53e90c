#include "trireme/train/state/initial_weights.h"

#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "tests/train/points_run.h"
#include "trireme/base/error.h"
#include "trireme/train/state/run_state.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

at::Tensor numbers(double first, c10::ScalarType dtype) {
  return (at::arange(12, at::kDouble).view({4, 3}) / 7 + first).to(dtype);
}

class InitialWeightsTest : public ::testing::Test {
 protected:
  // A bf16 run that also keeps masters, moments and an average.
  InitialWeightsTest() {
    harness::run_ranks(1, [&](comm::Communicator& world) {
      checkpoint::save(folder_ / "checkpoints", 7,
                       whole_entries({{"a.weight", numbers(1, at::kBFloat16)},
                                      {"b.weight", numbers(2, at::kBFloat16)},
                                      {"optimizer.master.a.weight", numbers(1, at::kFloat)},
                                      {"optimizer.exp_avg.a.weight", numbers(5, at::kFloat)},
                                      {"callback.average.a.weight", numbers(6, at::kFloat)},
                                      {"compression.error.a", numbers(7, at::kFloat)}}),
                       "{}", world);
    });
  }

  InitConfig init(std::string names = "*", std::string missing = "") const {
    return {.folder = folder_.path().string(), .names = names, .missing = missing};
  }

  // Loads on two ranks, which share the rows of each tensor out, 1 and 3. Returns the whole tensors
  // after it; those that are not read are zeros.
  std::map<std::string, at::Tensor> load(const InitConfig& init, std::vector<std::string> weights,
                                         std::vector<std::string> masters, c10::ScalarType dtype) {
    std::map<std::string, at::Tensor> whole;
    for (const std::string& name : weights) whole[name] = at::zeros({4, 3}, dtype);
    for (const std::string& name : masters) whole["master." + name] = at::zeros({4, 3});
    harness::run_ranks(2, [&](comm::Communicator& world) {
      const mesh::Layout layout({4, 3}, {{"tensor", 2}}, {mesh::Placement::sharded(0, {0, 1, 4})});
      const auto rows = [&](const at::Tensor& tensor) {
        return world.rank() == 0 ? tensor.narrow(0, 0, 1) : tensor.narrow(0, 1, 3);
      };
      InitialWeights wanted;
      for (const std::string& name : weights) {
        wanted.weights.push_back({name, rows(whole.at(name)), layout, world.rank()});
      }
      for (const std::string& name : masters) {
        wanted.masters.push_back({name, rows(whole.at("master." + name)), layout, world.rank()});
      }
      load_initial_weights(find_initial_weights(init), init, std::move(wanted), world);
    });
    return whole;
  }

  std::string refusal(const InitConfig& init, std::vector<std::string> weights) {
    return harness::message_of<CheckpointError>(
        [&] { load(init, std::move(weights), {}, at::kFloat); });
  }

  harness::TemporaryFolder folder_;
};

TEST_F(InitialWeightsTest, AreReadFromMastersWhereDtypesDifferAtAnyLayout) {
  const auto half = load(init(), {"a.weight", "b.weight"}, {"a.weight", "b.weight"}, at::kBFloat16);
  harness::assert_same_bits(half.at("a.weight"), numbers(1, at::kBFloat16), "a");
  harness::assert_same_bits(half.at("master.a.weight"), numbers(1, at::kFloat), "master of a");
  harness::assert_same_bits(half.at("b.weight"), numbers(2, at::kBFloat16), "b");
  harness::assert_same_bits(half.at("master.b.weight"), numbers(2, at::kBFloat16).to(at::kFloat),
                            "master of b");
  const auto wide = load(init(), {"a.weight", "b.weight"}, {}, at::kDouble);
  harness::assert_same_bits(wide.at("a.weight"), numbers(1, at::kFloat).to(at::kDouble), "wide");
}

TEST_F(InitialWeightsTest, ThatAreMissingKeepTheirValuesOnlyWhereThatIsAllowed) {
  EXPECT_THAT(refusal(init(), {"a.weight", "b.weight", "c.weight"}),
              AllOf(HasSubstr("1 missing: c.weight"), HasSubstr("init.missing")));
  const auto found =
      load(init("a.*", "c.*, b.*"), {"a.weight", "b.weight", "c.weight"}, {"c.weight"}, at::kFloat);
  harness::assert_same_bits(found.at("a.weight"), numbers(1, at::kFloat), "a");
  for (const char* name : {"b.weight", "c.weight", "master.c.weight"}) {
    EXPECT_TRUE(at::equal(found.at(name), at::zeros({4, 3}))) << name;
  }
}

TEST_F(InitialWeightsTest, ThatTheModelLacksAreLeftOutByName) {
  EXPECT_THAT(refusal(init(), {"a.weight"}),
              AllOf(HasSubstr("1 unexpected: b.weight"), HasSubstr("init.names"),
                    Not(HasSubstr("optimizer."))));
  EXPECT_EQ(refusal(init("a.*"), {"a.weight"}), "");
}

TEST_F(InitialWeightsTest, SayWhichKeepTheirValuesAndLeaveOutWhatIsNotRead) {
  harness::run_ranks(1, [&](comm::Communicator& world) {
    InitialWeights wanted{.weights = whole_entries(
                              {{"a.weight", at::zeros({4, 3})}, {"c.weight", at::zeros({4, 3})}}),
                          .unread = "b.*, d.*"};
    const InitConfig of_head = init("*", "c.*, d.*");
    EXPECT_THAT(load_initial_weights(find_initial_weights(of_head), of_head, wanted, world),
                testing::ElementsAre("c.weight"));
  });
}

TEST_F(InitialWeightsTest, OfAnotherShapeAreRefusedByName) {
  harness::run_ranks(1, [&](comm::Communicator& world) {
    InitialWeights wanted{.weights = whole_entries(
                              {{"a.weight", at::zeros({4, 4})}, {"b.weight", at::zeros({4, 3})}})};
    EXPECT_THAT(harness::message_of<CheckpointError>([&] {
                  load_initial_weights(find_initial_weights(init()), init(), wanted, world);
                }),
                AllOf(HasSubstr("a.weight\""), HasSubstr("[4, 3]"), HasSubstr("[4, 4]")));
  });
}

TEST_F(InitialWeightsTest, AreLookedForInARunOrACheckpoint) {
  InitConfig checkpoint = init();
  EXPECT_EQ(find_initial_weights(checkpoint), folder_ / "checkpoints/step-000007");
  checkpoint.folder = (folder_ / "checkpoints/step-000007").string();
  EXPECT_EQ(find_initial_weights(checkpoint), folder_ / "checkpoints/step-000007");
  checkpoint.folder = (folder_ / "none").string();
  EXPECT_THROW(find_initial_weights(checkpoint), CheckpointError);
}

// A task without a model that the trainer could know, with buffers, from two ranks to one.
class InitialWeightsOfAChain : public PointsRun {};

TEST_F(InitialWeightsOfAChain, AreThoseOfTheOtherRunWithTheirBuffers) {
  const std::vector<Override> model = {{"points.batch_norm", "true"}};
  run(config("first", model), 2);
  std::vector<Override> options = model;
  options.insert(options.end(), {{"init.folder", (folder_ / "first").string()},
                                 {"train.seed", "99"},
                                 {"train.steps", "1"},
                                 {"optimizer.name", "sgd"},
                                 {"optimizer.learning_rate", "1e-30"}});
  run(config("second", options), 1);
  const auto first = checkpoint::load_global(folder_ / "first/checkpoints/step-000006");
  const auto second = checkpoint::load_global(folder_ / "second/checkpoints/step-000001");
  int64_t parameters = 0;
  for (const auto& [name, tensor] : second) {
    // The one step moves the running statistics of batch norm.
    if (name.starts_with("optimizer.") || name.find("more.norm.") != name.npos) continue;
    parameters += name.ends_with("weight") ? 1 : 0;
    harness::assert_same_bits(tensor, first.at(name), name);
  }
  EXPECT_EQ(parameters, 5);
  EXPECT_EQ(metrics("second").at(0).at("step"), 1);
}

}  // namespace
}  // namespace trireme::train
