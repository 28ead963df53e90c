// ZeRO changes memory and traffic and no bit: every stage against DDP, over several steps of AdamW,
// on a module with everything that is awkward.
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "tests/parallel/data/made_weight.h"
#include "trireme/base/error.h"
#include "trireme/parallel/data/ddp.h"
#include "trireme/parallel/data/sharded_weights.h"

namespace trireme::parallel {
namespace {

using Tensors = std::map<std::string, at::Tensor>;
using Run = std::function<at::Tensor(size_t, const at::Tensor&, const UnitForward&)>;

constexpr int64_t kWidth = 96;

// tanh(x w + b), with a frozen scale, a scalar and a weight of another dtype that a step may not
// use.
struct Block : torch::nn::Module {
  explicit Block(uint64_t seed) {
    w = register_parameter("w", made_weight(seed, {kWidth, kWidth}));
    b = register_parameter("b", made_weight(seed + 1, {kWidth}));
    scale =
        register_parameter("scale", made_weight(seed + 2, {kWidth}) + 1, /*requires_grad=*/false);
    gain = register_parameter("gain", at::ones({}));
    precise = register_parameter("precise", made_weight(seed + 3, {kWidth, 40}, at::kDouble));
  }
  at::Tensor forward(const at::Tensor& x, bool use_precise) {
    at::Tensor y = at::tanh(at::addmm(b, x * scale, w.t())) * gain;
    if (use_precise) y = y + y.to(at::kDouble).mm(precise).sum(1, true).to(at::kFloat) * 1e-2;
    return x + y;
  }
  at::Tensor w, b, scale, gain, precise;
};

// embedding -> block 0 -> block 1 -> block 0 again -> (block 2, in some steps) -> the embedding
// transposed, and a weight outside of every unit.
struct Net : torch::nn::Module {
  explicit Net(uint64_t seed) {
    embedding = register_parameter("embedding", made_weight(seed, {50, kWidth}));
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(
          register_module("block" + std::to_string(i),
                          std::make_shared<Block>(seed + 10 * static_cast<uint64_t>(i))));
    }
    outside = register_parameter("outside", made_weight(seed + 5, {kWidth}) + 1);
  }
  std::vector<Unit> units() {
    std::vector<Unit> result{{"embedding", {embedding}}};
    for (size_t i = 0; i < blocks.size(); ++i) {
      result.push_back({"block" + std::to_string(i), blocks[i]->parameters()});
    }
    return result;
  }
  at::Tensor loss(const Run& run, const at::Tensor& tokens, int step) {
    const auto block = [&](size_t i, const at::Tensor& x) {
      return run(i + 1, x, [&](const at::Tensor& x) { return blocks[i]->forward(x, step % 2); });
    };
    at::Tensor x = run(0, tokens, [&](const at::Tensor& t) { return at::embedding(embedding, t); });
    x = block(0, block(1, block(0, x))) * outside;
    if (step % 3 != 1) x = block(2, x);
    x = run(0, x, [&](const at::Tensor& x) { return at::log_softmax(x.mm(embedding.t()), 1); });
    return -x.select(1, 3).sum();
  }
  at::Tensor embedding, outside;
  std::vector<std::shared_ptr<Block>> blocks;
};

// The simplest optimizer whose bits depend on everything: AdamW's kernel on this rank's shards.
class Optimizer {
 public:
  explicit Optimizer(const std::vector<Shard>& shards) : shards_(shards) {
    for (const Shard& shard : shards) {
      m_.push_back(at::zeros_like(shard.weights));
      v_.push_back(at::zeros_like(shard.weights));
    }
  }
  void step() {
    const c10::NoGradGuard no_grad;
    steps_ += 1;
    for (size_t i = 0; i < shards_.size(); ++i) {
      if (!shards_[i].gradient.defined() || shards_[i].weights.numel() == 0) continue;
      at::_fused_adamw_({shards_[i].weights}, {shards_[i].gradient}, {m_[i]}, {v_[i]}, {}, {steps_},
                        1e-2, 0.9, 0.95, 0.1, 1e-8, false, false);
    }
  }

 private:
  const std::vector<Shard>& shards_;
  std::vector<at::Tensor> m_, v_;
  at::Tensor steps_ = at::zeros({}, at::kFloat);
};

struct Case {
  int zero = 0;
  int64_t bucket_bytes = 1 << 20;
  bool overlap = true;
  bool symmetric = true;
  bool whole = false;
  bool rank_first = false;
  bool reproducible = false;
  int max_gathered = 3;
  int shard_ranks = 0;  // 0: all; else ranks of a hybrid shard group
  int64_t microbatches = 2;
  int64_t total_microbatches = 0;  // over all ranks, instead of microbatches
  bool on_disk = false;            // what a stage allows of the parts
};

std::string describe(const Case& test) {
  return concat("zero ", test.zero, ", buckets of ", test.bucket_bytes, ", overlap ", test.overlap,
                ", on disk ", test.on_disk, ", symmetric ", test.symmetric, ", whole ", test.whole,
                ", gathered ", test.max_gathered, ", shard ranks ", test.shard_ranks);
}

// Four steps; the final weights, whole, and every step's loss.
Tensors train(comm::Communicator& world, const Case& test) {
  std::unique_ptr<comm::Communicator> shard, replica;
  if (test.shard_ranks > 0) {
    shard = world.split(world.rank() / test.shard_ranks, world.rank(), "shard");
    replica = world.split(world.rank() % test.shard_ranks, world.rank(), "replica");
  }
  Net net(world.rank() == 0 ? 0 : 77);  // all get rank 0's weights
  const harness::TemporaryFolder folder;
  const auto home = [&](bool allowed) {
    return test.on_disk && allowed ? make_mapped_parts(folder.path(), "parts") : nullptr;
  };
  DistributedDataParallel ddp(net, {shard ? *shard : world, replica.get()},
                              {.zero = test.zero,
                               .units = net.units(),
                               .max_gathered_units = test.max_gathered,
                               .bucket_bytes = test.bucket_bytes,
                               .overlap = test.overlap,
                               .symmetric = test.symmetric,
                               .rank_first = test.rank_first,
                               .reproducible = test.reproducible,
                               .whole_parameters = test.whole,
                               .weights_home = home(test.zero == 3),
                               .gradients_home = home(test.zero >= 2)});
  Optimizer optimizer(ddp.shards());
  const Run run = [&](size_t unit, const at::Tensor& x, const UnitForward& forward) {
    return ddp.run(unit, x, forward);
  };
  const int64_t microbatches =
      test.total_microbatches > 0 ? test.total_microbatches / world.size() : test.microbatches;
  std::vector<double> losses;
  for (int step = 0; step < 4; ++step) {
    ddp.begin_step(5 * microbatches, microbatches);
    for (int64_t i = 0; i < microbatches; ++i) {
      const bool in_turn = test.rank_first && test.reproducible;
      const int64_t leaf =
          in_turn ? i * world.size() + world.rank() : world.rank() * microbatches + i;
      const at::Tensor tokens = (at::arange(5) * 7 + 11 * leaf + 3 * step).remainder(50);
      const at::Tensor loss = net.loss(run, tokens, step);
      ddp.backward(loss);
      losses.push_back(loss.item<double>());
    }
    optimizer.step();
    ddp.end_step();
  }
  ddp.gather_parameters();
  Tensors result;
  for (const auto& item : net.named_parameters())
    result[item.key()] = item.value().detach().clone();
  if (test.total_microbatches == 0) result["losses"] = at::tensor(losses);
  return result;
}

// Rank 0's result; all ranks must have the same weights.
Tensors train_on(int ranks, const Case& test) {
  std::mutex mutex;
  std::vector<Tensors> results(static_cast<size_t>(ranks));
  harness::run_ranks(ranks, [&](comm::Communicator& world) {
    Tensors mine = train(world, test);
    const std::lock_guard lock(mutex);
    results[static_cast<size_t>(world.rank())] = std::move(mine);
  });
  for (const Tensors& other : results) {
    for (const auto& [name, tensor] : results[0]) {
      if (name != "losses") harness::assert_same_bits(other.at(name), tensor, name);
    }
  }
  return results[0];
}

TEST(Zero, EveryStageHasTheBitsOfDdpOnOneToFourRanks) {
  for (const bool rank_first : {false, true}) {
    for (const int ranks : {1, 2, 3, 4}) {
      const Tensors expected = train_on(ranks, {.rank_first = rank_first});
      for (const int zero : {1, 2, 3}) {
        SCOPED_TRACE(concat(ranks, " ranks, zero ", zero, ", rank first ", rank_first));
        harness::assert_same_bits(train_on(ranks, {.zero = zero, .rank_first = rank_first}),
                                  expected);
      }
    }
  }
}

TEST(Zero, BucketsOverlapMemoryAndGatheringAheadChangeNoBit) {
  for (const bool rank_first : {false, true}) {
    const Tensors expected = train_on(3, {.rank_first = rank_first});
    for (const int zero : {0, 1, 2, 3}) {
      for (Case test :
           {Case{.bucket_bytes = 1 << 10}, Case{.bucket_bytes = 1 << 30}, Case{.overlap = false},
            Case{.symmetric = false}, Case{.whole = true}, Case{.max_gathered = 1}}) {
        test.zero = zero;
        test.rank_first = rank_first;
        SCOPED_TRACE(describe(test));
        harness::assert_same_bits(train_on(3, test), expected);
      }
    }
  }
}

TEST(Zero, PartsOnADiskChangeNoBit) {
  for (const bool rank_first : {false, true}) {
    for (const int ranks : {1, 2, 3, 4}) {
      const Tensors expected = train_on(ranks, {.rank_first = rank_first});
      for (const int zero : {2, 3}) {
        for (Case test : {Case{}, Case{.bucket_bytes = 1 << 10}, Case{.overlap = false},
                          Case{.symmetric = false}, Case{.whole = true}}) {
          test.zero = zero;
          test.rank_first = rank_first;
          test.on_disk = true;
          SCOPED_TRACE(concat(ranks, " ranks, ", describe(test)));
          harness::assert_same_bits(train_on(ranks, test), expected);
        }
      }
    }
    Case test{.zero = 3, .rank_first = rank_first, .shard_ranks = 2};
    const Tensors hybrid = train_on(4, test);
    test.on_disk = true;
    harness::assert_same_bits(train_on(4, test), hybrid);
    Case tree{.zero = 3, .rank_first = rank_first, .reproducible = true, .total_microbatches = 4};
    const Tensors of_tree = train_on(2, tree);
    tree.on_disk = true;
    harness::assert_same_bits(train_on(2, tree), of_tree);
  }
}

TEST(Zero, RefusesAHomeForWhatAStageUsesAllTheTime) {
  const harness::TemporaryFolder folder;
  const auto home = make_mapped_parts(folder.path(), "parts");
  harness::run_ranks(1, [&](comm::Communicator& group) {
    Net net(0);
    const auto error = [&](const DdpOptions& options) {
      return harness::message_of<ConfigError>(
          [&] { const DistributedDataParallel ddp(net, group, options); });
    };
    EXPECT_NE(error({.zero = 2, .weights_home = home}).find("weights_home needs zero = 3, not 2"),
              std::string::npos);
    EXPECT_NE(error({.zero = 1, .gradients_home = home}).find("needs zero = 2 or 3, not 1"),
              std::string::npos);
  });
}

TEST(Zero, OneMicrobatchOrSeveralTheStagesAgree) {
  for (const bool rank_first : {false, true}) {
    for (const int64_t microbatches : {1, 3}) {
      const Case ddp{.rank_first = rank_first, .microbatches = microbatches};
      const Tensors expected = train_on(2, ddp);
      for (const int zero : {1, 2, 3}) {
        SCOPED_TRACE(concat(microbatches, " microbatches, zero ", zero));
        Case test = ddp;
        test.zero = zero;
        harness::assert_same_bits(train_on(2, test), expected);
      }
    }
  }
  harness::assert_same_bits(train_on(3, {.rank_first = true, .microbatches = 1}),
                            train_on(3, {.microbatches = 1}));
}

// The two orders number the leaves of one tree so that each has the same samples.
TEST(Zero, ReproducibleHasTheSameBitsForEveryNumberOfRanksInBothOrders) {
  const Tensors expected = train_on(1, {.reproducible = true, .total_microbatches = 4});
  for (const bool rank_first : {false, true}) {
    Case test{.rank_first = rank_first, .reproducible = true, .total_microbatches = 4};
    for (const int ranks : {1, 2, 4}) {
      for (test.zero = 0; test.zero <= 3; ++test.zero) {
        SCOPED_TRACE(concat(ranks, " ranks, zero ", test.zero, ", rank first ", rank_first));
        harness::assert_same_bits(train_on(ranks, test), expected);
      }
    }
    test.shard_ranks = 2;
    for (const int zero : {1, 3}) {
      SCOPED_TRACE("hybrid");
      test.zero = zero;
      harness::assert_same_bits(train_on(4, test), expected);
    }
  }
}

// A hybrid sums within pairs first: another order than DDP's, the same for every stage.
TEST(Zero, HybridShardsAgreeAmongEachOtherAndDifferFromDdpByRoundingAlone) {
  const Tensors expected = train_on(4, {.zero = 1, .shard_ranks = 2});
  for (const int zero : {2, 3}) {
    SCOPED_TRACE(zero);
    harness::assert_same_bits(train_on(4, {.zero = zero, .shard_ranks = 2}), expected);
    harness::assert_same_bits(train_on(4, {.zero = zero, .rank_first = true, .shard_ranks = 2}),
                              train_on(4, {.zero = 1, .rank_first = true, .shard_ranks = 2}));
  }
  harness::assert_same_bits(train_on(2, {.zero = 3, .shard_ranks = 2}), train_on(2, {}));
  harness::assert_same_bits(train_on(2, {.zero = 2, .shard_ranks = 1}), train_on(2, {}));
  // Adam divides a gradient by its size, so that a gradient that is all rounding moves a weight by
  // the learning rate: 4 steps of 1e-2 bound what any rounding can do.
  const Tensors ddp = train_on(4, {});
  for (const auto& [name, tensor] : ddp) {
    if (name != "losses") harness::assert_close(expected.at(name), tensor, 0, 4e-2, name);
  }
}

TEST(Zero, MovesTheBytesOfItsContract) {
  harness::run_ranks(2, [](comm::Communicator& inner) {
    for (const int zero : {0, 1, 2, 3}) {
      harness::CountingCommunicator group(inner);
      Net net(0);
      DistributedDataParallel ddp(net, group, {.zero = zero, .units = net.units()});
      int64_t all = 0, trained = 0, in_units = 0;  // padded bytes of both kinds
      for (const auto& item : net.named_parameters()) {
        const auto bytes = (static_cast<int64_t>(item.value().nbytes()) + 63) / 64 * 64;
        all += bytes;
        if (item.value().requires_grad()) trained += bytes;
        if (item.key() != "outside") in_units += bytes;
      }
      group.ledger().clear();
      ddp.begin_step(5);
      ddp.backward(net.loss([&](size_t unit, const at::Tensor& x,
                                const UnitForward& forward) { return ddp.run(unit, x, forward); },
                            at::arange(5), 0));
      ddp.end_step();
      const harness::Ledger& ledger = group.ledger();
      const std::string gather = group.name() + ".gather";
      EXPECT_EQ(ledger.of(group.name(), "all_reduce").bytes, 8 + (zero == 0 ? trained : 0));
      EXPECT_EQ(ledger.of(group.name(), "reduce_scatter").bytes, zero == 0 ? 0 : trained / 2);
      const int64_t gathered = ledger.of(gather, "all_gather").bytes;
      constexpr int64_t kGrains = 8 * 1024;  // parts are even but for some grains
      if (zero == 0) {
        EXPECT_EQ(gathered, 0);
      } else if (zero < 3) {
        EXPECT_NEAR(static_cast<double>(gathered), static_cast<double>(all / 2), kGrains);
      } else {
        // Once or twice in forward, block 0 and the embedding are used twice, and so back.
        EXPECT_GE(gathered, 2 * in_units / 2 - kGrains);
        EXPECT_LE(gathered, 4 * in_units / 2 + kGrains);
      }
    }
  });
}

// In each microbatch the bytes of a step, and they are those that gradient_bytes() says.
TEST(Zero, RankFirstMovesAStepsBytesInEachMicrobatch) {
  harness::run_ranks(2, [](comm::Communicator& inner) {
    for (const int zero : {0, 1, 2, 3}) {
      for (const int64_t microbatches : {1, 4}) {
        harness::CountingCommunicator group(inner);
        Net net(0);
        DistributedDataParallel ddp(net, group,
                                    {.zero = zero, .units = net.units(), .rank_first = true});
        int64_t trained = 0;  // padded bytes
        for (const at::Tensor& p : net.parameters()) {
          if (p.requires_grad()) trained += (static_cast<int64_t>(p.nbytes()) + 63) / 64 * 64;
        }
        group.ledger().clear();
        ddp.begin_step(5, microbatches);
        for (int64_t j = 0; j < microbatches; ++j) {
          ddp.backward(
              net.loss([&](size_t unit, const at::Tensor& x,
                           const UnitForward& forward) { return ddp.run(unit, x, forward); },
                       at::arange(5), 0));
        }
        const harness::Ledger& ledger = group.ledger();
        const int64_t summed = microbatches * (zero == 0 ? trained : trained / 2);
        EXPECT_EQ(ledger.of(group.name(), zero == 0 ? "all_reduce" : "reduce_scatter").bytes,
                  summed + (zero == 0 ? 8 : 0));
        EXPECT_EQ(ddp.gradient_bytes(), microbatches * trained / 2 * (zero == 0 ? 2 : 1));
      }
    }
  });
}

TEST(Zero, MemoryIsSharedOutByStage) {
  std::map<int, DataParallelMemory> memory;
  harness::run_ranks(2, [&](comm::Communicator& group) {
    for (const int zero : {0, 1, 2, 3}) {
      Net net(0);
      DistributedDataParallel ddp(net, group, {.zero = zero, .units = net.units()});
      if (group.rank() == 0) memory[zero] = ddp.memory();
    }
  });
  const auto half = [](int64_t part, int64_t whole) {
    return std::abs(static_cast<double>(part) / static_cast<double>(whole) - 0.5) < 0.05;
  };
  EXPECT_EQ(memory[1].gradients, memory[0].gradients);
  EXPECT_TRUE(half(memory[2].gradients, memory[0].gradients));
  EXPECT_TRUE(half(memory[3].gradients, memory[0].gradients));
  EXPECT_NEAR(memory[2].parameters, memory[0].parameters, 64 * 20);  // padding
  EXPECT_TRUE(half(memory[3].parameters, memory[0].parameters));
}

TEST(Zero, ParametersHaveNoMemoryBetweenUsesAndCanBeGathered) {
  harness::run_ranks(2, [](comm::Communicator& group) {
    Net net(3);
    const at::Tensor before = net.blocks[1]->w.detach().clone();
    DistributedDataParallel ddp(net, group, {.zero = 3, .units = net.units()});
    EXPECT_EQ(net.blocks[1]->w.storage().data(), nullptr);
    ddp.gather_parameters();
    harness::assert_same_bits(net.blocks[1]->w.detach(), before, "gathered");
    ddp.release_parameters();
    EXPECT_EQ(net.blocks[1]->w.storage().data(), nullptr);
    EXPECT_NE(net.outside.storage().data(), nullptr) << "in no unit";
  });
}

// Each rank fills the parts that it owns; of hybrid shards the first replica's values count.
TEST(Zero, ParametersWithoutMemoryAreFilledPartByPart) {
  harness::run_ranks(4, [](comm::Communicator& world) {
    const auto shard = world.split(world.rank() / 2, world.rank(), "shard");
    const auto replica = world.split(world.rank() % 2, world.rank(), "replica");
    for (const bool is_hybrid : {false, true}) {
      for (const int zero : {1, 2, 3}) {
        Net full(0), net(0);
        for (const auto& item : net.named_parameters()) {
          if (item.key() == "outside") continue;  // which keeps its values
          at::Tensor parameter = item.value();
          parameter.set_data(without_memory(parameter.sizes(), parameter.options()));
        }
        const auto expected = full.named_parameters();
        const bool is_first = !is_hybrid || replica->rank() == 0;
        DistributedDataParallel ddp(
            net, {is_hybrid ? *shard : world, is_hybrid ? replica.get() : nullptr},
            {.zero = zero, .units = net.units(), .initialise = [&](std::span<const Shard> shards) {
               for (const Shard& shard : shards) {
                 EXPECT_NE(shard.name, "outside");
                 const mesh::Box box = shard.layout.local_box(shard.rank);
                 at::Tensor values = expected[shard.name].detach();
                 values = values.view(shard.layout.shape());
                 for (size_t d = 0; d < box.size.size(); ++d) {
                   values = values.narrow(static_cast<int64_t>(d), box.offset[d], box.size[d]);
                 }
                 shard.weights.copy_(values * (is_first ? 1 : 2));
               }
             }});
        if (zero == 3) {
          EXPECT_EQ(ddp.memory().peak_gathered, 0);
        }
        ddp.gather_parameters();
        for (const auto& item : net.named_parameters()) {
          harness::assert_same_bits(item.value().detach(), expected[item.key()].detach(),
                                    item.key());
        }
      }
    }
  });
}

TEST(Zero, WrongOptionsAreRefused) {
  harness::run_ranks(2, [](comm::Communicator& group) {
    Net net(0);
    EXPECT_THROW(DistributedDataParallel(net, group, {.zero = 4}), ConfigError);
    EXPECT_THROW(DistributedDataParallel(net, group, {.zero = 3, .max_gathered_units = 0}),
                 ConfigError);
    EXPECT_THROW(
        DistributedDataParallel(net, group,
                                {.zero = 3, .units = {{"a", {net.outside}}, {"b", {net.outside}}}}),
        ConfigError);
    EXPECT_THROW(
        DistributedDataParallel(net, group, {.zero = 3, .units = {{"a", {at::ones({3})}}}}),
        ConfigError);
    EXPECT_THROW(DistributedDataParallel(
                     net, group, {.rank_first = true, .add_in_fp32 = true, .reproducible = true}),
                 ConfigError);
    net.outside.set_data(without_memory({kWidth}, at::kFloat));
    EXPECT_THROW(DistributedDataParallel(net, group, {.initialise = [](std::span<const Shard>) {}}),
                 ConfigError);
    EXPECT_THROW(DistributedDataParallel(net, group, {.zero = 3}), ConfigError);
  });
}

}  // namespace
}  // namespace trireme::parallel
