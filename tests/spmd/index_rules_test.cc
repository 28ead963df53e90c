// Look-ups and writes at indices, embeddings in bags, order statistics, and operators on elements
// that rules_test.cc has not, beside the same on one rank.
#include <ATen/Functions.h>
#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>

#include <gtest/gtest.h>

#include "tests/spmd/placed_cases.h"

namespace trireme::spmd {
namespace {

using namespace spmd_test;
using at::indexing::Slice;
using T = const Tensors&;

at::Tensor bags(T x, int64_t mode, bool weighted = false, int64_t padding = -1) {
  static const at::Tensor indices = at::tensor({3, 0, 4, 2, 1, 3, 6}, at::kLong);
  static const at::Tensor offsets = at::tensor({0, 2, 2, 5}, at::kLong);
  const auto weights = weighted ? std::optional<at::Tensor>(x[1]) : std::nullopt;
  return std::get<0>(
      at::embedding_bag(x[0], indices, offsets, false, mode, false, weights, false, padding));
}

const std::vector<OperatorCase>& index_cases() {
  static const at::Tensor ids = at::tensor({3, 0, 4, 2, 3}, at::kLong);
  static const at::Tensor table = at::tensor({3, 0, 4, 2, 1, 3}, at::kLong).view({2, 3});
  static const at::Tensor columns = at::tensor({0, 2, 1, 0, 2}, at::kLong);
  static const at::Tensor mask = at::tensor({1, 0, 1, 1, 0}, at::kLong).to(at::kBool);
  static const std::vector<OperatorCase> all = {
      {"embedding_bag, sum", {{7, 4}}, [](T x) { return bags(x, 0); }},
      {"embedding_bag, mean", {{7, 4}}, [](T x) { return bags(x, 1); }},
      {"embedding_bag, max", {{7, 4}}, [](T x) { return bags(x, 2); }},
      {"embedding_bag, padding", {{7, 4}}, [](T x) { return bags(x, 1, false, 3); }},
      {"embedding_bag, weights", {{7, 4}, {7}}, [](T x) { return bags(x, 0, true); }},
      {"embedding, padding", {{5, 4}}, [](T x) { return at::embedding(x[0], table, 3); }},
      {"index, rows", {{5, 3, 2}}, [](T x) { return x[0].index({ids}); }},
      {"index, a table", {{5, 3}}, [](T x) { return x[0].index({table}); }},
      {"index, columns",
       {{4, 5, 3}},
       [](T x) {
         return x[0].index({Slice(), ids});
       }},
      {"index, both",
       {{5, 3, 2}},
       [](T x) {
         return x[0].index({ids, columns});
       }},
      {"index, apart",
       {{5, 4, 3}},
       [](T x) {
         return x[0].index({ids, Slice(), columns});
       }},
      {"index, a mask", {{5, 3}}, [](T x) { return x[0].index({mask}); }},
      {"index_put", {{5, 3}, {5, 3}}, [](T x) { return at::index_put(x[0], {ids}, x[1], true); }},
      {"index_put, a row",
       {{5, 3}, {3}},
       [](T x) { return (x[0] * 2).index_put_({ids.narrow(0, 0, 4)}, x[1]); }},
      {"index_put, columns",
       {{4, 5}, {4, 5}},
       [](T x) {
         return at::index_put(x[0], {{}, ids}, x[1], true);
       }},
      {"index_add", {{5, 3}, {5, 3}}, [](T x) { return at::index_add(x[0], 0, ids, x[1]); }},
      {"index_copy",
       {{5, 3}, {4, 3}},
       [](T x) { return at::index_copy(x[0], 0, ids.narrow(0, 0, 4), x[1]); }},
      {"index_fill", {{5, 3}}, [](T x) { return at::index_fill(x[0], 1, columns, 2.5) * x[0]; }},
      {"scatter",
       {{5, 3}, {5, 1}},
       [](T x) { return at::scatter(x[0], 1, columns.unsqueeze(1), x[1]); }},
      {"scatter_add",
       {{5, 3}, {5, 1}},
       [](T x) { return at::scatter_add(x[0], 1, columns.unsqueeze(1), x[1]); }},
      {"scatter, a number",
       {{5, 3}},
       [](T x) { return at::scatter(x[0], 1, columns.unsqueeze(1), 1.5) * 2; }},
      {"scatter in place",
       {{5, 3}, {5, 1}},
       [](T x) { return (x[0] * 1).scatter_add_(1, columns.unsqueeze(1), x[1]); }},
      {"gather, columns",
       {{5, 3}},
       [](T x) {
         return x[0].gather(1, columns.unsqueeze(1).expand({5, 2}));
       }},
      {"take_along",
       {{5, 3}},
       [](T x) { return at::take_along_dim(x[0], x[0].argsort(int64_t{1}), 1); }},
      {"topk", {{5, 4}}, [](T x) { return std::get<0>(x[0].topk(2, 1)); }},
      {"sort", {{5, 4}}, [](T x) { return std::get<0>(x[0].sort(0)) * x[0]; }},
      {"cumsum, columns", {{5, 3}}, [](T x) { return x[0].cumsum(1).exp(); }},
      {"cumprod", {{5, 3}}, [](T x) { return x[0].cumprod(1); }, true},
      {"roll", {{5, 3}}, [](T x) { return x[0].roll({2}, {0}); }},
      {"repeat",
       {{5, 3}},
       [](T x) {
         return x[0].repeat({2, 1, 3});
       }},
      {"unsafe_split",
       {{6, 4}},
       [](T x) {
         const auto parts = at::unsafe_split(x[0], 2, 1);
         return parts[0].sigmoid() * parts[1];
       }},
      {"norm, 1", {{5, 3}}, [](T x) { return at::linalg_vector_norm(x[0], 1); }},
      {"norm, dim",
       {{5, 3}},
       [](T x) { return at::linalg_vector_norm(x[0], 2, at::IntArrayRef{0}, true); }},
      {"norm, 3", {{5, 3}}, [](T x) { return at::linalg_vector_norm(x[0], 3); }},
      {"amin", {{5, 3}}, [](T x) { return x[0].amin({1}); }},
      {"median", {{5, 3}}, [](T x) { return std::get<0>(x[0].median(1)); }},
      {"std", {{5, 3}}, [](T x) { return x[0].std(at::IntArrayRef{0}); }},
      {"view of ranks",
       {{2, 4, 3}},
       [](T x) {
         return (x[0].view({8, 3}) * 2).view({2, 4, 3}).exp();
       }},
      {"view, three joined",
       {{2, 3, 4, 2}},
       [](T x) {
         return x[0].view({24, 2}).sin().view({2, 3, 4, 2}) * x[0];
       }},
      {"view, joined and parted elsewhere",
       {{4, 6, 2}},
       [](T x) {
         return x[0].view({24, 2}).sin().view({3, 8, 2}).exp();
       }},
      {"softshrink", {{5, 3}}, [](T x) { return at::softshrink(x[0], 0.2); }},
      {"atan2", {{5, 3}, {5, 3}}, [](T x) { return at::atan2(x[0], x[1]); }, true},
      {"celu", {{5, 3}}, [](T x) { return at::celu(x[0]); }},
      {"logit", {{5, 3}}, [](T x) { return at::logit(x[0].sigmoid()); }},
  };
  return all;
}

class IndexRules : public ::testing::TestWithParam<size_t> {};

TEST_P(IndexRules, GiveWhatOneRankComputes) { expect_on_all_grids(index_cases()[GetParam()]); }

INSTANTIATE_TEST_SUITE_P(Operators, IndexRules, ::testing::Range<size_t>(0, index_cases().size()),
                         [](const auto& info) { return test_name(index_cases()[info.param]); });

}  // namespace
}  // namespace trireme::spmd
