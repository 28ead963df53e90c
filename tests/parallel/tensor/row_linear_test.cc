#include "trireme/parallel/tensor/split_layers.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/parallel/tensor/whole_and_part.h"
#include "trireme/base/machine/matrix_product.h"

namespace trireme::parallel {
namespace {

using namespace harness;

// fp64: sums of at most 40 products, each rounded to 2^-53, in another order than the oracle's.
constexpr double kRowFp64 = 1e-13;

struct Parts {
  bool bias;
  bool residual;
};

TEST(RowLinear, SumsTheRanksProductsAndAddsBiasAndResidualOnce) {
  for (const auto& [with_bias, with_residual] :
       {Parts{false, false}, Parts{true, false}, Parts{false, true}, Parts{true, true}}) {
    for (const int64_t tokens : {0, 1, 7}) {
      const at::Tensor x = values({2, tokens, 9}, 0.37), w = values({6, 9}, 0.3);
      const at::Tensor bias = values({6}, 0.9), residual = values({2, tokens, 6}, 0.61);
      const at::Tensor weight = values({2, tokens, 6}, 0.77);
      for_each_axis({1, 2, 3, 4, 5}, [&, with_bias = with_bias,
                                      with_residual = with_residual](const TensorAxis& axis) {
        Tensors leaves = {part_of(x, 2, axis), part_of(w, 1, axis), bias.clone(),
                          held_rows(residual, axis)};
        Tensors oracle = {x.clone(), w.clone(), bias.clone(), residual.clone()};
        for (Tensors* each : {&leaves, &oracle}) {
          for (at::Tensor& leaf : *each) leaf.requires_grad_();
        }
        const auto none = at::Tensor();
        const at::Tensor y = row_linear(leaves[0], {leaves[1], with_bias ? leaves[2] : none},
                                        with_residual ? leaves[3] : none, axis);
        at::Tensor e = at::linear(oracle[0], oracle[1], with_bias ? oracle[2] : none);
        if (with_residual) e = e + oracle[3];
        assert_close(y.detach(), held_rows(e.detach(), axis), kRowFp64, kRowFp64, "y");
        const auto grad = [](const at::Tensor& loss, const Tensors& of) {
          return torch::autograd::grad({loss}, of, {}, std::nullopt, false, /*allow_unused=*/true);
        };
        const auto grads = grad((y * held_rows(weight, axis)).sum(), leaves);
        const auto expected = grad((e * weight).sum(), oracle);
        assert_close(grads[0], part_of(expected[0], 2, axis), kRowFp64, kRowFp64, "grad x");
        assert_close(grads[1], part_of(expected[1], 1, axis), kRowFp64, kRowFp64, "grad w");
        if (with_bias) assert_close(grads[2], expected[2], kRowFp64, kRowFp64, "grad bias");
        if (with_residual) {
          assert_close(grads[3], held_rows(expected[3], axis), kRowFp64, kRowFp64, "grad residual");
        }
      });
    }
  }
}

TEST(RowLinear, TheBiasGradientHasTheSameBitsOnAllRanks) {
  for (const bool sequence : {false, true}) {
    run_ranks(3, [&](comm::Communicator& group) {
      const TensorAxis axis{.group = &group, .sequence = sequence};
      const at::Tensor x = part_of(values({7, 9}, 0.37, 1, at::kFloat), 1, axis);
      const at::Tensor w = part_of(values({6, 9}, 0.3, 1, at::kFloat), 1, axis);
      const at::Tensor bias = values({6}, 0.9, 1, at::kFloat).requires_grad_();
      const at::Tensor y = row_linear(x, {w, bias}, {}, axis);
      at::Tensor grad = torch::autograd::grad({y.square().sum()}, {bias})[0].contiguous();
      at::Tensor of_root = grad.clone();
      group.broadcast(of_root, 0)->wait();
      // Under sequence parallelism each rank's loss is of its own rows; the gathered gradient is
      // the same everywhere.
      assert_same_bits(grad, of_root, "bias gradient");
    });
  }
}

// Two ranks add the products of their halves, and one of them bias and residual before: with fp32's
// roundings, K + 2 terms in another order than one rank's.
TEST(RowLinear, TwoRanksDifferFromOneByTheOrderOfTheSumOnly) {
  constexpr int64_t kRows = 53, kWidth = 96, kHidden = 704;  // of a sum: K
  const at::Tensor x = values({kRows, kHidden}, 0.37, 1, at::kFloat);
  const at::Tensor w = values({kWidth, kHidden}, 0.3, 1, at::kFloat);
  const at::Tensor bias = values({kWidth}, 0.9, 1, at::kFloat);
  const at::Tensor residual = values({kRows, kWidth}, 0.61, 1, at::kFloat);
  const at::Tensor one = row_linear(x, {w, bias}, residual, {});
  const at::Tensor magnitudes =
      at::linear(x.abs().to(at::kDouble), w.abs().to(at::kDouble), bias.abs().to(at::kDouble)) +
      residual.abs();
  run_ranks(2, [&](comm::Communicator& group) {
    const TensorAxis axis{.group = &group};
    const at::Tensor y =
        row_linear(part_of(x, 1, axis), {part_of(w, 1, axis), bias}, residual, axis);
    at::Tensor sums[2];  // of each rank
    for (const int rank : {0, 1}) {
      const at::Tensor x_r = x.chunk(2, 1)[static_cast<size_t>(rank)].contiguous();
      const at::Tensor w_r = w.chunk(2, 1)[static_cast<size_t>(rank)].contiguous();
      sums[rank] = at::empty({kRows, kWidth});
      for (const int of : {0, 1}) {
        const mesh::Range rows = axis.rows_of(kRows, of);
        const auto part = [&](const at::Tensor& t) { return t.narrow(0, rows.offset, rows.size); };
        const at::Tensor sum = part(sums[rank]);
        if (of == rank) {
          multiply_and_add(sum, part(residual), part(x_r), w_r.t());
          sum.add_(bias);
        } else {
          multiply(sum, part(x_r), w_r.t());
        }
      }
    }
    assert_same_bits(y, sums[0] + sums[1], "y");
    const at::Tensor bound = 2 * (kHidden + 1) * std::ldexp(1, -24) * magnitudes;
    EXPECT_TRUE(((y - one).abs() <= bound).all().item<bool>());
  });
}

// A product of fewer rows at a time may round otherwise, so both ways cut at the same rows.
TEST(RowLinear, OverlapChangesNoBitOfABranch) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const int world : {2, 3, 4}) {
      for (const bool sequence : {false, true}) {
        run_ranks(world, [&](comm::Communicator& group) {
          constexpr int64_t kRows = 53, kWidth = 96, kHidden = 704;
          std::vector<Tensors> results;
          for (const bool overlap : {false, true}) {
            const TensorAxis axis{.group = &group,
                                  .sequence = sequence,
                                  .overlap = std::make_shared<const bool>(overlap)};
            const auto part = [&](int64_t rows, int64_t columns, double f, int64_t dim) {
              return part_of(values({rows, columns}, f, 0.1, dtype), dim, axis).requires_grad_();
            };
            const at::Tensor up = part(kHidden, kWidth, 0.3, 0);
            const at::Tensor down = part(kWidth, kHidden, 0.7, 1);
            const at::Tensor x =
                held_rows(values({kRows, kWidth}, 0.37, 1, dtype), axis).requires_grad_();
            const at::Tensor y =
                row_linear(column_linear(x, {{up}}, {kRows}, axis)[0], {down}, x, axis);
            const at::Tensor weight = held_rows(values({kRows, kWidth}, 0.9, 1, dtype), axis);
            Tensors result = torch::autograd::grad({(y * weight).sum()}, {x, up, down});
            result.push_back(y.detach());
            results.push_back(std::move(result));
          }
          for (size_t i = 0; i < results[0].size(); ++i) {
            assert_same_bits(results[1][i], results[0][i], std::to_string(i));
          }
        });
      }
    }
  }
}

TEST(RowLinear, SendsTheBytesItStates) {
  for (const bool sequence : {false, true}) {
    run_ranks(4, [&](comm::Communicator& group) {
      CountingCommunicator counting(group);
      const TensorAxis axis{.group = &counting, .sequence = sequence};
      const int64_t S = 8, D = 6, n = S * D * 8;
      const at::Tensor x = values({S, 3}, 0.3).requires_grad_();
      const at::Tensor y = row_linear(x, {values({D, 3}, 0.5)}, {}, axis);
      EXPECT_EQ(counting.ledger().of(group.name()).bytes, (sequence ? 1 : 2) * 3 * n / 4);
      counting.ledger().clear();
      torch::autograd::grad({y.sum()}, {x});
      EXPECT_EQ(counting.ledger().of(group.name()).bytes, sequence ? 3 * n / 4 : 0);
    });
  }
}

}  // namespace
}  // namespace trireme::parallel
