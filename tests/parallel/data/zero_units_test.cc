// ZeRO-3's units while they run: used on some ranks only, in several microbatches, forwards first.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/harness/ranks.h"
#include "tests/parallel/data/made_weight.h"
#include "trireme/parallel/data/ddp.h"

namespace trireme::parallel {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

// Blocks in a row, each with a weight that a rank may leave out and a frozen one, which is read on
// the way to the input.
struct PartlyUsed : torch::nn::Module {
  struct Part : torch::nn::Module {
    explicit Part(uint64_t seed) {
      w = register_parameter("w", made_weight(seed, {64, 64}));
      frozen =
          register_parameter("frozen", made_weight(seed + 1, {64, 64}), /*requires_grad=*/false);
      extra = register_parameter("extra", made_weight(seed + 2, {64}) + 1);
    }
    at::Tensor w, frozen, extra;
  };
  explicit PartlyUsed(size_t num_blocks) {
    for (size_t i = 0; i < num_blocks; ++i) {
      parts.push_back(register_module("part" + std::to_string(i), std::make_shared<Part>(3 * i)));
    }
  }
  std::vector<Unit> units() {
    std::vector<Unit> result;
    for (size_t i = 0; i < parts.size(); ++i) {
      result.push_back({"part" + std::to_string(i), parts[i]->parameters()});
    }
    return result;
  }
  at::Tensor loss(DistributedDataParallel& ddp, double input,
                  const std::function<bool(size_t)>& uses_extra) {
    at::Tensor x = at::ones({4, 64}) * input;
    for (size_t i = 0; i < parts.size(); ++i) {
      x = ddp.run(i, x, [&](const at::Tensor& x) {
        const at::Tensor y = at::tanh(x.mm(parts[i]->frozen).mm(parts[i]->w) + x);
        return uses_extra(i) ? y * parts[i]->extra : y;
      });
    }
    return x.sum();
  }
  std::vector<std::shared_ptr<Part>> parts;
};

// What a rank holds of gradients does not grow with the microbatches, with either stage.
TEST(ZeroUnits, RankFirstHoldsAFewBucketsWhateverTheMicrobatches) {
  for (const int zero : {2, 3}) {
    std::vector<int64_t> peaks;
    for (const int64_t microbatches : {1, 2, 8}) {
      harness::run_ranks(2, [&](comm::Communicator& group) {
        PartlyUsed net(40);
        const auto uses_extra = [](size_t) { return true; };
        DistributedDataParallel ddp(
            net, group,
            {.zero = zero, .units = net.units(), .bucket_bytes = 1 << 12, .rank_first = true});
        ddp.begin_step(4, microbatches);
        for (int64_t j = 0; j < microbatches; ++j) {
          ddp.begin_forward(j);
          ddp.backward(net.loss(ddp, 0.5, uses_extra));
        }
        const DataParallelMemory memory = ddp.memory(microbatches);
        EXPECT_EQ(memory.accumulating, 0);
        if (group.rank() == 0) peaks.push_back(memory.peak_in_transit);
      });
    }
    // Three buckets of a block on their way and one that fills, each at most 64 * 65 numbers, with
    // room for their sums and for a buffer of up to twice the size.
    for (const int64_t peak : peaks) EXPECT_LE(peak, 2 * 5 * 64 * 65 * 4) << zero;
  }
}

// Counts the hints about what it made.
struct CountingHome final : PartMemory {
  struct Part {
    at::Tensor tensor;
    int needed = 0;
    int let_go = 0;
  };
  at::Tensor make(int64_t elements, at::ScalarType dtype) override {
    parts.push_back({at::zeros({elements}, dtype)});
    return parts.back().tensor;
  }
  void will_need(const at::Tensor& part) override { ++part_of(part).needed; }
  void let_go(const at::Tensor& part) override { ++part_of(part).let_go; }
  Part& part_of(const at::Tensor& view) {
    const auto found = std::ranges::find_if(
        parts, [&](const Part& part) { return part.tensor.is_alias_of(view); });
    EXPECT_NE(found, parts.end());
    return *found;
  }
  std::vector<Part> parts;
};

TEST(ZeroUnits, PartsLieInTheirHomesWhichHearWhatIsUsedNext) {
  harness::run_ranks(2, [](comm::Communicator& group) {
    PartlyUsed net(4);
    const auto weights = std::make_shared<CountingHome>();
    const auto gradients = std::make_shared<CountingHome>();
    DistributedDataParallel ddp(net, group,
                                {.zero = 3,
                                 .units = net.units(),
                                 .rank_first = true,
                                 .weights_home = weights,
                                 .gradients_home = gradients});
    for (int step = 0; step < 2; ++step) {
      for (CountingHome* const home : {&*weights, &*gradients}) {
        for (CountingHome::Part& part : home->parts) part.needed = part.let_go = 0;
      }
      ddp.begin_step(4, 2);
      for (int64_t j = 0; j < 2; ++j) {
        ddp.backward(net.loss(ddp, 0.5, [](size_t) { return true; }));
      }
      for (const CountingHome::Part& part : gradients->parts) {  // of each microbatch
        EXPECT_EQ(part.needed, 2);
        EXPECT_EQ(part.let_go, 2);
      }
      // From the second step on the order is known. The first unit has none before it.
      if (step == 0) continue;
      for (size_t i = 0; i < weights->parts.size(); ++i)
        EXPECT_GE(weights->parts[i].let_go, 3) << i;
      const auto asked = std::ranges::count_if(
          weights->parts, [](const CountingHome::Part& part) { return part.needed >= 2; });
      EXPECT_GE(asked, std::ssize(weights->parts) - 2);
    }
    for (const Shard& shard : ddp.shards()) {
      weights->part_of(shard.weights);
      EXPECT_EQ(shard.weights_home, weights.get());
      if (shard.is_trained) gradients->part_of(shard.gradient);
    }
  });
}

// This rank's gradients after two steps of two microbatches: forwards first, or in turns.
Tensors train_partly(comm::Communicator& group, const DdpOptions& options, bool forwards_first,
                     int64_t& peak_gathered) {
  PartlyUsed net(8);
  DdpOptions with_units = options;
  with_units.units = net.units();
  DistributedDataParallel ddp(net, group, with_units);
  // Rank 1 leaves out the last block's and the fourth's, all ranks the third's.
  const auto uses_extra = [&](size_t i) {
    return i != 2 && (group.rank() != 1 || (i != 7 && i != 3));
  };
  for (int step = 0; step < 2; ++step) {
    ddp.begin_step(4, 2);
    at::Tensor first = net.loss(ddp, 0.5, uses_extra);
    if (!forwards_first) ddp.backward(first);
    const at::Tensor second = net.loss(ddp, -0.8, uses_extra);
    if (forwards_first) ddp.backward(first);
    ddp.backward(second);
    ddp.end_step();
  }
  peak_gathered = ddp.memory().peak_gathered;
  Tensors gradients;
  for (const Shard& shard : ddp.shards()) {
    if (!shard.is_trained) continue;
    // Whole on every rank: each element is on one rank, the others have zero.
    const at::Tensor whole = at::zeros(shard.layout.shape());
    at::Tensor view = whole;
    const mesh::Box box = shard.layout.local_box(shard.rank);
    for (size_t d = 0; d < box.offset.size(); ++d) {
      view = view.narrow(static_cast<int64_t>(d), box.offset[d], box.size[d]);
    }
    view.copy_(shard.gradient);
    if (options.zero > 0) group.all_reduce(whole)->wait();
    gradients[shard.name] = whole;
  }
  return gradients;
}

TEST(ZeroUnits, ParametersUsedOnSomeRanksOnlyHangNothingAndHaveDdpsGradients) {
  for (const bool forwards_first : {false, true}) {
    harness::run_ranks(3, [&](comm::Communicator& group) {
      int64_t peak = 0;
      const Tensors in_order[] = {train_partly(group, {}, forwards_first, peak),
                                  train_partly(group, {.rank_first = true}, forwards_first, peak)};
      for (const int zero : {1, 2, 3}) {
        for (const auto& [overlap, rank_first] :
             {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
          const DdpOptions options{.zero = zero,
                                   .max_gathered_units = 2,
                                   .bucket_bytes = 1 << 12,
                                   .overlap = overlap,
                                   .rank_first = rank_first};
          const Tensors actual = train_partly(group, options, forwards_first, peak);
          for (const auto& [name, gradient] : in_order[rank_first ? 1 : 0]) {
            EXPECT_TRUE(actual.at(name).equal(gradient))
                << name << ", zero " << zero << ", overlap " << overlap;
          }
          // Two units: the unused weight and the second graph keep none of them.
          if (zero == 3) {
            EXPECT_LE(peak, 2 * (2 * 64 * 64 + 2 * 64) * 4);
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace trireme::parallel
