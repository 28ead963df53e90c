#include "trireme/spmd/emulate/emulated_ranks.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/spmd/placed_cases.h"
#include "trireme/base/error.h"

namespace trireme::spmd {
namespace {

using namespace spmd_test;

using Runner = std::function<void(int, const std::function<void(comm::Communicator&)>&)>;

// Each rank's block of the result and of the gradients, of a program whose tensors lie as `draws`
// says.
std::vector<Tensors> blocks(const Runner& run, uint64_t draws, at::ScalarType type) {
  std::vector<Tensors> all(4);
  run(4, [&](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"data", 2}, {"tensor", 2}});
    const auto grid = std::make_shared<Grid>(mesh);
    grid->random() = {.seed = 3, .stream = 0};
    harness::Draw draw(draws);
    Tensors leaves;
    for (const auto& sizes : std::vector<std::vector<int64_t>>{{3, 4, 6}, {5, 6}, {5}, {5}}) {
      const at::Tensor whole = values(sizes, 0.2 + static_cast<double>(leaves.size())).to(type);
      leaves.push_back(place_whole(grid, whole, drawn_places(draw, *grid, sizes)).requires_grad_());
    }
    const at::Tensor hidden = at::dropout(at::linear(leaves[0], leaves[1]).tanh(), 0.2, true);
    const at::Tensor y = at::layer_norm(hidden, {5}, leaves[2], leaves[3]).softmax(1);
    Tensors found = torch::autograd::grad({(y * y).sum()}, leaves);
    found.push_back(y.detach());
    for (const at::Tensor& tensor : found) all[world.rank()].push_back(placed(tensor)->local);
  });
  return all;
}

TEST(EmulatedRanks, GiveTheBitsOfRanksThatCommunicate) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (uint64_t draws = 0; draws < 12; ++draws) {
      const auto real =
          blocks([](int size, const auto& rank) { harness::run_ranks(size, rank); }, draws, type);
      const auto emulated = blocks(emulate_ranks, draws, type);
      for (size_t rank = 0; rank < real.size(); ++rank) {
        ASSERT_EQ(real[rank].size(), emulated[rank].size());
        for (size_t i = 0; i < real[rank].size(); ++i) {
          EXPECT_TRUE(at::equal(real[rank][i], emulated[rank][i]))
              << "rank " << rank << ", tensor " << i << ", draws " << draws;
        }
      }
    }
  }
}

TEST(EmulatedRanks, TakeTurnsInTheSameOrder) {
  const auto order = [] {
    std::vector<int> turns;
    emulate_ranks(3, [&](comm::Communicator& world) {
      turns.push_back(world.rank());
      world.barrier()->wait();
      turns.push_back(world.rank());
    });
    return turns;
  };
  EXPECT_EQ(order(), (std::vector<int>{0, 1, 2, 2, 0, 1}));
  EXPECT_EQ(order(), order());
}

TEST(EmulatedRanks, CarryOutEveryCollective) {
  emulate_ranks(3, [](comm::Communicator& world) {
    const int rank = world.rank();
    at::Tensor data = at::full({2}, rank + 1.0);
    world.all_reduce(data, {.operation = comm::ReduceOp::kMax})->wait();
    EXPECT_TRUE(at::equal(data, at::full({2}, 3.0)));
    at::Tensor sum = at::full({2}, rank + 1.0);
    world.reduce(sum, 1)->wait();
    EXPECT_EQ(sum[0].item<double>(), rank == 1 ? 6 : rank + 1);
    world.broadcast(sum, 1)->wait();
    EXPECT_EQ(sum[0].item<double>(), 6);
    at::Tensor part = at::empty({1});
    world
        .scatter(
            part,
            rank == 0 ? Tensors{at::ones({1}), at::full({1}, 2.), at::full({1}, 3.)} : Tensors{}, 0)
        ->wait();
    EXPECT_EQ(part.item<double>(), rank + 1);
    Tensors parts;
    for (int i = 0; i < 3; ++i) parts.push_back(at::empty({1}));
    world.gather(rank == 2 ? parts : Tensors{}, part, 2)->wait();
    if (rank == 2) EXPECT_EQ(at::cat(parts).sum().item<double>(), 6);
    const auto half = world.split(rank == 1 ? 0 : 1, -rank, "half");
    EXPECT_EQ(half->size(), rank == 1 ? 1 : 2);
    EXPECT_EQ(half->rank(), rank == 0 ? 1 : 0);
    at::Tensor count = at::ones({1});
    half->all_reduce(count)->wait();
    EXPECT_EQ(count.item<double>(), half->size());
    EXPECT_EQ(world.split(-1, 0, "none"), nullptr);
  });
}

TEST(EmulatedRanks, EndInOneLineWhereRanksWouldHang) {
  const std::string waits = error_of([] {
    emulate_ranks(2, [](comm::Communicator& world) {
      if (world.rank() == 1) world.barrier()->wait();
    });
  });
  EXPECT_NE(waits.find("rank 0 has ended, rank 1 waits in barrier"), std::string::npos) << waits;
  const std::string differ = error_of([] {
    emulate_ranks(2, [](comm::Communicator& world) {
      at::Tensor data = at::zeros({2 + world.rank()});
      world.all_reduce(data)->wait();
    });
  });
  EXPECT_NE(differ.find("call different operations"), std::string::npos) << differ;
  const std::string failed = error_of([] {
    emulate_ranks(2, [](comm::Communicator& world) {
      if (world.rank() == 1) throw ConfigError("too bad");
      world.barrier()->wait();
    });
  });
  EXPECT_EQ(failed, "too bad");
  EXPECT_THROW(
      emulate_ranks(2, [](comm::Communicator& world) { world.send(at::ones({1}), 0)->wait(); }),
      ConfigError);
}

}  // namespace
}  // namespace trireme::spmd
