#include "trireme/tasks/recommend/layers/pair_products.h"

#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/harness/tensors.h"

namespace trireme::tasks::inline internal {
namespace {

struct Shape {
  int64_t B, tables, D;
};

// Without pairs, within one vector of the processor and one tile of the loops, at their edges, and
// beyond.
const std::vector<Shape> kShapes{{0, 3, 4},  {1, 1, 1},  {3, 2, 5},   {2, 7, 8},    {5, 8, 16},
                                 {4, 9, 17}, {3, 16, 3}, {2, 17, 64}, {33, 26, 64}, {2, 40, 70}};

struct Case {
  at::Tensor dense_BD, embedded_BW, grad_BO;
  int64_t D;
};

Case draw(const Shape& shape, bool has_dense, at::ScalarType dtype) {
  const int64_t N = shape.tables + (has_dense ? 1 : 0);
  Case drawn{.dense_BD = {},
             .embedded_BW = at::randn({shape.B, shape.tables * shape.D}, dtype).requires_grad_(),
             .grad_BO = at::randn({shape.B, N * (N - 1) / 2 + (has_dense ? shape.D : 0)}, dtype),
             .D = shape.D};
  if (has_dense) drawn.dense_BD = at::randn({shape.B, shape.D}, dtype).requires_grad_();
  return drawn;
}

// The output, and the gradients of the embedded and, if there are some, of the dense features.
std::vector<at::Tensor> run(const Case& in, const at::Tensor& out) {
  std::vector<at::Tensor> inputs{in.embedded_BW};
  if (in.dense_BD.defined()) inputs.push_back(in.dense_BD);
  std::vector<at::Tensor> results =
      torch::autograd::grad({out}, inputs, {in.grad_BO.to(out.scalar_type())});
  results.push_back(out.detach());
  return results;
}

// All products, of which libtorch picks those of the triangle.
at::Tensor plain(const Case& in) {
  const bool has_dense = in.dense_BD.defined();
  const at::Tensor all = has_dense ? at::cat({in.dense_BD, in.embedded_BW}, 1) : in.embedded_BW;
  const at::Tensor x = all.unflatten(1, {all.size(1) / in.D, in.D});
  const at::Tensor places = at::tril_indices(x.size(1), x.size(1), -1);
  const at::Tensor pairs =
      at::bmm(x, x.transpose(1, 2)).flatten(1).index_select(1, places[0] * x.size(1) + places[1]);
  return has_dense ? at::cat({in.dense_BD, pairs}, 1) : pairs;
}

TEST(PairProducts, AreThoseOfAllPairsAndSoAreTheirGradients) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    // A sum of at most 70 products of a few units.
    const double tolerance = dtype == at::kDouble ? 1e-12 : 1e-4;
    for (const Shape& shape : kShapes) {
      for (const bool has_dense : {false, true}) {
        const Case in = draw(shape, has_dense, dtype);
        const auto found = run(in, pair_products(in.dense_BD, in.embedded_BW, in.D));
        const auto expected = run(in, plain(in));
        ASSERT_EQ(found.size(), expected.size());
        for (size_t i = 0; i < found.size(); ++i) {
          harness::assert_close(found[i], expected[i], tolerance, tolerance, "product or gradient");
        }
      }
    }
  }
}

TEST(PairProducts, HaveTheirOrder) {
  const at::Tensor dense = at::tensor({2.0}).view({1, 1});
  const at::Tensor embedded = at::tensor({3.0, 5.0, 7.0}).view({1, 3});
  const at::Tensor out = pair_products(dense, embedded, 1);
  EXPECT_TRUE(out.equal(at::tensor({2.0, 6.0, 10.0, 15.0, 14.0, 21.0, 35.0}).view({1, 7})));
}

TEST(PairProducts, HaveTheSameBitsForAnyThreadsAndNeighbours) {
  const int threads = at::get_num_threads();
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const Case in = draw({150, 26, 64}, /*has_dense=*/true, dtype);
    at::set_num_threads(1);
    const auto expected = run(in, pair_products(in.dense_BD, in.embedded_BW, in.D));
    for (const int count : {2, 3}) {
      at::set_num_threads(count);
      const auto found = run(in, pair_products(in.dense_BD, in.embedded_BW, in.D));
      for (size_t i = 0; i < found.size(); ++i) {
        harness::assert_same_bits(found[i], expected[i], "of threads");
      }
    }
    const auto rows = [](const at::Tensor& x) {
      return x.detach().narrow(0, 101, 3).clone().requires_grad_(x.requires_grad());
    };
    const Case few{rows(in.dense_BD), rows(in.embedded_BW), rows(in.grad_BO), in.D};
    const auto found = run(few, pair_products(few.dense_BD, few.embedded_BW, few.D));
    for (size_t i = 0; i < found.size(); ++i) {
      harness::assert_same_bits(found[i], expected[i].narrow(0, 101, 3), "of few samples");
    }
  }
  at::set_num_threads(threads);
}

TEST(PairProducts, TakeViewsAndHalfPrecision) {
  const Case in = draw({6, 4, 8}, /*has_dense=*/true, at::kFloat);
  const Case columns{in.dense_BD.detach().t().contiguous().t().requires_grad_(),
                     in.embedded_BW.detach().t().contiguous().t().requires_grad_(), in.grad_BO,
                     in.D};
  const Case halves{in.dense_BD.detach().to(at::kBFloat16).requires_grad_(),
                    in.embedded_BW.detach().to(at::kBFloat16).requires_grad_(), in.grad_BO, in.D};
  const auto expected = run(in, plain(in));
  for (const auto& [given, tolerance] : {std::tuple{columns, 1e-5}, std::tuple{halves, 0.05}}) {
    const auto found = run(given, pair_products(given.dense_BD, given.embedded_BW, given.D));
    for (size_t i = 0; i < found.size(); ++i) {
      // A rounding to bf16 of each factor, and of sums of 8 products of up to a few units.
      const double absolute = 8 * tolerance;
      harness::assert_close(found[i].to(at::kFloat), expected[i], tolerance, absolute, "of views");
    }
  }
}

}  // namespace
}  // namespace trireme::tasks::inline internal
