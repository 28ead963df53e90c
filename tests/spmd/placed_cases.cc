#include "tests/spmd/placed_cases.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::spmd::spmd_test {

at::Tensor values(at::IntArrayRef sizes, double phase, bool positive) {
  int64_t count = 1;
  for (const int64_t length : sizes) count *= length;
  at::Tensor t = at::arange(count, at::kDouble).mul_(0.7548776662466927).add_(phase).sin_();
  if (positive) t = t.abs_().add_(0.3);
  return t.reshape(sizes);
}

Places drawn_places(harness::Draw& draw, const Grid& grid, at::IntArrayRef sizes) {
  Places places;
  for (int axis = 0; axis < grid.num_axes(); ++axis) {
    const auto kind = draw.below(sizes.size() + 2);
    if (kind == 0) continue;
    places[axis] = kind == 1 ? Place::partial() : Place::sharded(static_cast<int>(kind) - 2);
  }
  return places;
}

namespace {

void expect_near(const at::Tensor& actual, const at::Tensor& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  if (expected.numel() == 0) return;
  const double scale = std::max(1.0, expected.abs().max().item<double>());
  EXPECT_LE((actual - expected).abs().max().item<double>(), tolerance * scale) << what;
}

Tensors gradients(const at::Tensor& y, const at::Tensor& weight, const Tensors& leaves) {
  return torch::autograd::grad({(y * weight).sum()}, leaves, {}, std::nullopt, false, true);
}

}  // namespace

void expect_whole_values(const OperatorCase& each, const GridPtr& grid, uint64_t seed, int count,
                         double tolerance) {
  Tensors whole;
  for (size_t i = 0; i < each.sizes.size(); ++i) {
    whole.push_back(values(each.sizes[i], 0.37 * static_cast<double>(i + 1), each.is_positive)
                        .requires_grad_());
  }
  const at::Tensor expected = each.call(whole);
  const at::Tensor weight = values(expected.sizes(), 0.91);
  const bool has_gradient = expected.requires_grad();
  const Tensors expected_gradients = has_gradient ? gradients(expected, weight, whole) : Tensors();
  for (int i = 0; i < count; ++i) {
    harness::Draw draw(seed + static_cast<uint64_t>(i));
    std::string what = concat(each.name, " seed ", seed + static_cast<uint64_t>(i));
    Tensors leaves;
    for (const at::Tensor& tensor : whole) {
      const Places places = drawn_places(draw, *grid, tensor.sizes());
      what += " " + to_string(*grid, places);
      leaves.push_back(place_whole(grid, tensor.detach(), places).requires_grad_());
    }
    at::Tensor y;
    try {
      y = each.call(leaves);
      expect_near(whole_of(y), expected.detach(), tolerance, what);
      if (!has_gradient) continue;
      const Tensors found = gradients(y, weight, leaves);
      for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
        ASSERT_EQ(found[leaf].defined(), expected_gradients[leaf].defined()) << what;
        if (!found[leaf].defined()) continue;
        expect_near(whole_of(found[leaf]), expected_gradients[leaf], tolerance,
                    concat(what, ", gradient ", leaf));
      }
    } catch (const std::exception& error) {
      ADD_FAILURE() << what << ": " << error.what();
      throw;
    }
    if (::testing::Test::HasFailure()) return;
  }
}

void expect_on_all_grids(const OperatorCase& each, double tolerance) {
  for (const int size : {1, 2, 3, 4}) {
    harness::run_ranks(size, [&](comm::Communicator& world) {
      const mesh::DeviceMesh mesh(world, {{"tensor", size}});
      expect_whole_values(each, std::make_shared<Grid>(mesh), 100, 12, tolerance);
    });
  }
  harness::run_ranks(4, [&](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"data", 2}, {"tensor", 2}});
    expect_whole_values(each, std::make_shared<Grid>(mesh), 200, 24, tolerance);
  });
}

std::string test_name(const OperatorCase& each) {
  std::string name;
  for (const char c : each.name) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

std::string error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace trireme::spmd::spmd_test
