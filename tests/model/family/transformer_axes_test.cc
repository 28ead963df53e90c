#include "trireme/model/family/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const ModelConfig kModel{
    .width = 24, .heads = 6, .kv_heads = 6, .ffn_width = 48, .sequence_length = 5, .vocab_size = 9};

std::string refusal(const TransformerAxes& axes) {
  return harness::message_of<ConfigError>(
      [&] { check_axes(kModel, axes, "model.sequence_length"); });
}

TEST(TransformerAxes, HeadsAndTokensLimitThem) {
  for (const int64_t tensor : {1, 2, 3, 6}) {
    for (const int64_t context : {1, 2, 5}) {
      EXPECT_EQ(refusal({.tensor = tensor, .context = context}), "");
    }
  }
  EXPECT_THAT(refusal({.tensor = 7}), HasSubstr("7"));
  EXPECT_THAT(refusal({.context = 6}),
              AllOf(HasSubstr("parallel.context is 6"), HasSubstr("model.sequence_length 5,")));
}

TEST(TransformerAxes, TheAllToAllFormSharesHeads) {
  const auto form = parallel::ContextForm::kAllToAll;
  EXPECT_EQ(refusal({.context = 3, .context_form = form}), "");
  EXPECT_THAT(refusal({.tensor = 3, .context = 4, .context_form = form}),
              AllOf(HasSubstr("a tensor rank has 2 heads"), HasSubstr("\"ring\"")));
}

}  // namespace
}  // namespace trireme::model
