// Modules with drawn annotations on ranks, beside the same on one rank: results and gradients.
#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "tests/harness/ranks.h"
#include "tests/spmd/annotated_modules.h"
#include "trireme/base/error.h"

namespace trireme::spmd {
namespace {

using namespace spmd_test;

Splits drawn_splits(harness::Draw& draw, const std::vector<mesh::Axis>& axes, size_t dims) {
  Splits splits;
  for (const mesh::Axis& axis : axes) {
    const size_t kind = draw.below(dims + 1);
    if (kind > 0) splits = splits.split(static_cast<int>(kind) - 1, axis.name);
  }
  return splits;
}

Annotations drawn_notes(harness::Draw& draw, const ModuleCase& each, size_t output_dims,
                        const std::vector<mesh::Axis>& axes) {
  Annotations notes{.seed = 7};
  for (const auto& [name, sizes] : each.parameters()) {
    // A weight that two modules share has two names: both are left as they are.
    if (each.name == "TiedExperts" && sizes == std::vector<int64_t>{6, 6}) continue;
    if (draw.below(3) > 0)
      notes.parameters.push_back({name, drawn_splits(draw, axes, sizes.size())});
  }
  for (const at::Tensor& input : each.inputs) {
    const std::string name = "x" + std::to_string(notes.inputs.size());
    notes.inputs.push_back({name, drawn_splits(draw, axes, input.sizes().size())});
  }
  if (draw.below(2) > 0) notes.outputs = {{"y", drawn_splits(draw, axes, output_dims)}};
  return notes;
}

void expect_values(const at::Tensor& found, const at::Tensor& expected, const std::string& what) {
  ASSERT_TRUE(found.defined()) << what;
  ASSERT_EQ(found.sizes(), expected.sizes()) << what;
  const double scale = std::max(1.0, expected.abs().max().item<double>());
  EXPECT_LE((found - expected).abs().max().item<double>(), 1e-10 * scale) << what;
}

class AnnotatedModules : public ::testing::TestWithParam<size_t> {};

TEST_P(AnnotatedModules, GiveWhatOneRankComputesHoweverTheyAreSplit) {
  const ModuleCase& each = module_cases()[GetParam()];
  const ModuleResult expected = each.run(nullptr, {.seed = 7});
  const std::vector<std::vector<mesh::Axis>> meshes = {{{"tensor", 1}},
                                                       {{"tensor", 2}},
                                                       {{"data", 3}},
                                                       {{"tensor", 4}},
                                                       {{"data", 2}, {"tensor", 2}}};
  for (const auto& axes : meshes) {
    int size = 1;
    for (const mesh::Axis& axis : axes) size *= axis.size;
    for (uint64_t seed = 0; seed < 10; ++seed) {
      harness::Draw draw(100 * GetParam() + seed);
      const Annotations notes = drawn_notes(draw, each, expected.y.dim(), axes);
      harness::run_ranks(size, [&](comm::Communicator& world) {
        const mesh::DeviceMesh mesh(world, axes);
        const std::string what = concat(each.name, ", ", size, " ranks, seed ", seed);
        try {
          const ModuleResult found = each.run(&mesh, notes);
          expect_values(found.y, expected.y, what);
          ASSERT_EQ(found.gradients.size(), expected.gradients.size());
          for (const auto& [name, gradient] : expected.gradients)
            expect_values(found.gradients.at(name), gradient, what + ", gradient of " + name);
        } catch (const std::exception& error) {
          ADD_FAILURE() << what << ": " << error.what();
          throw;
        }
      });
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modules, AnnotatedModules,
                         ::testing::Range<size_t>(0, module_cases().size()),
                         [](const auto& info) { return module_cases()[info.param].name; });

}  // namespace
}  // namespace trireme::spmd
