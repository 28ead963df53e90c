#include "trireme/parallel/expert/grouped_linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/fake_device.h"
#include "tests/harness/gradients.h"
#include "tests/harness/one_thread.h"

namespace trireme::parallel {
namespace {

using namespace harness;
using Counts = std::vector<int64_t>;

at::Tensor expert_by_expert(const at::Tensor& x_RD, const at::Tensor& weight_EFD,
                            const Counts& counts) {
  Tensors parts;
  int64_t first = 0;
  for (size_t e = 0; e < counts.size(); ++e) {
    parts.push_back(at::linear(x_RD.narrow(0, first, counts[e]),
                               weight_EFD.select(0, static_cast<int64_t>(e))));
    first += counts[e];
  }
  return at::cat(parts);
}

TEST(GroupedLinear, EqualsALinearLayerForEachExpert) {
  for (const Counts& counts : {Counts{3, 0, 5}, {0, 0, 1}, {0, 0, 0}, {1, 200, 33}}) {
    const int64_t R = counts[0] + counts[1] + counts[2], D = 6;
    // Sums of at most 200 products.
    assert_same_function(
        [&](const Tensors& t) {
          return at::cat(grouped_linear(t[0], {t[1], t[2]}, ExpertRows{counts}), 1);
        },
        [&](const Tensors& t) {
          return at::cat(
              {expert_by_expert(t[0], t[1], counts), expert_by_expert(t[0], t[2], counts)}, 1);
        },
        {values({R, D}, 0.37), values({3, 7, D}, 0.3), values({3, 4, D}, 0.5)}, 1e-13);
  }
}

TEST(GroupedLinear, AnOutputNobodyUsesCostsNoGradient) {
  const Counts counts = {2, 3};
  assert_same_function(
      [&](const Tensors& t) {
        return grouped_linear(t[0], {t[1], t[1]}, ExpertRows{counts}).at(1);
      },
      [&](const Tensors& t) { return expert_by_expert(t[0], t[1], counts); },
      {values({5, 6}, 0.37), values({2, 7, 6}, 0.3)}, 1e-14);
}

// The promise of product_sizes(), on this machine's BLAS.
TEST(GroupedLinear, ARowsBitsDoNotDependOnTheOtherRows) {
  const OneThread one_thread;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const auto& [D, F] : {std::pair<int64_t, int64_t>{40, 24},
                               {256, 704},
                               {704, 256},
                               {512, 128},
                               {6, 7},
                               {300, 6},
                               {33, 17},
                               {1, 5},
                               {65, 66},
                               {101, 203}}) {
      const int64_t most = 300;
      const at::Tensor x = values({most, D}, 0.37, 1, dtype), w = values({1, F, D}, 0.3, 1, dtype);
      const auto both = [&](int64_t first, int64_t rows) {
        const at::Tensor leaf = x.narrow(0, first, rows).clone().requires_grad_();
        const at::Tensor y = grouped_linear(leaf, {w}, ExpertRows{{rows}})[0];
        const at::Tensor grad = values({most, F}, 0.7, 1, dtype).narrow(0, first, rows);
        return std::pair(y.detach(), torch::autograd::grad({y}, {leaf}, {grad})[0]);
      };
      const auto [y, grad] = both(0, most);
      for (const int64_t rows : {1, 2, 3, 5, 8, 13, 16, 31, 32, 33, 63, 100, 191, 192, 193, 299}) {
        for (const int64_t first : {int64_t{0}, most - rows}) {
          const auto [own_y, own_grad] = both(first, rows);
          const std::string what = std::to_string(rows) + " rows of " + std::to_string(D);
          assert_same_bits(own_y, y.narrow(0, first, rows).contiguous(), what);
          assert_same_bits(own_grad, grad.narrow(0, first, rows).contiguous(), what + ", gradient");
        }
      }
    }
  }
}

// What each rank's rows give by themselves, added in the order of ranks.
TEST(GroupedLinear, AWeightsGradientAddsRanksInTheirOrder) {
  const OneThread one_thread;
  const ExpertRows rows{.counts = {3, 0, 40, 0, 0, 0, 0, 7, 1}, .origins = 3};
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const at::Tensor x = values({51, 33}, 0.37, 1, dtype), grad = values({51, 17}, 0.7, 1, dtype);
    const at::Tensor w = values({3, 17, 33}, 0.3, 1, dtype).requires_grad_();
    const auto gradient = [&](const at::Tensor& x_RD, const at::Tensor& grad_RF,
                              const ExpertRows& of) {
      const at::Tensor y = grouped_linear(x_RD, {w}, of)[0];
      return torch::autograd::grad({y}, {w}, {grad_RF})[0];
    };
    at::Tensor expected = at::zeros(w.sizes(), dtype);
    for (size_t origin = 0; origin < 3; ++origin) {
      std::vector<int64_t> places;
      ExpertRows own;
      int64_t row = 0;
      for (size_t i = 0; i < rows.counts.size(); ++i) {
        for (int64_t j = 0; j < rows.counts[i]; ++j, ++row) {
          if (i % 3 == origin) places.push_back(row);
        }
        if (i % 3 == origin) own.counts.push_back(rows.counts[i]);
      }
      const at::Tensor index = at::tensor(places, at::kLong);
      expected += gradient(x.index_select(0, index), grad.index_select(0, index), own);
    }
    assert_same_bits(gradient(x, grad, rows), expected, "gradient");
  }
}

// Sums of at most 40 products of numbers below 1, in fp32; and what is not aligned, in a loop.
TEST(GroupedLinear, ADeviceComputesWhatTheHostComputes) {
  const ExpertRows rows{.counts = {5, 0, 30, 4}};
  for (const auto& [D, F] : {std::pair<int64_t, int64_t>{16, 24}, {15, 8}}) {
    const ExpertAxis one;
    const auto replicas = std::make_shared<ExpertReplicas>(std::vector<int64_t>{2}, 3, one);
    const auto run = [&, D = D, F = F](at::Device device) {
      const at::Tensor x = values({39, D}, 0.37, 1, at::kFloat).to(device).requires_grad_();
      const at::Tensor w = values({3, F, D}, 0.3, 1, at::kFloat).to(device).requires_grad_();
      const at::Tensor v = values({3, F, D}, 0.5, 1, at::kFloat).to(device).requires_grad_();
      const GroupedOptions options{.replicas = replicas,
                                   .copies = {replicas->copies_of(w), replicas->copies_of(v)}};
      const auto y = grouped_linear(x, {w, v}, rows, options);
      const at::Tensor seed = values({39, F}, 0.7, 1, at::kFloat).to(device);
      Tensors all = torch::autograd::grad({y[0], y[1]}, {x, w, v}, {seed, seed * 0.5});
      all.push_back(y[0].detach());
      for (at::Tensor& each : all) each = each.cpu();
      return all;
    };
    const Tensors host = run(at::kCPU), device = run(fake_device(0));
    for (size_t i = 0; i < host.size(); ++i) {
      assert_close(device[i], host[i], 0, 100 * 40 * 0x1p-24, std::to_string(i));
    }
  }
}

TEST(GroupedLinear, GradientsOfWeightsCanWait) {
  const Counts counts = {2, 3};
  const at::Tensor x = values({5, 6}, 0.37).requires_grad_();
  const at::Tensor w = values({2, 7, 6}, 0.3).requires_grad_();
  const at::Tensor expected =
      torch::autograd::grad({grouped_linear(x, {w}, ExpertRows{counts})[0].sum()}, {w})[0];
  std::vector<std::function<at::Tensor()>> deferred;
  const DeferGradient defer = [&](const at::Tensor& leaf, std::function<at::Tensor()> gradient) {
    EXPECT_TRUE(leaf.is_same(w));
    deferred.push_back(std::move(gradient));
    return true;
  };
  const auto grads =
      torch::autograd::grad({grouped_linear(x, {w}, ExpertRows{counts}, {.defer = defer})[0].sum()},
                            {x, w}, {}, std::nullopt, false, /*allow_unused=*/true);
  EXPECT_FALSE(grads[1].defined());
  ASSERT_EQ(deferred.size(), 1U);
  assert_same_bits(deferred[0](), expected, "gradient");
}

}  // namespace
}  // namespace trireme::parallel
