#include "trireme/train/optimizer/optimizer.h"

#include <cmath>
#include <map>
#include <optional>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <algorithm>

#include "tests/harness/gradients.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "tests/train/optimizer/runs.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

class EveryOptimizer : public ::testing::TestWithParam<std::string> {
 protected:
  const OptimizerConfig config_{.name = GetParam()};
};

TEST_P(EveryOptimizer, ContinuesFromItsStateWithTheSameBits) {
  std::vector<parallel::Shard> straight = make_shards(at::kFloat);
  Optimizer whole(straight, config_);
  run_steps(whole, straight, 1, 8);

  std::vector<parallel::Shard> shards = make_shards(at::kFloat);
  Optimizer first(shards, config_);
  run_steps(first, shards, 1, 5);
  Optimizer second(shards, config_);
  const std::vector<checkpoint::Entry> from = first.state();
  const std::vector<checkpoint::Entry> to = second.state();
  ASSERT_GE(from.size(), shards.size());
  for (size_t i = 0; i < from.size(); ++i) {
    ASSERT_EQ(from[i].name, to[i].name);
    to[i].local.copy_(from[i].local);
  }
  EXPECT_EQ(first.num_steps(), 5);
  second.set_num_steps(first.num_steps());
  run_steps(second, shards, 6, 8);
  for (size_t i = 0; i < shards.size(); ++i) {
    harness::assert_same_bits(shards[i].weights, straight[i].weights, shards[i].name);
  }
}

TEST_P(EveryOptimizer, AShardWithoutGradientStaysWithItsStates) {
  std::vector<parallel::Shard> shards = make_shards(at::kFloat);
  Optimizer optimizer(shards, config_);
  run_steps(optimizer, shards, 1, 1);
  const at::Tensor before = shards[2].weights.clone();
  std::vector<at::Tensor> states;
  for (const auto& entry : optimizer.state()) states.push_back(entry.local.clone());
  for (parallel::Shard& shard : shards) shard.gradient.reset();
  shards[3].gradient = at::ones_like(shards[3].weights);
  optimizer.step(0.1);
  harness::assert_same_bits(shards[2].weights, before, "weights");
  const auto after = optimizer.state();
  for (size_t i = 0; i < after.size(); ++i) {
    if (after[i].name.ends_with(".wide.weight")) continue;
    harness::assert_same_bits(after[i].local, states[i], after[i].name);
  }
}

// The two last experts of five, on the second of two ranks, and their matrices as parameters.
TEST_P(EveryOptimizer, ExpertsAreMatricesOfTheirOwn) {
  const std::vector<int64_t> shape = {5, 6, 4};
  const mesh::Layout stack(shape, {{"expert", 2}, {"tensor", 1}},
                           {mesh::Placement::sharded(0), mesh::Placement::sharded(1)});
  const at::Tensor all = harness::values(shape, 0.3);
  std::vector<parallel::Shard> experts = {
      {.name = "experts.up_proj",
       .weights = all.narrow(0, 3, 2).clone(),
       .layout = mesh::Layout({2, 6, 4}, {{"shard", 1}}).inside(stack, 1)}};
  std::vector<parallel::Shard> matrices;
  for (int64_t e = 3; e < 5; ++e) {
    matrices.push_back({.name = concat("expert", e),
                        .weights = all[e].clone(),
                        .layout = mesh::Layout({6, 4}, {{"shard", 1}})});
  }
  Optimizer first(experts, config_), second(matrices, config_);
  for (int step = 1; step <= 3; ++step) {
    experts[0].gradient = harness::values({2, 6, 4}, 0.7 * step);
    for (int64_t e = 0; e < 2; ++e) matrices[e].gradient = experts[0].gradient[e].contiguous();
    first.step(0.1);
    second.step(0.1);
  }
  for (int64_t e = 0; e < 2; ++e) {
    harness::assert_same_bits(experts[0].weights[e].contiguous(), matrices[e].weights, "weights");
  }
  for (const checkpoint::Entry& entry : first.state()) {
    EXPECT_EQ(entry.layout.whole_shape()[0], 5) << entry.name;
    EXPECT_EQ(entry.layout.whole_box(entry.rank).offset[0], 3) << entry.name;
    EXPECT_EQ(entry.layout.whole_box(entry.rank).size, entry.local.sizes().vec()) << entry.name;
  }
}

TEST_P(EveryOptimizer, AGradientMayBeAViewThatIsNotContiguous) {
  std::vector<parallel::Shard> plain = make_shards(at::kFloat);
  std::vector<parallel::Shard> strided = make_shards(at::kFloat);
  Optimizer first(plain, config_), second(strided, config_);
  plain[3].gradient = gradient_at(1, plain[3], at::kFloat);
  strided[3].gradient = plain[3].gradient.t().contiguous().t();
  first.step(0.1);
  second.step(0.1);
  harness::assert_same_bits(strided[3].weights, plain[3].weights, "weights");
}

// Rank 1 of two owns the matrix; a run on one rank goes on with the same bits.
TEST_P(EveryOptimizer, AStateSavedByItsOwnerLoadsReplicated) {
  const harness::TemporaryFolder folder;
  const std::vector<int64_t> shape = {70, 3};
  const auto make = [&](const std::vector<int64_t>& local_shape, mesh::Layout layout, int rank) {
    return std::vector<parallel::Shard>{{.name = "tall.weight",
                                         .weights = at::ones(local_shape),
                                         .layout = std::move(layout),
                                         .rank = rank}};
  };
  std::vector<checkpoint::Entry> saved;
  harness::run_ranks(2, [&](comm::Communicator& world) {
    const mesh::Layout layout(shape, {{"shard", 2}}, {mesh::Placement::sharded(0, {0, 0, 70})});
    auto shards = make(layout.local_box(world.rank()).size, layout, world.rank());
    Optimizer optimizer(shards, config_);
    run_steps(optimizer, shards, 1, 2);
    const auto entries = optimizer.state();
    checkpoint::save(folder.path(), 2, entries, "{}", world, {.fsync = false});
    if (world.rank() == 1) saved = entries;
  });
  harness::run_ranks(1, [&](comm::Communicator& world) {
    auto shards = make(shape, mesh::Layout(shape, {{"shard", 1}}), 0);
    Optimizer optimizer(shards, config_);
    auto entries = optimizer.state();
    checkpoint::load(*checkpoint::latest(folder.path()), entries, world);
    ASSERT_EQ(entries.size(), saved.size());
    for (size_t i = 0; i < entries.size(); ++i) {
      if (GetParam() != "onebit-lamb") {  // some of its states are zero up to its freeze
        ASSERT_GT(entries[i].local.abs().max().item<float>(), 0);
      }
      harness::assert_same_bits(entries[i].local, saved[i].local, entries[i].name);
    }
  });
}

// Each element's rounding is drawn for its place in the whole stack.
TEST(Optimizer, AnExpertIsRoundedAlikeOnAnyRank) {
  const std::vector<int64_t> shape = {5, 6, 4};
  const at::Tensor all = harness::values(shape, 0.3).to(at::kBFloat16);
  const auto updated = [&](int ranks, int rank) {
    const mesh::Layout stack(shape, {{"expert", ranks}, {"tensor", 1}},
                             {mesh::Placement::sharded(0), mesh::Placement::sharded(1)});
    const mesh::Range own = mesh::split_range(5, ranks, rank);
    std::vector<parallel::Shard> experts = {
        {.name = "experts.up_proj",
         .weights = all.narrow(0, own.offset, own.size).clone(),
         .gradient = harness::values(shape, 0.7).narrow(0, own.offset, own.size),
         .layout = mesh::Layout({own.size, 6, 4}, {{"shard", 1}}).inside(stack, rank)}};
    Optimizer optimizer(experts, {.name = "lion"},
                        {.master_weights = false, .stochastic_rounding = true, .seed = 3});
    optimizer.step(1e-3);
    return experts[0].weights;
  };
  harness::assert_same_bits(at::cat({updated(2, 0), updated(2, 1)}), updated(1, 0), "weights");
}

// Buffers so small that every matrix of the shards below is cut where it may be.
OffloadOptions on_disk(const harness::TemporaryFolder& folder) {
  return {.place = OffloadPlace::kDisk, .folder = folder.path(), .buffer_bytes = 24 << 10};
}

// make_shards(), and matrices and a vector that are longer than a buffer.
std::vector<parallel::Shard> make_long_shards(at::ScalarType dtype) {
  std::vector<parallel::Shard> shards = make_shards(dtype);
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{96, 131}, {9001}, {70, 2048}}) {
    parallel::Shard shard{.name = concat("long", shape.front()),
                          .weights = at::zeros(shape, dtype),
                          .layout = {shape, {{"shard", 1}}}};
    shard.weights = gradient_at(7, shard, dtype);
    shards.push_back(std::move(shard));
  }
  return shards;
}

TEST_P(EveryOptimizer, StatesOnDiskOrHostGiveTheBitsOfStatesInMemory) {
  const harness::TemporaryFolder folder;
  struct Case {
    at::ScalarType dtype;
    WeightOptions weights;
    StateDtype states = StateDtype::kFp32;
  };
  for (const Case& c :
       {Case{at::kFloat, {}}, Case{at::kDouble, {}}, Case{at::kBFloat16, {}}, Case{at::kHalf, {}},
        Case{at::kBFloat16, {.master_weights = false}},
        Case{at::kBFloat16, {.master_weights = false, .stochastic_rounding = true, .seed = 3}},
        Case{at::kFloat, {.seed = 3}, StateDtype::kBf16},
        Case{at::kBFloat16, {}, StateDtype::kBf16}, Case{at::kFloat, {}, StateDtype::kInt8},
        Case{at::kDouble, {}, StateDtype::kInt8}}) {
    OptimizerConfig config = config_;
    config.state_dtype = c.states;
    std::vector<parallel::Shard> expected = make_long_shards(c.dtype);
    Optimizer in_memory(expected, config, c.weights);
    run_steps(in_memory, expected, 1, 4);
    const OffloadOptions host{.place = OffloadPlace::kHost};
    for (const OffloadOptions& offload : {host, on_disk(folder)}) {
      std::vector<parallel::Shard> shards = make_long_shards(c.dtype);
      Optimizer optimizer(shards, config, c.weights, offload);
      EXPECT_EQ(optimizer.state_bytes(), in_memory.state_bytes());
      run_steps(optimizer, shards, 1, 4);
      for (size_t i = 0; i < shards.size(); ++i) {
        harness::assert_same_bits(shards[i].weights, expected[i].weights, shards[i].name);
      }
      const auto entries = optimizer.state(), of_memory = in_memory.state();
      ASSERT_EQ(entries.size(), of_memory.size());
      for (size_t i = 0; i < entries.size(); ++i) {
        ASSERT_EQ(entries[i].name, of_memory[i].name);
        harness::assert_same_bits(
            entries[i].offloaded ? entries[i].offloaded->read() : entries[i].local,
            of_memory[i].local, entries[i].name);
      }
    }
  }
}

TEST_P(EveryOptimizer, ResumesFromDiskIntoMemoryAndBackWithTheSameBits) {
  const harness::TemporaryFolder states, checkpoints;
  const auto dtype = at::kBFloat16;
  std::vector<parallel::Shard> straight = make_long_shards(dtype);
  Optimizer whole(straight, config_);
  run_steps(whole, straight, 1, 6);

  std::vector<parallel::Shard> shards = make_long_shards(dtype);
  for (int part = 0; part < 3; ++part) {  // disk, memory, disk
    Optimizer optimizer(shards, config_, {}, part == 1 ? OffloadOptions{} : on_disk(states));
    harness::run_ranks(1, [&](comm::Communicator& world) {
      auto entries = optimizer.state();
      if (part > 0) {
        checkpoint::load(checkpoints / concat("step-00000", 2 * part), entries, world);
        optimizer.set_num_steps(2 * part);
      }
      run_steps(optimizer, shards, 2 * part + 1, 2 * part + 2);
      checkpoint::save(checkpoints.path(), 2 * part + 2, entries, "{}", world, {.fsync = false});
    });
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    harness::assert_same_bits(shards[i].weights, straight[i].weights, shards[i].name);
  }
  const auto saved = checkpoint::load_global(checkpoints / "step-000006");
  for (const auto& entry : whole.state()) {
    harness::assert_same_bits(saved.at(entry.name), entry.local, entry.name);
  }
}

// A matrix on one rank, and in two parts whose cut lies between rows or, where the rule works on
// elements, within them.
TEST_P(EveryOptimizer, StatesOfFewerBitsAreTheSameInEveryLayout) {
  const std::vector<int64_t> shape = {6, 256};
  const at::Tensor start = harness::values(shape, 0.3);
  std::vector<std::vector<int64_t>> cuts = {{0, 0, 6}, {0, 6, 6}};
  if (!needs_whole_parameters(config_)) cuts.push_back({0, 4, 6});
  for (const StateDtype states : {StateDtype::kBf16, StateDtype::kInt8}) {
    OptimizerConfig config = config_;
    config.state_dtype = states;
    const auto steps = [&](const mesh::Layout& layout, int rank) {
      const mesh::Box box = layout.whole_box(rank);
      const auto part = [&](const at::Tensor& whole) {
        return whole.narrow(0, box.offset[0], box.size[0])
            .narrow(1, box.offset[1], box.size[1])
            .contiguous();
      };
      std::vector<parallel::Shard> shards = {
          {.name = "w", .weights = part(start).clone(), .layout = layout, .rank = rank}};
      Optimizer optimizer(shards, config, {.seed = 5});
      for (int step = 1; step <= 3; ++step) {
        shards[0].gradient = part(harness::values(shape, 0.7 * step));
        optimizer.step(0.1);
      }
      std::vector<at::Tensor> found = {shards[0].weights};
      for (const auto& entry : optimizer.state()) found.push_back(entry.local.clone());
      return found;
    };
    const auto whole = steps(mesh::Layout(shape, {{"shard", 1}}), 0);
    const auto compare = [&](const mesh::Layout& layout, int64_t dim) {
      const auto first = steps(layout, 0), second = steps(layout, 1);
      harness::assert_same_bits(at::cat({first[0], second[0]}, dim), whole[0], "weights");
      for (size_t k = 1; k < whole.size(); ++k) {
        if (first[k].dim() != 2 || needs_whole_parameters(config_)) continue;
        harness::assert_same_bits(at::cat({first[k], second[k]}, dim), whole[k], "a state");
      }
    };
    for (const auto& at : cuts) {
      compare(mesh::Layout(shape, {{"shard", 2}}, {mesh::Placement::sharded(0, at)}), 0);
    }
    if (needs_whole_parameters(config_)) continue;
    compare(mesh::Layout(shape, {{"tensor", 2}}, {mesh::Placement::sharded(1, {0, 64, 256})}), 1);
  }
}

// How far `found` may be from `exact`: half the spacing of int8 below a block's largest number, of
// bf16 one unit in the last place, once for each of two conversions; and four roundings in fp32.
void expect_converted(const at::Tensor& found, const at::Tensor& exact, StateDtype from,
                      StateDtype to) {
  const auto error = [](StateDtype format) {
    return format == StateDtype::kInt8 ? 0.45 / 64 : format == StateDtype::kBf16 ? 1.0 / 128 : 0;
  };
  harness::assert_close(found, exact,
                        (1 + error(from)) * (1 + error(to)) - 1 + 4 * std::ldexp(1.0, -24), 0,
                        "a state");
}

TEST_P(EveryOptimizer, StatesConvertBetweenAllFormats) {
  const harness::TemporaryFolder folder, states;
  constexpr StateDtype kAll[] = {StateDtype::kFp32, StateDtype::kBf16, StateDtype::kInt8};
  const auto wide_values = [](const Optimizer& optimizer) {
    std::map<std::string, at::Tensor> found, scales;
    for (const auto& entry : optimizer.state()) {
      found[entry.name] = entry.offloaded ? entry.offloaded->read() : entry.local;
    }
    std::map<std::string, at::Tensor> values;
    for (const auto& [name, tensor] : found) {
      if (name.find("_scale.") != name.npos) continue;
      const auto dot = name.find('.');
      const auto scale = found.find(name.substr(0, dot) + "_scale" + name.substr(dot));
      values[name] = tensor.to(at::kFloat);
      if (scale == found.end()) continue;
      const bool is_positive = name.starts_with("exp_avg_sq") || name.starts_with("variance");
      decode_blocks(tensor, scale->second, values[name], is_positive);
    }
    return values;
  };
  for (const StateDtype from : kAll) {
    OptimizerConfig config = config_;
    config.state_dtype = from;
    std::vector<parallel::Shard> shards = make_long_shards(at::kBFloat16);
    Optimizer saved(shards, config);
    run_steps(saved, shards, 1, 2);
    const auto expected = wide_values(saved);
    harness::run_ranks(1, [&](comm::Communicator& world) {
      const auto entries = saved.state();
      checkpoint::save(folder.path(), static_cast<int64_t>(from) + 1, entries, "{}", world,
                       {.fsync = false});
    });
    const auto path = folder / concat("step-00000", static_cast<int>(from) + 1);
    std::map<std::string, at::ScalarType> dtypes;
    for (const auto& [name, tensor] : checkpoint::load_global(path)) {
      dtypes[name] = tensor.scalar_type();
    }
    for (const StateDtype to : kAll) {
      for (const OffloadOptions& offload : {OffloadOptions{}, on_disk(states)}) {
        config.state_dtype = to;
        Optimizer optimizer(shards, config, {}, offload);
        auto load = optimizer.state_from([&](const std::string& name) {
          const auto found = dtypes.find(name);
          return found == dtypes.end() ? std::nullopt : std::optional(found->second);
        });
        harness::run_ranks(
            1, [&](comm::Communicator& world) { checkpoint::load(path, load.entries, world); });
        load.finish();
        const auto found = wide_values(optimizer);
        ASSERT_EQ(found.size(), expected.size());
        for (const auto& [name, exact] : expected) {
          if (exact.numel() > 0) expect_converted(found.at(name), exact, from, to);
          if (from == to) harness::assert_same_bits(found.at(name), exact, name);
        }
      }
    }
  }
}

TEST_P(EveryOptimizer, OnDiskAShardWithoutGradientStaysWithItsStates) {
  const harness::TemporaryFolder folder;
  std::vector<parallel::Shard> on = make_long_shards(at::kFloat);
  std::vector<parallel::Shard> off = make_long_shards(at::kFloat);
  Optimizer with(on, config_, {}, on_disk(folder)), without(off, config_);
  run_steps(with, on, 1, 2);
  run_steps(without, off, 1, 2);
  for (const size_t present : {0, 3, 9, 10}) {
    for (auto* shards : {&on, &off}) {
      for (parallel::Shard& shard : *shards) shard.gradient.reset();
      (*shards)[present].gradient = gradient_at(3, (*shards)[present], at::kFloat);
    }
    with.step(0.1);
    without.step(0.1);
  }
  for (size_t i = 0; i < on.size(); ++i) {
    harness::assert_same_bits(on[i].weights, off[i].weights, on[i].name);
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, EveryOptimizer, ::testing::ValuesIn(optimizer_names()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(Optimizer, StatesAreNamedAfterTheirParameter) {
  const std::vector<parallel::Shard> shards = make_shards(at::kDouble);
  const auto entries = Optimizer(shards, {.name = "adamw"}).state();
  ASSERT_EQ(entries.size(), 2 * shards.size());
  EXPECT_EQ(entries[6].name, "exp_avg.wide.weight");
  EXPECT_EQ(entries[7].name, "exp_avg_sq.wide.weight");
  EXPECT_EQ(entries[7].local.sizes(), shards[3].weights.sizes());
  EXPECT_EQ(entries[7].local.scalar_type(), at::kDouble);
}

TEST(Optimizer, RulesThatNeedNormsOrMatricesNeedWholeParameters) {
  for (const char* name : {"adamw", "sgd", "lion"}) {
    EXPECT_FALSE(needs_whole_parameters({.name = name})) << name;
  }
  for (const char* name : {"adafactor", "muon", "lamb", "lars"}) {
    EXPECT_TRUE(needs_whole_parameters({.name = name})) << name;
  }
}

TEST(Optimizer, GroupsOfTheConfigReachTheParametersTheyName) {
  std::vector<parallel::Shard> shards = make_shards(at::kFloat);
  const std::vector<parallel::Shard> start = make_shards(at::kFloat);
  Optimizer optimizer(shards, {.name = "sgd", .momentum = 0, .groups = "bias: rate=0"});
  run_steps(optimizer, shards, 1, 1);
  harness::assert_same_bits(shards[1].weights, start[1].weights, "bias");
  EXPECT_FALSE(at::equal(shards[2].weights, start[2].weights));
  EXPECT_THROW(Optimizer(shards, {.groups = "nothing: rate=0"}), ConfigError);
}

TEST(Optimizer, AGradientOfAnotherShapeIsABug) {
  std::vector<parallel::Shard> shards = make_shards(at::kFloat);
  Optimizer optimizer(shards, {.name = "adamw"});
  shards[0].gradient = at::ones({2});
  EXPECT_THROW(optimizer.step(0.1), InternalError);
}

}  // namespace
}  // namespace trireme::train
