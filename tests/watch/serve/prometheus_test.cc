#include "trireme/watch/serve/prometheus.h"

#include <gtest/gtest.h>

#include "tests/watch/serve/small_run.h"

namespace trireme::watch {
namespace {

TEST(Prometheus, NamesAndLabelsKeepToTheFormat) {
  EXPECT_EQ(prometheus_name("memory_bytes/weights"), "memory_bytes_weights");
  EXPECT_EQ(prometheus_name("</a>\n"), "__a__");
  EXPECT_EQ(prometheus_label("a\"b\\c\nd\xff\xc3\xa9"), "a\\\"b\\\\c\\nd?\xc3\xa9");
  EXPECT_EQ(prometheus_help("a \"column\"\nb\\"), "a \"column\"\\nb\\\\");
}

TEST(Prometheus, NamesThatBecomeOneHaveOneSample) {
  SmallRun small;
  small.put("metrics.jsonl", "{\"step\":1,\"a/b\":1,\"a_b\":2}\n");
  const std::string text = prometheus_text(small.runs());
  const size_t first = text.find("\ntrireme_a_b{");
  ASSERT_NE(first, text.npos) << text;
  EXPECT_EQ(text.find("\ntrireme_a_b{", first + 1), text.npos) << text;
}

TEST(Prometheus, HasTheLastValuesAndTheState) {
  SmallRun small;
  small.put("run.json", R"({"version": "0.1.0", "revision": "abc"})");
  const std::string text = prometheus_text(small.runs());
  const std::string run = "{run=\"" + small.runs().name(0) + "\"";
  EXPECT_NE(text.find("\ntrireme_loss" + run + "} 1.25\n"), text.npos) << text;
  EXPECT_NE(text.find("\ntrireme_step" + run + "} 3\n"), text.npos);
  EXPECT_NE(text.find("\ntrireme_run_state" + run + ",state=\"finished\"} 1\n"), text.npos);
  EXPECT_NE(text.find("\ntrireme_run_state" + run + ",state=\"running\"} 0\n"), text.npos);
  EXPECT_NE(text.find("# TYPE trireme_loss gauge\n"), text.npos);
  EXPECT_NE(text.find("\ntrireme_run_info" + run + ",version=\"0.1.0\",revision=\"abc\"} 1\n"),
            text.npos);
  EXPECT_TRUE(text.ends_with("\n"));
}

}  // namespace
}  // namespace trireme::watch
