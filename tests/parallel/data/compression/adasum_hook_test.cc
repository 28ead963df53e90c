#include "trireme/parallel/data/compression/adasum_hook.h"

#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "tests/parallel/data/compression/hook_runs.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using namespace testing;

std::shared_ptr<GradientHook> adasum_hook() { return std::make_shared<AdasumHook>(); }

at::Tensor pair_sum_by_formula(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor ab = (a * b).sum(), aa = (a * a).sum(), bb = (b * b).sum();
  const auto share = [&](const at::Tensor& own) {
    return own.item<double>() == 0 ? at::ones({}, at::kDouble) : 1 - ab / (2 * own);
  };
  return a * share(aa) + b * share(bb);
}

// Neighbours in pairs, then pairs of pairs.
at::Tensor tree_by_formula(std::vector<at::Tensor> terms) {
  while (terms.size() > 1) {
    std::vector<at::Tensor> next;
    for (size_t i = 0; i + 1 < terms.size(); i += 2) {
      next.push_back(pair_sum_by_formula(terms[i], terms[i + 1]));
    }
    if (terms.size() % 2 == 1) next.push_back(terms.back());
    terms = next;
  }
  return terms[0];
}

TEST(AdasumHook, IsTheTreeOfPairsForAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    const MakeGradient gradient = waves(at::kDouble);
    const HookRun run = run_hook(ranks, adasum_hook, gradient, {.steps = 2});
    for (size_t i = 0; i < shapes().size(); ++i) {
      std::vector<at::Tensor> terms;
      for (int r = 0; r < ranks; ++r) terms.push_back(gradient(1, r, i) * ranks);
      harness::assert_close(run.sums[1][i], tree_by_formula(terms), 1e-12, 1e-13,
                            concat(ranks, " ranks, ", name_of(i)));
    }
  }
}

TEST(AdasumHook, RanksWithOneGradientGetIt) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const MakeGradient same = [dtype](int step, int, size_t parameter) {
      return waves(dtype)(step, 0, parameter);
    };
    for (const int ranks : {1, 2, 4, 8}) {  // whose multiples are exact
      const HookRun run = run_hook(ranks, adasum_hook, same, {.steps = 1});
      for (size_t i = 0; i < shapes().size(); ++i) {
        harness::assert_same_bits(run.sums[0][i], same(0, 0, i) * ranks, name_of(i));
      }
    }
  }
}

TEST(AdasumHook, OrthogonalGradientsAreSummed) {
  for (const int ranks : {2, 3, 5}) {
    const MakeGradient apart = [ranks](int step, int rank, size_t parameter) {
      const at::Tensor all = waves(at::kFloat)(step, 0, parameter);
      const at::Tensor owner = at::arange(all.numel()).remainder(ranks).view(all.sizes());
      return at::where(owner.eq(rank), all, at::zeros_like(all));
    };
    const HookRun run = run_hook(ranks, adasum_hook, apart, {.steps = 1});
    for (size_t i = 0; i < shapes().size(); ++i) {
      EXPECT_TRUE(at::equal(run.sums[0][i], waves(at::kFloat)(0, 0, i) * ranks)) << name_of(i);
    }
  }
}

TEST(AdasumHook, BucketsChangeNoBit) {
  expect_bucketing_and_resume_change_no_bit(adasum_hook, at::kFloat);
}

TEST(AdasumHook, NanStays) {
  const MakeGradient bad = [](int step, int rank, size_t parameter) {
    const at::Tensor gradient = waves(at::kFloat)(step, rank, parameter);
    if (rank == 1 && gradient.numel() > 0) gradient.view(-1)[0] = NAN;
    return gradient;
  };
  const HookRun run = run_hook(3, adasum_hook, bad, {.steps = 1});
  EXPECT_TRUE(run.sums[0][0].isnan().any().item<bool>());
}

}  // namespace
}  // namespace trireme::parallel
