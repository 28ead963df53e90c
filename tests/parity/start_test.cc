// A new run's weights: each rank draws the parts that it owns, with the bits of one rank that draws
// all of them, and no rank ever has the whole.
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include "tests/harness/live_bytes.h"
#include "tests/harness/tensors.h"
#include "tests/parity/layout_step.h"

namespace trireme::train {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

class StartTest : public LayoutsTest {
 protected:
  // Calls `look` on each rank with its model as it starts, one rank at a time.
  void start(RunConfig config, int num_ranks,
             const std::function<void(const ParallelModel&, const harness::LiveBytes&)>& look) {
    resolve(config, num_ranks);
    check_layout(config);
    std::mutex mutex;
    harness::run_ranks(num_ranks, [&](comm::Communicator& world) {
      const auto live = std::make_shared<harness::LiveBytes>();
      const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
      const mesh::DeviceMesh mesh(world, mesh_axes(config.parallel));
      const ParallelModel model(config, mesh, nullptr, nullptr);
      const std::lock_guard lock(mutex);
      look(model, *live);
    });
  }

  // Whole; what several ranks hold must be the same bits.
  Tensors weights(const RunConfig& config, int num_ranks) {
    Tensors whole, seen;
    start(config, num_ranks, [&](const ParallelModel& model, const harness::LiveBytes&) {
      for (const parallel::Shard& shard : model.shards()) {
        if (!whole[shard.name].defined()) {
          whole[shard.name] = at::zeros(shard.layout.whole_shape(), shard.weights.options());
          seen[shard.name] = at::zeros(shard.layout.whole_shape(), at::kBool);
        }
        const mesh::Box box = shard.layout.whole_box(shard.rank);
        const at::Tensor mine = view_box(whole[shard.name], box);
        const at::Tensor known = view_box(seen[shard.name], box);
        EXPECT_FALSE(mine.ne(shard.weights).logical_and(known).any().item<bool>()) << shard.name;
        mine.copy_(shard.weights);
        known.fill_(true);
      }
    });
    for (const auto& [name, known] : seen) EXPECT_TRUE(known.all().item<bool>()) << name;
    return whole;
  }
};

TEST_F(StartTest, PartsHaveTheBitsOfTheWhole) {
  const std::vector<std::tuple<const char*, int, std::vector<Override>>> layouts = {
      {"data", 3, {{"train.uneven_batches", "true"}}},
      {"hybrid", 4, {{"parallel.shard", "2"}}},
      {"tensor", 4, {{"parallel.tensor", "2"}}},
      {"pipeline", 4, {{"parallel.pipeline", "2"}}},
      {"context", 2, {{"parallel.context", "2"}}},
      {"experts",
       4,
       {{"model.family", "mixtral"}, {"model.experts", "4"}, {"parallel.expert", "2"}}},
      {"tied gpt2", 2, {{"model.family", "gpt2"}, {"model.kv_heads", "6"}}},
      {"bf16", 2, {{"train.precision", "bf16"}}}};
  for (const auto& [name, num_ranks, overrides] : layouts) {
    RunConfig one = on_one_rank(config_of(overrides));
    const Tensors expected = weights(one, 1);
    for (const char* zero : {"1", "2", "3"}) {
      SCOPED_TRACE(concat(name, ", zero ", zero));
      std::vector<Override> more = overrides;
      more.emplace_back("parallel.zero", zero);
      const Tensors actual = weights(config_of(more), num_ranks);
      ASSERT_EQ(actual.size(), expected.size());
      for (const auto& [parameter, tensor] : expected) {
        harness::assert_same_bits(actual.at(parameter), tensor, parameter);
      }
    }
  }
}

// With ZeRO-3 a rank holds little more at any time of the start than afterwards.
TEST_F(StartTest, NoRankHasMoreThanItsPartsAndAUnit) {
  const RunConfig config = config_of({{"parallel.zero", "3"},
                                      {"model.layers", "8"},
                                      {"model.width", "48"},
                                      {"model.ffn_width", "96"},
                                      {"train.symmetric_memory", "false"}});
  int64_t whole = 0, largest = 0;
  for (const auto& [name, tensor] : weights(on_one_rank(config), 1)) {
    whole += static_cast<int64_t>(tensor.nbytes());
    if (name.find("layers.0.") != std::string::npos) {
      largest += static_cast<int64_t>(tensor.nbytes());
    }
  }
  start(config, 4, [&](const ParallelModel& model, const harness::LiveBytes& live) {
    const parallel::DataParallelMemory memory = model.memory();
    const int64_t kept = memory.parameters + memory.gradients;
    EXPECT_LT(kept, whole);
    EXPECT_LE(live.peak(), kept + kept / 10 + largest);
  });
}

}  // namespace
}  // namespace trireme::train
