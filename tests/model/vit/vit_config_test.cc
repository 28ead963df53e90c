#include "trireme/model/vit/vit_config.h"

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "tests/model/vit/small_vit.h"
#include "trireme/base/error.h"

namespace trireme::model {
namespace {

// The message of the refusal has each of `parts` and one line.
void expect_refused(const std::function<void(VitConfig&)>& change,
                    const std::vector<std::string>& parts) {
  VitConfig config = small_vit();
  change(config);
  try {
    validate(config);
    FAIL() << parts.front() << " was accepted";
  } catch (const ConfigError& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    for (const std::string& part : parts) EXPECT_NE(what.find(part), std::string::npos) << what;
  }
}

TEST(VitConfig, WhatCannotBeIsRefusedWithItsKeyAndValue) {
  EXPECT_NO_THROW(validate(small_vit()));
  expect_refused([](auto& c) { c.image_size = 0; }, {"images of 3 x 0 x 0"});
  expect_refused([](auto& c) { c.patch_size = -2; }, {"model.patch_size = -2"});
  expect_refused([](auto& c) { c.channels = 0; }, {"images of 0 x 6 x 6"});
  expect_refused([](auto& c) { c.layers = 0; }, {"model.layers = 0"});
  expect_refused([](auto& c) { c.width = 0; }, {"model.width = 0"});
  expect_refused([](auto& c) { c.heads = 0; }, {"model.heads = 0"});
  expect_refused([](auto& c) { c.ffn_width = 0; }, {"model.ffn_width = 0"});
  expect_refused([](auto& c) { c.classes = -1; }, {"model.classes = -1", "from the data"});
  expect_refused([](auto& c) { c.norm_epsilon = 0; }, {"model.norm_epsilon = 0"});
  expect_refused([](auto& c) { c.dropout = 1; }, {"model.dropout = 1"});
  expect_refused([](auto& c) { c.patch_size = 4; },
                 {"model.patch_size = 4", "images' size, 6", "expected a divisor"});
  expect_refused([](auto& c) { c.patch_size = 12; }, {"model.patch_size = 12"});
  expect_refused([](auto& c) { c.heads = 5; }, {"model.heads = 5", "model.width = 24"});
  expect_refused(
      [](auto& c) {
        c.image_size = 1 << 14;
        c.patch_size = 2;
      },
      {"67108865 tokens", "at most 16777216"});
}

TEST(VitConfig, ClassesMayBeLeftToTheData) {
  VitConfig config = small_vit();
  config.classes = 0;
  EXPECT_NO_THROW(validate(config));
}

TEST(VitConfig, CountsItsTokensAndPixels) {
  const VitConfig base = vit_preset("vit_b16");
  EXPECT_EQ(base.num_patches(), 196);
  EXPECT_EQ(base.num_tokens(), 197);
  EXPECT_EQ(base.patch_elements(), 768);
  EXPECT_EQ(base.block_config().sequence_length, 197);
  EXPECT_EQ(base.block_config().kv_heads, 12);
}

TEST(VitConfig, AnUnknownPresetIsRefusedWithAllNames) {
  EXPECT_EQ(vit_preset("vit_s16").width, VitConfig{}.width);
  try {
    vit_preset("vit_x1");
    FAIL() << "vit_x1 is no preset";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("vit_s16, vit_b16"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace trireme::model
