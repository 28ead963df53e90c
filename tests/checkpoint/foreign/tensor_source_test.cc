#include "trireme/checkpoint/foreign/tensor_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/foreign/torch_files.h"
#include "tests/checkpoint/saved.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::checkpoint {
namespace {

using harness::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of_path(const std::filesystem::path& path) {
  return checkpoint_error([&] { open_tensors(path); });
}

TEST(TensorSource, ASafetensorsFileIsReadUnderAnyNameAndInAFolder) {
  const TemporaryFolder folder;
  const std::map<std::string, at::Tensor> tensors = {{"a", random_tensor("a", {3, 5}, at::kFloat)},
                                                     {"b", random_tensor("b", {0, 4}, at::kHalf)}};
  write_safetensors(folder / "model.safetensors", tensors);
  write_safetensors(folder / "weights.bin", tensors);
  for (const auto& path : {folder.path(), folder / "model.safetensors", folder / "weights.bin"}) {
    const auto source = open_tensors(path);
    EXPECT_EQ(source->kind(), "a safetensors file");
    ASSERT_EQ(source->tensors().size(), tensors.size());
    for (const auto& [name, tensor] : tensors) {
      EXPECT_EQ(source->tensors().at(name).shape, tensor.sizes().vec());
      harness::assert_same_bits(source->read(name), tensor, name);
      expect_parts(*source, name, tensor);
    }
    EXPECT_THAT(checkpoint_error([&] { source->read("c"); }), HasSubstr("no tensor \"c\""));
  }
}

TEST(TensorSource, WhateverIsNoneOfTheFormsIsRefused) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of_path(folder / "none"), HasSubstr("/none: No such file"));
  EXPECT_THAT(error_of_path(folder.path()), AllOf(HasSubstr("is a folder without tensors"),
                                                  HasSubstr("model.safetensors.index.json")));
  EXPECT_THAT(error_of_path("/dev/null"), HasSubstr("not a regular file"));
  overwrite(folder / "empty", "");
  EXPECT_THAT(error_of_path(folder / "empty"), HasSubstr("is not a file of tensors"));
  overwrite(folder / "text", "some text that is not a file of tensors");
  EXPECT_THAT(error_of_path(folder / "text"), HasSubstr("is not a file of tensors"));
  std::filesystem::create_directory(folder / "model.safetensors");
  EXPECT_THAT(error_of_path(folder.path()), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace trireme::checkpoint
