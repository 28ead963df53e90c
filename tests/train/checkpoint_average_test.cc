#include "trireme/train/checkpoint_average.h"

#include <cmath>
#include <limits>
#include <map>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "tests/train/language_config.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/tasks/tasks.h"
#include "trireme/train/state/run_state.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using harness::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Tensors = std::map<std::string, at::Tensor>;

class CheckpointAverageTest : public ::testing::Test {
 protected:
  // Cuts dimension 0 over the ranks; a scalar is on each.
  fs::path save(int64_t step, const Tensors& tensors, int ranks = 1) {
    const fs::path root = folder_ / "run" / "checkpoints";
    harness::run_ranks(ranks, [&](comm::Communicator& world) {
      std::vector<checkpoint::Entry> entries;
      for (const auto& [name, tensor] : tensors) {
        const std::vector<int64_t> shape = tensor.sizes().vec();
        mesh::Layout layout(shape, {{"data", ranks}});
        at::Tensor local = tensor;
        if (!shape.empty()) {
          layout = mesh::Layout(shape, {{"data", ranks}}, {mesh::Placement::sharded(0)});
          const mesh::Box box = layout.local_box(world.rank());
          local = tensor.narrow(0, box.offset[0], box.size[0]);
        }
        entries.push_back({name, local, layout});
      }
      checkpoint::save(root, step, entries, to_json({.step = step, .config = to_toml(config_)}),
                       world, {.keep = 0, .fsync = false});
    });
    return root / concat("step-00000", step);
  }

  Tensors average(const std::vector<fs::path>& paths, double decay = 1) {
    result_ = average_checkpoints(paths, out(), tasks::all_tasks(), {.decay = decay});
    return checkpoint::load_global(*checkpoint::latest(out() / "checkpoints"));
  }
  template <typename Expected>
  std::string refusal(const std::vector<fs::path>& paths, double decay = 1) {
    const std::string message = message_of<Expected>([&] { average(paths, decay); });
    EXPECT_FALSE(fs::exists(out()));
    return message;
  }
  fs::path out() const { return folder_ / "average"; }

  harness::TemporaryFolder folder_;
  RunConfig config_ = language_config();
  CheckpointAverage result_;
};

Tensors constant(double value, at::ScalarType dtype = at::kFloat) {
  return {{"w", at::full({5, 3}, value, dtype)}};
}

TEST_F(CheckpointAverageTest, WeighsAllTheSameOrTheLastMost) {
  const std::vector<fs::path> paths{save(1, constant(1)), save(2, constant(2), 2),
                                    save(3, constant(6), 3)};
  harness::assert_same_bits(average(paths).at("w"), constant(3).at("w"), "equal");
  EXPECT_THAT(result_.weights, ElementsAre(1. / 3, 1. / 3, 1. / 3));
  EXPECT_EQ(result_.step, 3);
  fs::remove_all(out());
  // (1/4 + 2/2 + 6) / (7/4)
  const at::Tensor expected = at::full({5, 3}, 7.25 / 1.75, at::kDouble).to(at::kFloat);
  harness::assert_same_bits(average(paths, 0.5).at("w"), expected, "decay");
  EXPECT_THAT(result_.weights, ElementsAre(1. / 7, 2. / 7, 4. / 7));
}

TEST_F(CheckpointAverageTest, OfEqualWeightsIsTheSameBits) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    const Tensors tensors{{"w", at::randn({41, 7}, at::kDouble).to(dtype)}};
    const std::vector<fs::path> paths{save(1, tensors), save(2, tensors), save(3, tensors)};
    if (dtype == at::kDouble) {
      // One rounding of 2x + x, one of the quotient.
      harness::assert_close(average(paths).at("w"), tensors.at("w"), std::ldexp(3, -53), 0, "w");
    } else {
      harness::assert_same_bits(average(paths).at("w"), tensors.at("w"), "w");
    }
    fs::remove_all(out());
  }
}

TEST_F(CheckpointAverageTest, SumsBeyondTheRangeOfTheWeights) {
  const Tensors high = constant(60000, at::kHalf);
  harness::assert_same_bits(average({save(1, high), save(2, high)}).at("w"), high.at("w"), "w");
}

TEST_F(CheckpointAverageTest, TakesEverythingElseFromTheLast) {
  const auto tensors = [](double value) -> Tensors {
    const at::Tensor master = at::full({3}, value, at::kFloat);
    return {
        {"w", master.to(at::kBFloat16)},      {"scalar", at::full({}, value, at::kFloat)},
        {"empty", at::zeros({0, 2})},         {"count", at::full({2}, static_cast<int64_t>(value))},
        {"optimizer.master.w", master},       {"optimizer.exp_avg.w", master * 10},
        {"callback.average.w", master * 100}, {"compression.error.w", master}};
  };
  const Tensors last = tensors(1.01);
  const Tensors mean = average({save(1, tensors(1)), save(2, last)});
  const at::Tensor master = at::full({3}, (1.0 + static_cast<double>(1.01f)) / 2, at::kFloat);
  harness::assert_same_bits(mean.at("optimizer.master.w"), master, "master");
  harness::assert_same_bits(mean.at("w"), master.to(at::kBFloat16), "rounded master");
  harness::assert_same_bits(mean.at("scalar"), master[0], "scalar");
  for (const char* name : {"empty", "count", "optimizer.exp_avg.w", "callback.average.w"})
    harness::assert_same_bits(mean.at(name), last.at(name), name);
  EXPECT_FALSE(mean.contains("compression.error.w"));
  EXPECT_EQ(result_.num_averaged, 4);
  EXPECT_EQ(result_.num_taken, 3);
}

TEST_F(CheckpointAverageTest, MakesARunWhoseConfigNamesItsOwnFolder) {
  const std::vector<fs::path> paths{save(1, constant(1)), save(2, constant(2))};
  write_file_atomically(folder_ / "run" / "tokenizer.tokenizer.json", "{}");
  write_file_atomically(folder_ / "run" / "metrics.jsonl", "");
  average(paths);
  EXPECT_EQ(read_file(out() / "tokenizer.tokenizer.json"), "{}");
  EXPECT_FALSE(fs::exists(out() / "metrics.jsonl"));
  const std::string state = checkpoint::inspect(*checkpoint::latest(out() / "checkpoints")).state;
  const std::string toml = parse_state(state, "state", 2).config;
  EXPECT_EQ(read_file(out() / "config.toml"), toml);
  EXPECT_EQ(parse_saved_config(toml, "toml", config_).output.folder, out().string());
}

TEST_F(CheckpointAverageTest, RefusesOtherModelsByName) {
  Tensors more = constant(2);
  more["bias"] = at::ones({2});
  const fs::path a = save(1, constant(1)), b = save(2, more), c = save(3, constant(1, at::kHalf));
  EXPECT_THAT(refusal<CheckpointError>({a, b}),
              AllOf(HasSubstr("step-000001"), HasSubstr("\"bias\" is missing")));
  EXPECT_THAT(refusal<CheckpointError>({b, a}), HasSubstr("\"bias\" is surplus"));
  EXPECT_THAT(refusal<CheckpointError>({c, a}), HasSubstr("\"w\" is F16 [5, 3], expected F32"));
}

TEST_F(CheckpointAverageTest, RefusesWeightsThatAreNotFinite) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(refusal<CheckpointError>({save(1, constant(bad)), save(2, constant(1))}),
                AllOf(HasSubstr("step-000001"), HasSubstr("\"w\""), HasSubstr("NaN")));
  }
}

TEST_F(CheckpointAverageTest, RefusesBadArguments) {
  const fs::path a = save(1, constant(1)), b = save(2, constant(2));
  EXPECT_THAT(refusal<ConfigError>({a}), HasSubstr("at least 2"));
  EXPECT_THAT(refusal<ConfigError>({a, a / ""}), HasSubstr("twice"));
  for (const double decay : {0., -1., 1.5, std::nan("")})
    EXPECT_THAT(refusal<ConfigError>({a, b}, decay), HasSubstr("decay"));
}

}  // namespace
}  // namespace trireme::train
