#include "trireme/tasks/export/export_source.h"

#include <limits>
#include <map>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved_tensors.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/checkpoint/tensor_boxes.h"

namespace trireme::tasks {
namespace {

using checkpoint::checkpoint_error;
using checkpoint::Global;
using model::HuggingFaceTensor;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kNumRanks = 2;

class ExportSourceTest : public ::testing::Test {
 protected:
  void save(const std::map<std::string, at::Tensor>& tensors) {
    std::vector<Global> globals;
    for (const auto& [name, tensor] : tensors) {
      globals.push_back({name, tensor,
                         mesh::Layout(tensor.sizes().vec(), {{"tensor", kNumRanks}},
                                      {mesh::Placement::sharded(0)})});
    }
    checkpoint::save_all(root_.path(), 1, globals, kNumRanks);
    manifest_ = checkpoint::read_manifest(folder_);
  }
  ExportSource source(c10::ScalarType dtype = at::kFloat) const {
    return {folder_, manifest_, dtype, train::Weights::kLast};
  }

  harness::TemporaryFolder root_;
  const std::filesystem::path folder_ = root_ / "step-000001";
  checkpoint::Manifest manifest_;
};

TEST_F(ExportSourceTest, PartsOfAnySizeMakeTheWholeTensor) {
  const std::map<std::string, at::Tensor> stored = {{"k", at::randn({4, 6})},
                                                    {"q", at::randn({4, 6})},
                                                    {"v", at::randn({4, 6})},
                                                    {"bias", at::randn({5})},
                                                    {"experts", at::randn({3, 5, 2})}};
  save(stored);
  for (const HuggingFaceTensor& tensor :
       {HuggingFaceTensor{.name = "one", .shape = {4, 6}, .parts = {"q"}},
        HuggingFaceTensor{.name = "bias", .shape = {5}, .parts = {"bias"}},
        HuggingFaceTensor{.name = "joined", .shape = {12, 6}, .parts = {"q", "k", "v"}},
        HuggingFaceTensor{
            .name = "turned", .shape = {6, 12}, .parts = {"q", "k", "v"}, .is_transposed = true},
        HuggingFaceTensor{.name = "slice", .shape = {5, 2}, .parts = {"experts"}, .slice = 1},
        HuggingFaceTensor{.name = "turned slice",
        .shape = {2, 5},
        .parts = {"experts"},
        .is_transposed = true,
        .slice = 2}}) {
    std::vector<at::Tensor> parameters;
    for (const std::string& name : tensor.parts) parameters.push_back(stored.at(name));
    const at::Tensor expected = model::join_parts(tensor, parameters);
    for (const uint64_t most : {4, 8, 20, 24, 100, 1000}) {
      ExportSource source = this->source();
      source.check(tensor);
      const checkpoint::TensorParts parts(tensor.shape, 4, most);
      std::vector<at::Tensor> flat;
      for (int64_t i = 0; i < parts.size(); ++i)
        flat.push_back(source.read(tensor, parts.at(i)).contiguous().flatten());
      harness::assert_same_bits(at::cat(flat), expected.contiguous().flatten(), tensor.name);
    }
  }
}

TEST_F(ExportSourceTest, WhatTheModelDoesNotHaveIsRefusedBeforeItIsRead) {
  save({{"a", at::ones({4, 6})}, {"experts", at::ones({3, 5, 2})}});
  const auto refusal = [&](const HuggingFaceTensor& tensor) {
    return checkpoint_error([&] { source().check(tensor); });
  };
  EXPECT_THAT(refusal({.name = "x", .shape = {4, 6}, .parts = {"b"}}),
              AllOf(HasSubstr("step-000001"), HasSubstr("no tensor \"b\" among its 2")));
  EXPECT_THAT(refusal({.name = "x", .shape = {5, 6}, .parts = {"a"}}),
              AllOf(HasSubstr("\"a\" has the shape [4, 6]"), HasSubstr("the model's is [5, 6]")));
  EXPECT_THAT(refusal({.name = "x", .shape = {4, 6}, .parts = {"a"}, .is_transposed = true}),
              HasSubstr("the model's is [6, 4]"));
  EXPECT_THAT(refusal({.name = "x", .shape = {8, 6}, .parts = {"a", "experts"}}),
              HasSubstr("\"experts\" has the shape [3, 5, 2]"));
  EXPECT_THAT(refusal({.name = "x", .shape = {5, 2}, .parts = {"experts"}, .slice = 3}),
              HasSubstr("the model's is [4, 5, 2]"));
}

TEST_F(ExportSourceTest, AllValuesThatAreNotFiniteAreCounted) {
  at::Tensor values = at::ones({4, 6});
  values[1][2] = values[3][5] = std::numeric_limits<float>::quiet_NaN();
  save({{"a", values}});
  const HuggingFaceTensor tensor{.name = "x", .shape = {4, 6}, .parts = {"a"}};
  ExportSource source = this->source();
  source.read(tensor, {{0, 0}, {1, 6}});
  EXPECT_THAT(checkpoint_error([&] {
                source.read(tensor, {{1, 0}, {1, 6}});
              }),
              HasSubstr("2 of the 24 values of \"a\" are NaN"));
}

}  // namespace
}  // namespace trireme::tasks
