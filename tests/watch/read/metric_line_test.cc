#include "trireme/watch/read/metric_line.h"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

namespace trireme::watch {
namespace {

// "loss=1.5 list=[1,2]", in the order of the line.
std::string outline(const MetricLine& line) {
  std::string text;
  for (const MetricField& field : line.fields()) {
    text += (text.empty() ? "" : " ") + std::string(field.name) + (field.is_list ? "=[" : "=");
    for (const double value : line.values_of(field))
      text += (std::isnan(value) ? "nan" : std::to_string(value).substr(0, 4)) + ",";
    text.pop_back();
    if (field.is_list) text += "]";
  }
  return text;
}

TEST(MetricLine, ReadsNumbersListsFlagsAndNull) {
  MetricLine line;
  ASSERT_TRUE(line.read(
      R"({"step": 7, "loss": 2.5, "norm": null, "skipped": true, "experts": [1, 2, null], "epoch": 3})"));
  EXPECT_EQ(line.step(), 7);
  EXPECT_EQ(line.epoch(), 3);
  EXPECT_EQ(outline(line), "loss=2.50 norm=nan skipped=1.00 experts=[1.00,2.00,nan] epoch=3.00");
}

TEST(MetricLine, DigitsKeepTheirBits) {
  MetricLine line;
  ASSERT_TRUE(line.read(R"({"step":1,"loss":4.8718721955962687})"));
  EXPECT_EQ(line.values_of(line.fields()[0])[0], 4.8718721955962687);
}

TEST(MetricLine, ReadsWhatOtherProgramsWrite) {
  MetricLine line;
  ASSERT_TRUE(
      line.read("\t{ \"a\\u0062\" : 1e2 , \"step\" : 4, \"text\":\"x\", \"o\":{\"p\":1}} "));
  EXPECT_EQ(line.step(), 4);
  EXPECT_EQ(outline(line), "ab=100.");
  ASSERT_TRUE(line.read("{\"</script>\": 1, \"step\": 1, \"\xc3\xa9\": 2}"));
  EXPECT_EQ(line.fields().size(), 2u);
}

TEST(MetricLine, RefusesWhatIsNoMetricOfAStep) {
  MetricLine line;
  for (const char* text :
       {"", "{", "[]", "3", "{}", R"({"loss":1})", R"({"step":-1})", R"({"step":1.5})",
        R"({"step":null})", R"({"step":1)", R"({"step":1}x)", R"({"step":[1]})", R"({"step":1,})",
        R"({"step":1e300})", R"({"step":1,"loss":})", "{\"step\":1,\"\xff\":2}",
        R"({"step":1,"loss":NaN})"}) {
    EXPECT_FALSE(line.read(text)) << text;
  }
}

TEST(MetricLine, LongNamesAreLeftOut) {
  MetricLine line;
  const std::string name(MetricLine::kMostNameBytes + 1, 'n');
  ASSERT_TRUE(line.read("{\"step\":1,\"" + name + "\":2,\"a\":3}"));
  EXPECT_EQ(outline(line), "a=3.00");
}

}  // namespace
}  // namespace trireme::watch
