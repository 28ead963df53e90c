// The code of docs/guide/annotate.md, which is what stands between the lines of this file.
#include <torch/nn.h>

#include <gtest/gtest.h>

#include "tests/harness/guide_code.h"
#include "tests/harness/ranks.h"
#include "tests/spmd/annotated_modules.h"
#include "tests/spmd/placed_cases.h"
#include "trireme/spmd/annotate.h"
#include "trireme/spmd/local_map.h"

namespace trireme::spmd {
namespace {

using namespace spmd_test;

TEST(AnnotateGuide, HasTheCodeOfThisTest) {
  harness::expect_code_of(TRIREME_ANNOTATE_GUIDE, TRIREME_SOURCE_DIR "/tests/spmd/guide_test.cc",
                          40);
}

// The module on data x tensor ranks beside the same on one rank.
void expect_one_ranks_results(const std::string& name, const Annotations& notes) {
  const auto each = std::ranges::find(module_cases(), name, &ModuleCase::name);
  ASSERT_NE(each, module_cases().end());
  const ModuleResult expected = each->run(nullptr, notes);
  harness::run_ranks(4, [&](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"data", 2}, {"tensor", 2}});
    const ModuleResult found = each->run(&mesh, notes);
    EXPECT_TRUE(at::allclose(found.y, expected.y, 0, 1e-10));
    for (const auto& [parameter, gradient] : expected.gradients)
      EXPECT_TRUE(at::allclose(found.gradients.at(parameter), gradient, 0, 1e-10)) << parameter;
  });
}

TEST(AnnotateGuide, Transformer) {
  const Annotations transformer = {
      .parameters = {{"*[qkv].*", split(0, "tensor")},   // whole heads on each rank
                     {"*o.weight", split(1, "tensor")},  // their sum: one all-reduce
                     {"*up.*", split(0, "tensor")},
                     {"*down.weight", split(1, "tensor")}},  // another
      .inputs = {{"x", split(0, "data")}},
      .outputs = {{"y", split(0, "data")}}};
  expect_one_ranks_results("TransformerBlock", transformer);
}

TEST(AnnotateGuide, UNet) {
  const Annotations unet = {.parameters = {{"in.*", split(0, "tensor")},          // output channels
                                           {"down.weight", split(1, "tensor")}},  // input channels
                            .inputs = {{"image", split(0, "data")}},
                            .outputs = {{"noise", split(0, "data")}}};
  expect_one_ranks_results("UNetPiece", unet);
}

TEST(AnnotateGuide, Recurrent) {
  const Annotations lstm = {
      .inputs = {{"x", split(0, "data").split(0, "tensor")}},  // sequences on all ranks
      .outputs = {{"state", split(0, "data").split(0, "tensor")}}};
  expect_one_ranks_results("Recurrent", lstm);
}

TEST(AnnotateGuide, Recommend) {
  const Annotations dlrm = {.parameters = {{"table.weight", split(0, "tensor")}},  // rows
                            .inputs = {{"numbers", split(0, "data")}, {"ids", split(0, "data")}},
                            .outputs = {{"click", split(0, "data")}}};
  expect_one_ranks_results("PairModel", dlrm);
}

struct Net : torch::nn::Module {
  explicit Net(int64_t width) {
    fc1 = register_module("fc1", torch::nn::Linear(width, 4 * width));
    fc2 = register_module("fc2", torch::nn::Linear(4 * width, width));
  }
  at::Tensor forward(const at::Tensor& x) { return x + fc2(torch::gelu(fc1(x))); }
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};

TEST(AnnotateGuide, FirstExample) {
  harness::run_ranks(4, [](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"data", 2}, {"tensor", 2}});
    const Annotations notes = {
        .parameters = {{"fc1.*", split(0, "tensor")}, {"fc2.weight", split(1, "tensor")}},
        .inputs = {{"x", split(0, "data")}},
        .outputs = {{"y", split(0, "data")}},
        .seed = 1};
    auto net = annotate(mesh, notes, [] { return std::make_shared<Net>(64); });

    const at::Tensor x = torch::ones({8, 64});  // the same on every rank
    const at::Tensor y = net.forward(x);
    y.square().sum().backward();
    const at::Tensor whole = whole_of(y);
    EXPECT_EQ(whole.sizes(), x.sizes());
    EXPECT_EQ(placed(y)->local.size(0), 4);

    // Each rank has its own rows, and may have more or fewer than others.
    const at::Tensor rows = torch::ones({3 + mesh.coordinate("data"), 64});
    const at::Tensor z = net.forward(net.local_input("x", rows));
    EXPECT_EQ(z.size(0), 7);

    const std::string table = to_table(net.report());
    EXPECT_NE(table.find("gradient of fc2.bias"), std::string::npos);

    // The inverse of each rank's matrices.
    const auto inverse = local_map([](const at::Tensor& block) { return at::linalg_inv(block); },
                                   {split(0, "data")}, {split(0, "data")});
    const at::Tensor matrices = place_whole(net.grid(), torch::eye(3).repeat({4, 1, 1}), {});
    EXPECT_TRUE(at::allclose(whole_of(inverse(matrices)), torch::eye(3).repeat({4, 1, 1})));
  });
}

}  // namespace
}  // namespace trireme::spmd
