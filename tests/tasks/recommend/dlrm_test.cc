#include "trireme/tasks/recommend/recommend_network.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"

namespace trireme::tasks::inline internal {
namespace {

RecommendProblem problem(RecommendFamily family, int num_dense, int num_tables) {
  RecommendProblem problem;
  problem.config.model = {
      .family = family, .width = 4, .bottom = "5", .top = "6", .cross_layers = 2, .cross_rank = 3};
  problem.schema.dense.resize(static_cast<size_t>(num_dense), "d");
  problem.schema.tables.resize(static_cast<size_t>(num_tables));
  problem.schema.label = dataset::LabelKind::kBinary;
  return problem;
}

at::Tensor mlp(const torch::OrderedDict<std::string, at::Tensor>& p, const std::string& name,
               at::Tensor x, bool ends_with_relu) {
  for (const char* const layer : {".layers.0.", ".layers.1."}) {
    x = at::mm(x, p[name + layer + "weight"].t()) + p[name + layer + "bias"];
    if (ends_with_relu || layer[8] == '0') x = x.clamp_min(0);
  }
  return x;
}

// The paper's forward, one pair of vectors at a time.
TEST(Dlrm, HasItsPapersForward) {
  for (const int num_dense : {0, 3}) {
    Dlrm dlrm(problem(RecommendFamily::kDlrm, num_dense, 3));
    dlrm.to(at::kDouble);
    draw_values(dlrm, 1);
    const auto p = dlrm.named_parameters();
    const Samples in{
        .dense_BF = num_dense > 0 ? at::randn({7, num_dense}, at::kDouble) : at::Tensor(),
        .embedded_BW = at::randn({7, 12}, at::kDouble)};
    std::vector<at::Tensor> vectors = in.embedded_BW.split(4, 1), columns;
    if (num_dense > 0) {
      vectors.insert(vectors.begin(), mlp(p, "bottom", in.dense_BF, true));
      columns.push_back(vectors[0]);
    }
    for (size_t i = 0; i < vectors.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        columns.push_back((vectors[i] * vectors[j]).sum(1, /*keepdim=*/true));
      }
    }
    const at::Tensor expected = mlp(p, "top", at::cat(columns, 1), false);
    harness::assert_close(dlrm.forward(in).detach(), expected.detach(), 1e-13, 1e-14, "logits");
  }
}

TEST(Dlrm, CrossesAllVectorsInDcnV2) {
  Dlrm dlrm(problem(RecommendFamily::kDlrmDcnV2, 3, 2));
  dlrm.to(at::kDouble);
  draw_values(dlrm, 1);
  const auto p = dlrm.named_parameters();
  const Samples in{.dense_BF = at::randn({7, 3}, at::kDouble),
                   .embedded_BW = at::randn({7, 8}, at::kDouble)};
  const at::Tensor x0 = at::cat({mlp(p, "bottom", in.dense_BF, true), in.embedded_BW}, 1);
  at::Tensor x = x0;
  for (const char* const i : {"0", "1"}) {
    const at::Tensor thin = at::mm(x, p[std::string("cross.down.") + i + ".weight"].t());
    const std::string up = std::string("cross.up.") + i;
    x = x0 * (at::mm(thin, p[up + ".weight"].t()) + p[up + ".bias"]) + x;
  }
  harness::assert_close(dlrm.forward(in).detach(), mlp(p, "top", x, false).detach(), 1e-13, 1e-14,
                        "logits");
  EXPECT_EQ(dlrm.flops(), 2 * (3 * 5 + 5 * 4) + 2 * 2 * (12 * 3 + 3 * 12) + 2 * (12 * 6 + 6));
}

TEST(Dlrm, TakesNoSamples) {
  Dlrm dlrm(problem(RecommendFamily::kDlrm, 3, 2));
  EXPECT_EQ(dlrm.forward({at::empty({0, 3}), at::empty({0, 8})}).sizes(), at::IntArrayRef({0, 1}));
}

}  // namespace
}  // namespace trireme::tasks::inline internal
