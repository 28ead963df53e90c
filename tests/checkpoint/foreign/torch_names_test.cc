#include "trireme/checkpoint/foreign/torch_archive.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

namespace trireme::checkpoint {
namespace {

// state_dict_source_test compares them with PyTorch's.
TEST(TorchNames, ADtypeIsFoundByItselfItsNameAndItsStorage) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kBool, at::kFloat8_e5m2}) {
    const TorchName* known = find_torch_name(dtype);
    ASSERT_NE(known, nullptr);
    EXPECT_EQ(find_torch_name(known->name), known);
    if (!known->storage.empty()) {
      EXPECT_EQ(find_torch_name(known->storage), known);
    }
  }
  EXPECT_EQ(find_torch_name(at::kQInt8), nullptr);
  EXPECT_EQ(find_torch_name("torch.load"), nullptr);
  EXPECT_EQ(find_torch_name(""), nullptr);
}

TEST(TorchNames, TheListHasEachNameOnce) {
  const auto names = torch_names({"torch.Size"});
  EXPECT_EQ(std::ranges::count(names, ""), 0);
  EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
  EXPECT_EQ(std::ranges::count(names, "torch.Size"), 1);
}

}  // namespace
}  // namespace trireme::checkpoint
