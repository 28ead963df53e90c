#include "trireme/spmd/annotate.h"

#include <torch/nn.h>
#include <torch/optim.h>

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/spmd/annotated_modules.h"
#include "tests/spmd/placed_cases.h"
#include "trireme/base/error.h"

namespace trireme::spmd {
namespace {

using namespace spmd_test;
namespace nn = torch::nn;

struct TwoLayers : nn::Module {
  nn::Linear fc1{nullptr}, fc2{nullptr};

  TwoLayers() {
    fc1 = register_module("fc1", nn::Linear(6, 10));
    fc2 = register_module("fc2", nn::Linear(10, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return fc2(at::gelu(fc1(x))); }
};

std::shared_ptr<TwoLayers> make_net() {
  auto net = std::make_shared<TwoLayers>();
  net->to(torch::kDouble);
  return net;
}

const Annotations kNotes = {
    .parameters = {{"fc1.*", split(0, "tensor")}, {"fc2.weight", split(1, "tensor")}},
    .inputs = {{"x", split(0, "data")}},
    .outputs = {{"y", split(0, "data")}},
    .seed = 5};

TEST(Annotate, LayoutsNeedNoRanks) {
  std::shared_ptr<TwoLayers> net;
  const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  const std::vector<NamedSizes> tensors = named_sizes([&] {
    net = make_net();
    return net.get();
  });
  EXPECT_TRUE(at::equal(state, at::detail::getDefaultCPUGenerator().get_state()));
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors[0].name, "fc1.weight");
  const auto layouts = layouts_of(kNotes, tensors, {{"tensor", 3}});
  EXPECT_EQ(layouts[0].local_box(1).size, (std::vector<int64_t>{3, 6}));
  EXPECT_EQ(layouts[2].local_box(1).size, (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(layouts[3].owner(2), 0);
  Annotations wrong = kNotes;
  wrong.parameters[0].name = "fc3.*";
  EXPECT_NE(error_of([&] { layouts_of(wrong, tensors, {}); }).find("matches no parameter"),
            std::string::npos);
}

TEST(Annotate, EachRankHasItsBlocksOfOneRanksValues) {
  at::manual_seed(5);
  const auto whole = make_net();
  const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  harness::run_ranks(4, [&](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"data", 2}, {"tensor", 2}});
    auto net = annotate(mesh, kNotes, make_net);
    EXPECT_FALSE(net.tensors().was_whole());
    EXPECT_TRUE(net.report().empty());
    for (const auto& item : net->named_parameters()) {
      const PlacedMeta* meta = placed(item.value());
      ASSERT_NE(meta, nullptr);
      EXPECT_EQ(*meta->parameter, item.key());
      EXPECT_TRUE(at::equal(whole_of(item.value()), whole->named_parameters()[item.key()]));
    }
    EXPECT_EQ(placed(net->fc1->weight)->local.sizes(), (at::IntArrayRef{5, 6}));
    EXPECT_EQ(placed(net->fc2->weight)->local.sizes(), (at::IntArrayRef{3, 5}));
    EXPECT_EQ(placed(net->fc2->bias)->local.sizes(), (at::IntArrayRef{3}));
  });
  EXPECT_TRUE(at::equal(state, at::detail::getDefaultCPUGenerator().get_state()));
}

TEST(Annotate, AModuleThatReadsItsValuesIsMadeWhole) {
  const auto make = [] {
    auto net = make_net();
    const at::NoGradGuard no_gradient;
    net->fc1->weight.data_ptr<double>()[0] = 42;
    return net;
  };
  harness::run_ranks(2, [&](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"data", 1}, {"tensor", 2}});
    auto net = annotate(mesh, kNotes, make);
    EXPECT_TRUE(net.tensors().was_whole());
    EXPECT_EQ(whole_of(net->fc1->weight)[0][0].item<double>(), 42);
    EXPECT_EQ(placed(net->fc1->weight)->local.size(0), 5);
  });
}

// The mask is a function of the seed and of the place in the whole tensor.
TEST(Annotate, DropsTheSameElementsHoweverTheyAreSplit) {
  const auto dropped = [](const std::vector<mesh::Axis>& axes, int ranks, uint64_t seed) {
    at::Tensor result;
    harness::run_ranks(ranks, [&](comm::Communicator& world) {
      const mesh::DeviceMesh mesh(world, axes);
      const Annotations notes{.inputs = {{"x", split(0, "data")}}, .seed = seed};
      auto net = annotate(
          mesh, notes, [] { return std::make_shared<nn::DropoutImpl>(nn::DropoutOptions(0.5)); });
      const at::Tensor y = net.forward(at::ones({6, 8}, at::kDouble));
      const at::Tensor whole = whole_of(y);
      if (world.rank() == 0) result = whole;
    });
    return result;
  };
  const at::Tensor one = dropped({{"data", 1}, {"tensor", 1}}, 1, 5);
  EXPECT_GT(one.eq(0).sum().item<int64_t>(), 0);
  EXPECT_GT(one.eq(2).sum().item<int64_t>(), 0);
  EXPECT_TRUE(at::equal(one, dropped({{"data", 3}, {"tensor", 1}}, 3, 5)));
  EXPECT_TRUE(at::equal(one, dropped({{"data", 2}, {"tensor", 2}}, 4, 5)));
  EXPECT_FALSE(at::equal(one, dropped({{"data", 1}, {"tensor", 1}}, 1, 6)));
}

// Gradients of two backwards and four steps of Adam.
TEST(Annotate, TrainsWithTorchsOptimizerAsOneRankDoes) {
  const at::Tensor x = values({5, 6}, 0.2), target = values({5, 3}, 0.7);
  const auto train = [&](auto& forward, nn::Module& module) {
    torch::optim::Adam optimizer(module.parameters(), torch::optim::AdamOptions(0.01));
    std::vector<double> losses;
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      for (int micro = 0; micro < 2; ++micro) {
        const at::Tensor loss = (forward(x * (1.0 + micro)) - target).square().sum();
        loss.backward();
        losses.push_back(whole_of(loss).item<double>());
      }
      optimizer.step();
    }
    return losses;
  };
  at::manual_seed(5);
  const auto whole = make_net();
  const auto run_whole = [&](const at::Tensor& input) { return whole->forward(input); };
  const std::vector<double> expected = train(run_whole, *whole);
  harness::run_ranks(4, [&](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"data", 2}, {"tensor", 2}});
    auto net = annotate(mesh, kNotes, make_net);
    const auto run = [&](const at::Tensor& input) { return net.forward(input); };
    const std::vector<double> found = train(run, net.module());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-9);
    for (const auto& item : net->named_parameters()) {
      EXPECT_EQ(placed(item.value().grad())->places, placed(item.value())->places) << item.key();
    }
    const std::vector<Move> report = net.report();
    const auto has = [&](const std::string& operation) {
      return std::ranges::any_of(
          report, [&](const Move& move) { return move.operation == operation && move.bytes > 0; });
    };
    EXPECT_TRUE(has("gradient of fc2.bias")) << to_table(report);
    EXPECT_NE(to_table(report).find("fc2"), std::string::npos);
  });
}

TEST(Annotate, RanksGiveTheirOwnRows) {
  const at::Tensor x = values({5, 6}, 0.2);
  at::manual_seed(5);
  const at::Tensor expected = make_net()->forward(x).detach();
  harness::run_ranks(2, [&](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"data", 2}, {"tensor", 1}});
    auto net = annotate(mesh, kNotes, make_net);
    const at::Tensor rows = world.rank() == 0 ? x.narrow(0, 0, 1) : x.narrow(0, 1, 4);
    const at::Tensor y = net.forward(net.local_input("x", rows));
    EXPECT_TRUE(at::allclose(whole_of(y), expected, 0, 1e-12));
    EXPECT_NE(error_of([&] { net.local_input("z", rows); }).find("\"z\" is no annotated input"),
              std::string::npos);
  });
}

// What annotate() says of other annotations.
std::string refusal(const Annotations& notes) {
  std::string error;
  harness::run_ranks(2, [&](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 2}});
    const std::string own = error_of([&] { annotate(mesh, notes, make_net); });
    EXPECT_EQ(own.find('\n'), std::string::npos);
    if (world.rank() == 0) error = own;
  });
  return error;
}

TEST(Annotate, PatternsThatDoNotFitAreRefused) {
  EXPECT_EQ(refusal({.parameters = {{"fc1.wieght", split(0, "tensor")}}}),
            "the pattern \"fc1.wieght\" matches no parameter; the nearest name is \"fc1.weight\"");
  EXPECT_EQ(
      refusal({.parameters = {{"fc1.*", split(0, "tensor")}, {"*.bias", split(0, "tensor")}}}),
      "two patterns match the parameter fc1.bias: \"fc1.*\" and \"*.bias\"; change one of them");
  EXPECT_EQ(
      refusal({.parameters = {{"fc1.bias", split(1, "tensor")}}}),
      "parameter \"fc1.bias\" is split in dimension 1 on \"tensor\", but it has 1 dimensions; "
      "expected one from -1 to 0");
  EXPECT_NE(refusal({.parameters = {{"fc1.bias", partial("tensor")}}}).find("a partial sum"),
            std::string::npos);
}

TEST(Annotate, AnnotationsOfTensorsThatForwardLacksAreRefused) {
  harness::run_ranks(2, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 2}});
    auto net = annotate(mesh, {.inputs = {{"x", {}}, {"mask", {}}}}, make_net);
    EXPECT_EQ(error_of([&] {
                net.forward(values({2, 6}, 0.1));
              }),
              "annotations have 2 inputs, the last \"mask\"; forward() has 1 tensors there");
  });
}

TEST(Annotate, RanksThatDisagreeAreRefused) {
  EXPECT_THROW(
      harness::run_ranks(
          2,
          [](comm::Communicator& world) {
            const mesh::DeviceMesh mesh(world, {{"tensor", 2}});
            const int dim = world.rank();
            annotate(mesh, {.parameters = {{"fc1.weight", split(dim, "tensor")}}}, make_net);
          }),
      ConfigError);
}

struct Inverse : nn::Module {
  nn::Linear fc{nullptr};
  bool reads = false;

  explicit Inverse(bool reads) : reads(reads) { fc = register_module("fc", nn::Linear(4, 4)); }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = fc(x);
    if (reads) return y * y.sum().item<double>();
    return at::linalg_inv(y);
  }
};

TEST(Annotate, AnErrorNamesTheModule) {
  harness::run_ranks(2, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 2}});
    const Annotations notes = {.parameters = {{"0.fc.weight", split(0, "tensor")}}};
    const auto error = [&](bool reads) {
      auto net =
          annotate(mesh, notes, [&] { return nn::Sequential(std::make_shared<Inverse>(reads)); });
      return error_of([&] { net.forward(at::ones({4, 4})); });
    };
    const std::string unknown = error(false), item = error(true);
    EXPECT_EQ(unknown.find("module 0.fc: no rule says how to split aten::"), 0u) << unknown;
    EXPECT_NE(unknown.find("sharded(1)"), std::string::npos) << unknown;
    EXPECT_NE(unknown.find("call it within local_map()"), std::string::npos) << unknown;
    EXPECT_EQ(item.find("module 0.fc: item() on a tensor placed [tensor: partial]"), 0u) << item;
  });
}

}  // namespace
}  // namespace trireme::spmd
