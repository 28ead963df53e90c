#include "trireme/train/annotated/note_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"

namespace trireme::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

spmd::Annotations own_notes() {
  return {.parameters = {{"fc1.*", spmd::split(0, "tensor")}},
          .inputs = {{"x", spmd::split(0, "data")}, {"z", {}}},
          .seed = 4};
}

TEST(NoteText, ReadsWhatItWrites) {
  spmd::Annotations all = own_notes();
  all.parameters.push_back({"fc2.weight", spmd::split(1, "tensor").split(0, "data")});
  all.inputs[1].splits = spmd::split(0, "tensor");
  all.step = {
      .num_forward = 3,
      .num_backward = 4,
      .forward_mark = ~uint64_t{0},
      .backward_mark = 7,
      .arguments = {{2, "aten::mm", 1, spmd::partial("tensor")}, {5, "aten::add.Tensor", 0, {}}}};
  const std::string text = note_text(all, own_notes());
  EXPECT_THAT(text, Not(HasSubstr("\n")));
  EXPECT_THAT(text, Not(HasSubstr("fc1")));
  const spmd::Annotations read = with_notes(own_notes(), text);
  ASSERT_EQ(read.parameters.size(), 2u);
  EXPECT_EQ(read.parameters[1].name, "fc2.weight");
  EXPECT_EQ(read.parameters[1].splits, all.parameters[1].splits);
  EXPECT_EQ(read.inputs[0].splits, all.inputs[0].splits);
  EXPECT_EQ(read.inputs[1].splits, all.inputs[1].splits);
  EXPECT_EQ(read.step, all.step);
  EXPECT_EQ(split_text(all.parameters[1].splits), "tensor:1,data:0");
}

TEST(NoteText, RefusesOtherTextsInOneLine) {
  const std::string good = note_text(own_notes(), own_notes());
  EXPECT_TRUE(with_notes(own_notes(), "").step.empty());
  for (const std::string& bad :
       {std::string("x"), std::string("{}"), std::string("[1]"), good.substr(1),
        std::string(R"({"parameters":{"a":"tensor"},"inputs":{},"operators":[],"arguments":[]})"),
        std::string(R"({"parameters":{},"inputs":{"w":""},"operators":[],"arguments":[]})"),
        std::string(R"({"parameters":{},"inputs":{},"operators":[1,"g",1,"0"],"arguments":[]})")}) {
    const std::string refusal =
        harness::message_of<ConfigError>([&] { with_notes(own_notes(), bad); });
    EXPECT_THAT(refusal, HasSubstr("parallel.notes")) << bad;
    EXPECT_THAT(refusal, Not(HasSubstr("\n"))) << bad;
  }
}

}  // namespace
}  // namespace trireme::train
