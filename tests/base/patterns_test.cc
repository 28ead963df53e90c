#include "trireme/base/patterns.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(NamePattern, MatchesTheWholeName) {
  EXPECT_TRUE(matches("*.bias", "h.0.attn.bias"));
  EXPECT_TRUE(matches("*norm*", "model.layers.1.input_layernorm.weight"));
  EXPECT_TRUE(matches("h.?.w", "h.3.w"));
  EXPECT_TRUE(matches("h.[01].w", "h.1.w"));
  EXPECT_TRUE(matches("lm_head.weight", "lm_head.weight"));
  EXPECT_FALSE(matches("bias", "h.0.attn.bias"));
  EXPECT_FALSE(matches("*.bias", "h.0.attn.bias.scale"));
  EXPECT_FALSE(matches("h.?.w", "h.13.w"));
}

TEST(NamePattern, OneOfSeveralIsEnough) {
  EXPECT_TRUE(matches_any("h.*, lm_head.*", "lm_head.weight"));
  EXPECT_FALSE(matches_any("h.*, lm_head.*", "norm.weight"));
  EXPECT_FALSE(matches_any("", ""));
}

TEST(NamePattern, ListsAreSplitAndTrimmed) {
  using List = std::vector<std::string>;
  EXPECT_EQ(split_list(" a b ,c,", ','), List({"a b", "c"}));
  EXPECT_EQ(split_list("", ','), List());
  EXPECT_EQ(split_list(" , ", ','), List());
  EXPECT_EQ(split_list("\n*.bias\t", ';'), List({"*.bias"}));
}

TEST(NamePattern, BlanksAreTrimmed) {
  EXPECT_EQ(trimmed(" \t a b\r\n"), "a b");
  EXPECT_EQ(trimmed("a"), "a");
  EXPECT_EQ(trimmed(" \n "), "");
  EXPECT_EQ(trimmed(""), "");
}

}  // namespace
}  // namespace trireme
