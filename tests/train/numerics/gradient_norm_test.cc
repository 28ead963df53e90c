#include "trireme/train/numerics/gradient_norm.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/harness/fake_device.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/parallel/data/bucket_plan.h"

namespace trireme::train {
namespace {

at::Tensor values(int64_t count, at::ScalarType dtype) {
  return (at::arange(count, at::kDouble) * 0.61).sin().to(dtype);
}

mesh::Layout whole(const at::Tensor& tensor) { return {tensor.sizes().vec(), {{"shard", 1}}}; }

std::vector<parallel::Shard> shards_with(const std::vector<at::Tensor>& gradients) {
  std::vector<parallel::Shard> shards;
  for (const at::Tensor& gradient : gradients) {
    shards.push_back({.name = "p" + std::to_string(shards.size()),
                      .weights = at::zeros_like(gradient),
                      .gradient = gradient.clone(),
                      .layout = whole(gradient)});
  }
  return shards;
}

double norm_of(const std::vector<parallel::Shard>& shards) {
  double norm = 0;
  harness::run_ranks(1, [&](comm::Communicator& group) {
    norm = gradient_norm(gradient_squares({shards, group}));
  });
  return norm;
}

TEST(GradientNorm, EqualsTheNormOfEverythingInDouble) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const int64_t count : {0, 1, 15, 16, 17, 1024, 1025, 100003}) {
      const at::Tensor tensor = values(count, dtype);
      const double expected = tensor.to(at::kDouble).norm().item<double>();
      // Products of floats are exact in double; only the order of the sum differs.
      EXPECT_NEAR(gradient_norm(grain_squares(tensor, whole(tensor))), expected, 1e-13 * expected)
          << count;
    }
  }
  const auto shards = shards_with({values(7, at::kFloat), values(40000, at::kFloat)});
  const double expected =
      at::cat({values(7, at::kDouble), values(40000, at::kDouble)}).norm().item<double>();
  EXPECT_NEAR(norm_of(shards), expected, 1e-7 * expected);
}

TEST(GradientNorm, OfBf16HasTheBitsOfTheSameFloats) {
  for (int64_t count = 0; count < 70; ++count) {
    const at::Tensor tensor = values(count + 1000, at::kBFloat16);
    EXPECT_EQ(grain_squares(tensor, whole(tensor)),
              grain_squares(tensor.to(at::kFloat), whole(tensor)))
        << tensor.numel();
  }
}

TEST(GradientNorm, ADeviceAddsUpInAtLeastFp32) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const int64_t count : {0, 1, 17, 1024, 100003}) {
      const at::Tensor tensor = values(count, dtype);
      const std::vector<double> host = grain_squares(tensor, whole(tensor));
      const std::vector<double> device =
          grain_squares(tensor.to(harness::fake_device(0)), whole(tensor));
      ASSERT_EQ(device.size(), host.size());
      // Sums of at most a grain's squares.
      const double tolerance = dtype == at::kDouble ? 1e-13 : 1e-5;
      for (size_t i = 0; i < host.size(); ++i) EXPECT_NEAR(device[i], host[i], tolerance * host[i]);
    }
  }
}

TEST(GradientNorm, ADeviceMeasuresWholeGradientsOfAllTypes) {
  auto shards = shards_with({values(7, at::kFloat), values(40000, at::kBFloat16),
                             values(0, at::kFloat), values(300, at::kDouble)});
  shards.push_back({.name = "frozen", .weights = at::zeros({3}), .layout = whole(at::zeros({3}))});
  const auto squares = [&] {
    std::vector<double> found;
    harness::run_ranks(1, [&](comm::Communicator& group) {
      found = gradient_squares({shards, group});
    });
    return found;
  };
  const std::vector<double> host = squares();
  for (parallel::Shard& shard : shards) {
    if (shard.gradient.defined()) shard.gradient = shard.gradient.to(harness::fake_device(0));
  }
  const std::vector<double> device = squares();
  ASSERT_EQ(device.size(), host.size());
  for (size_t i = 0; i < host.size(); ++i) EXPECT_NEAR(device[i], host[i], 1e-4 * host[i]);
}

TEST(GradientNorm, BitsDoNotDependOnThreadsOrStrides) {
  const at::Tensor tensor = values(300007, at::kFloat);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const std::vector<double> one = grain_squares(tensor, whole(tensor));
  at::set_num_threads(3);
  EXPECT_EQ(grain_squares(tensor, whole(tensor)), one);
  at::set_num_threads(threads);
  const at::Tensor square = values(400, at::kFloat).view({20, 20});
  EXPECT_EQ(grain_squares(square.t(), whole(square)),
            grain_squares(square.t().contiguous(), whole(square)));
}

// The gradients of one model, cut over the ranks as ZeRO does it.
TEST(GradientNorm, BitsDoNotDependOnHowManyRanksShareTheGradients) {
  const std::vector<at::Tensor> gradients = {
      values(300 * 96, at::kFloat).view({300, 96}), values(5, at::kFloat),
      values(40 * 1000, at::kFloat).view({40, 1000}), values(4096, at::kFloat)};
  const std::vector<double> expected = [&] {
    std::vector<double> squares;
    harness::run_ranks(1, [&](comm::Communicator& group) {
      squares = gradient_squares({shards_with(gradients), group});
    });
    return squares;
  }();
  const auto buckets = parallel::make_buckets(gradients, 1 << 16);
  for (const int ranks : {2, 3, 4}) {
    const auto cuts = parallel::partition(buckets, gradients, {.num_ranks = ranks});
    harness::run_ranks(ranks, [&](comm::Communicator& group) {
      std::vector<parallel::Shard> shards;
      for (size_t b = 0; b < buckets.size(); ++b) {
        for (size_t i = 0; i < buckets[b].parameters.size(); ++i) {
          const at::Tensor& gradient = gradients[buckets[b].parameters[i]];
          const auto layout = parallel::layout_of(buckets[b], i, gradient.sizes(), cuts[b]);
          const mesh::Box box = layout.local_box(group.rank());
          at::Tensor part = gradient;
          for (int64_t d = 0; d < part.dim(); ++d) {
            part = part.narrow(d, box.offset[static_cast<size_t>(d)],
                               box.size[static_cast<size_t>(d)]);
          }
          shards.push_back({.name = "p", .weights = part, .gradient = part, .layout = layout});
        }
      }
      EXPECT_EQ(gradient_squares({shards, group}), expected) << group.rank() << " of " << ranks;
    });
  }
}

TEST(GradientNorm, ClipsToTheLargestNormAndOnlyAboveIt) {
  EXPECT_EQ(clip_factor(3.0, 6.0), 1.0);
  EXPECT_EQ(clip_factor(3.0, 3.0), 1.0);
  EXPECT_EQ(clip_factor(3.0, 0.0), 1.0);
  EXPECT_EQ(clip_factor(4.0, 1.0), 0.25);
}

TEST(GradientNorm, NamesTheFirstGradientThatIsNotFinite) {
  const auto shards =
      shards_with({values(5, at::kFloat), values(5, at::kFloat), values(5, at::kFloat)});
  const std::vector<std::string> names = {shards[0].name, shards[1].name, shards[2].name};
  const auto first = [&] {
    std::string name;
    harness::run_ranks(1, [&](comm::Communicator& group) {
      name = first_nonfinite_gradient(names, gradient_squares({shards, group}));
    });
    return name;
  };
  EXPECT_EQ(first(), "");
  shards[2].gradient[3] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(first(), "p2");
  shards[1].gradient[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(first(), "p1");
  EXPECT_FALSE(std::isfinite(norm_of(shards)));
}

}  // namespace
}  // namespace trireme::train
