#include "trireme/spmd/delayed_tensors.h"

#include <ATen/Functions.h>
#include <torch/nn.h>

#include <gtest/gtest.h>

#include "tests/harness/live_bytes.h"
#include "tests/harness/ranks.h"
#include "tests/spmd/annotated_modules.h"
#include "tests/spmd/placed_cases.h"

namespace trireme::spmd {
namespace {

using namespace spmd_test;
namespace nn = torch::nn;

// What make() gives, with and without delay, under one seed.
template <typename Make>
void expect_same(const Make& make) {
  harness::run_ranks(1, [&](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 1}});
    at::manual_seed(3);
    const Tensors expected = make();
    DelayedTensors delayed(std::make_shared<Grid>(mesh));
    at::manual_seed(3);
    Tensors found;
    delayed.record([&] { found = make(); });
    delayed.finish([](const PlacedMeta&) { return std::nullopt; });
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].sizes(), expected[i].sizes()) << i;
      EXPECT_TRUE(at::equal(whole_of(found[i]), expected[i])) << i;
    }
  });
}

TEST(DelayedTensors, HaveTheValuesOfTensorsMadeAtOnce) {
  const at::NoGradGuard no_gradient;
  expect_same([]() -> Tensors {
    at::Tensor a = at::empty({3, 4}), b = at::empty({5});
    nn::init::kaiming_uniform_(a);
    b.normal_();
    a.select(0, 1).fill_(2);
    return {a, b, at::randn({2, 2}) * 3, at::zeros({3}), at::full({2}, 4.0), b.to(at::kDouble)};
  });
}

TEST(DelayedTensors, ValuesThatAreNeededAtOnceAreMade) {
  const at::NoGradGuard no_gradient;
  expect_same([]() -> Tensors {
    const at::Tensor a = at::rand({4, 4}), b = at::rand({3});
    const at::Tensor scaled = b * a.sum().item<double>();
    const at::Tensor joined = at::cat({a, at::ones({2, 4})});
    const at::Tensor found = at::nonzero(a > 0.5), plain = at::rand({3});
    return {a, scaled, joined, found.to(at::kFloat), plain, at::randperm(5), at::arange(4)};
  });
}

TEST(DelayedTensors, LinearLayersTakeTurnsInMemory) {
  harness::run_ranks(4, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 4}});
    const auto live = std::make_shared<harness::LiveBytes>();
    constexpr int64_t kWidth = 256, kLayer = kWidth * kWidth * 4;
    const auto grid = std::make_shared<Grid>(mesh);
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
    DelayedTensors delayed(grid);
    nn::Sequential net;
    delayed.record([&] {
      for (int i = 0; i < 8; ++i) net->push_back(nn::Linear(kWidth, kWidth));
    });
    EXPECT_LT(live->peak(), kLayer / 4);
    delayed.finish([](const PlacedMeta&) { return Places{Place::sharded(0)}; });
    // Two of eight layers lie in this rank's blocks; one whole and its block beside them.
    EXPECT_LT(live->peak(), 4 * kLayer);
    EXPECT_EQ(placed(net->parameters()[0])->local.size(0), kWidth / 4);
  });
}

TEST(DelayedTensors, AViewOfASplitParameterIsRefused) {
  harness::run_ranks(2, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 2}});
    DelayedTensors delayed(std::make_shared<Grid>(mesh));
    at::Tensor whole, row;
    delayed.record([&] {
      whole = at::ones({4, 4});
      row = whole.select(0, 1);
    });
    const std::string error = error_of([&] {
      delayed.finish([&](const PlacedMeta& meta) -> std::optional<Places> {
        if (&meta == placed(whole)) return Places{Place::sharded(0)};
        return std::nullopt;
      });
    });
    EXPECT_NE(error.find("make() keeps a view of"), std::string::npos) << error;
  });
}

}  // namespace
}  // namespace trireme::spmd
