#include "trireme/parallel/tensor/split_layers.h"

#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/parallel/tensor/whole_and_part.h"

namespace trireme::parallel {
namespace {

using namespace harness;

// fp64: sums of at most 40 products, each rounded to 2^-53, in another order than the oracle's.
constexpr double kFp64 = 1e-13;

std::vector<at::Tensor> one_rank(const at::Tensor& x, const std::vector<LinearWeight>& layers) {
  return column_linear(x, layers, x.sizes().slice(0, x.dim() - 1), {});
}

TEST(ColumnLinear, EqualsSeveralLinearLayers) {
  const Tensors in = {values({2, 3, 5}, 0.37), values({4, 5}, 0.3), values({7, 5}, 0.5),
                      values({2, 5}, 0.7), values({7}, 0.9)};
  assert_same_function(
      [&](const Tensors& t) {
        return at::cat(one_rank(t[0], {{t[1]}, {t[2], t[4]}, {t[3]}}), -1);
      },
      [&](const Tensors& t) {
        return at::cat(
            {at::linear(t[0], t[1]), at::linear(t[0], t[2], t[4]), at::linear(t[0], t[3])}, -1);
      },
      in, 1e-14);
}

TEST(ColumnLinear, AnOutputNobodyUsesCostsNoGradient) {
  assert_same_function(
      [](const Tensors& t) {
        return one_rank(t[0], {{t[1]}, {t[1]}}).at(1);
      },
      [](const Tensors& t) { return at::linear(t[0], t[1]); },
      {values({6, 5}, 0.37), values({4, 5}, 0.3)}, 1e-14);
}

TEST(ColumnLinear, EachRankComputesItsRowsAndSumsTheInputsGradient) {
  for (const int64_t tokens : {0, 1, 7, 12}) {
    const at::Tensor x = values({1, tokens, 6}, 0.37);
    const at::Tensor w0 = values({11, 6}, 0.3), b0 = values({11}, 0.9), w1 = values({5, 6}, 0.5);
    const auto whole = [&](const Tensors& t) {
      return std::vector<at::Tensor>{at::linear(t[0], t[1], t[2]), at::linear(t[0], t[3])};
    };
    for_each_axis({1, 2, 3, 4, 5}, [&](const TensorAxis& axis) {
      // The loss weighs each output element by its place in the whole output.
      const auto weight = [&](const at::Tensor& w, double f) {
        return part_of(values({1, tokens, w.size(0)}, f), 2, axis);
      };
      Tensors leaves = {held_rows(x, axis), part_of(w0, 0, axis), part_of(b0, 0, axis),
                        part_of(w1, 0, axis)};
      for (at::Tensor& leaf : leaves) leaf.requires_grad_();
      const auto y =
          column_linear(leaves[0], {{leaves[1], leaves[2]}, {leaves[3]}}, {1, tokens}, axis);
      const auto grads = torch::autograd::grad(
          {(y[0] * weight(w0, 0.7)).sum() + (y[1] * weight(w1, 0.2)).sum()}, leaves);

      Tensors oracle = {x.clone(), w0.clone(), b0.clone(), w1.clone()};
      for (at::Tensor& leaf : oracle) leaf.requires_grad_();
      const auto e = whole(oracle);
      const auto expected = torch::autograd::grad({(e[0] * values({1, tokens, 11}, 0.7)).sum() +
                                                   (e[1] * values({1, tokens, 5}, 0.2)).sum()},
                                                  oracle);
      assert_close(y[0].detach(), part_of(e[0].detach(), 2, axis), kFp64, kFp64, "y0");
      assert_close(y[1].detach(), part_of(e[1].detach(), 2, axis), kFp64, kFp64, "y1");
      assert_close(grads[0], held_rows(expected[0], axis), kFp64, kFp64, "grad x");
      assert_close(grads[1], part_of(expected[1], 0, axis), kFp64, kFp64, "grad w0");
      assert_close(grads[2], part_of(expected[2], 0, axis), kFp64, kFp64, "grad b0");
      assert_close(grads[3], part_of(expected[3], 0, axis), kFp64, kFp64, "grad w1");
    });
  }
}

TEST(ColumnLinear, SendsTheBytesItStates) {
  for (const bool sequence : {false, true}) {
    run_ranks(4, [&](comm::Communicator& group) {
      CountingCommunicator counting(group);
      const TensorAxis axis{.group = &counting, .sequence = sequence};
      const int64_t S = 8, D = 6, n = S * D * 8;
      const at::Tensor x = held_rows(values({S, D}, 0.3), axis).requires_grad_();
      const at::Tensor w = values({3, D}, 0.5).requires_grad_();
      const at::Tensor y = column_linear(x, {{w}}, {S}, axis)[0];
      EXPECT_EQ(counting.ledger().of(group.name()).bytes, sequence ? 3 * n / 4 : 0);
      counting.ledger().clear();
      torch::autograd::grad({y.sum()}, {x, w});
      EXPECT_EQ(counting.ledger().of(group.name()).bytes, 2 * 3 * n / 4);
    });
  }
}

class Later : public WeightGradients {
 public:
  bool defer(const at::Tensor& leaf, std::function<at::Tensor()> gradient) override {
    if (recording) entries.emplace_back(leaf, std::move(gradient));
    return recording;
  }
  bool recording = true;
  std::vector<std::pair<at::Tensor, std::function<at::Tensor()>>> entries;
};

TEST(ColumnLinear, LeavesWeightGradientsForLaterWhenAsked) {
  const at::Tensor x = values({3, 4}, 0.3).requires_grad_();
  const at::Tensor w = values({5, 4}, 0.5).requires_grad_();
  Later later;
  column_linear(x, {{w}}, {3}, {.weight_gradients = &later})[0].sum().backward();
  EXPECT_FALSE(w.grad().defined());
  ASSERT_EQ(later.entries.size(), 1u);
  EXPECT_TRUE(later.entries[0].first.is_same(w));
  const at::Tensor deferred = later.entries[0].second();
  later.recording = false;
  column_linear(x, {{w}}, {3}, {.weight_gradients = &later})[0].sum().backward();
  assert_same_bits(deferred, w.grad(), "weight gradient");
}

}  // namespace
}  // namespace trireme::parallel
