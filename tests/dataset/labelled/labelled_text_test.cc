#include "trireme/dataset/labelled/labelled_text.h"

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

std::string refusal_of(std::string_view line) {
  return harness::message_of<ConfigError>([&] { read_labelled_text(line, "a.jsonl:7"); });
}

TEST(LabelledText, HasALabelThatIsAStringOrAnInteger) {
  const LabelledText named =
      read_labelled_text(R"({"id": 3, "text": "gr\u00fcn\n", "label": "positive"})", "a.jsonl:7");
  EXPECT_EQ(named.text, "gr\u00fcn\n");
  EXPECT_EQ(named.label, "positive");
  EXPECT_EQ(read_labelled_text(R"({"text": "", "label": -2})", "a.jsonl:7").label, "-2");
}

TEST(LabelledText, RefusesALineThatIsNoRow) {
  for (const char* line :
       {"", "[]", "{", R"({"label": 1})", R"({"text": "a"})", R"({"text": 1, "label": 1})",
        R"({"text": "a", "label": NaN})", R"({"text": "a", "label": null})",
        R"({"text": "a", "label": 1.0})", R"({"text": "a", "label": true})",
        R"({"text": "a", "label": ""})", R"({"text": "a", "label": "b\n"})",
        R"({"text": "a", "label": 18446744073709551615})",
        R"({"text": "a", "text_pair": "b", "label": 1})"}) {
    const std::string message = refusal_of(line);
    EXPECT_EQ(message.find("a.jsonl:7"), 0U) << line << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  EXPECT_NE(refusal_of(R"({"text": "a", "label": null})").find("label is null"), std::string::npos);
  EXPECT_NE(refusal_of(R"({"text": "a", "text_pair": "b", "label": 1})").find("token types"),
            std::string::npos);
}

TEST(LabelledText, RefusesALabelThatIsTooLong) {
  const auto line = [](size_t num_bytes) {
    return concat(R"({"text": "a", "label": ")", std::string(num_bytes, 'x'), "\"}");
  };
  EXPECT_EQ(read_labelled_text(line(kMaxLabelBytes), "a").label.size(), kMaxLabelBytes);
  EXPECT_NE(refusal_of(line(kMaxLabelBytes + 1)), "");
}

}  // namespace
}  // namespace trireme::dataset
