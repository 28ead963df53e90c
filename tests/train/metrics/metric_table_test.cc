#include "trireme/train/metrics/metric_table.h"

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/train/metrics/metrics.h"

namespace trireme::train {
namespace {

TEST(MetricTable, FindsEveryMetricByItsNameInTheFile) {
  const StepMetrics metrics{.loss = 1,
                            .grad_norm = 2,
                            .others = {{"accuracy", 3}},
                            .validation_loss = 4,
                            .validation_others = {{"accuracy", 5}}};
  EXPECT_EQ(find_metric(metrics, "loss"), 1);
  EXPECT_EQ(find_metric(metrics, "grad_norm"), 2);
  EXPECT_EQ(find_metric(metrics, "accuracy"), 3);
  EXPECT_EQ(find_metric(metrics, "validation_loss"), 4);
  EXPECT_EQ(find_metric(metrics, "validation_accuracy"), 5);
  EXPECT_FALSE(find_metric(metrics, "validation_"));
  EXPECT_EQ(find_metric({.step_seconds = 6}, "step_seconds"), 6);
  EXPECT_EQ(find_metric({.unit = "images", .units_per_second = 7}, "images_per_second"), 7);
  EXPECT_FALSE(find_metric({.gradient_bytes = 8}, "gradient_bytes"));  // ranks differ
  EXPECT_FALSE(find_metric(StepMetrics(), "validation_loss"));
}

TEST(MetricTable, ReadsEveryValueThatItSets) {
  for (const MetricKind& kind : metric_kinds()) {
    SCOPED_TRACE(kind.name);
    StepMetrics metrics;
    set_value(kind, 1, metrics);
    EXPECT_EQ(value_of(kind, metrics), 1);
    EXPECT_NE(to_json(metrics).find(concat('"', name_of(kind, metrics), "\": ")),
              std::string::npos);
  }
  StepMetrics metrics{.peak_device_bytes = 3};
  for (const MetricKind& kind : metric_kinds()) {
    if (kind.name == "peak_device_bytes") set_value(kind, std::nullopt, metrics);
    if (kind.name == "step") EXPECT_THROW(set_value(kind, std::nullopt, metrics), InternalError);
  }
  EXPECT_FALSE(metrics.peak_device_bytes);
}

TEST(MetricTable, NamesNothingTwice) {
  std::set<std::string_view> names;
  for (const MetricKind& kind : metric_kinds()) EXPECT_TRUE(names.insert(kind.name).second);
  EXPECT_TRUE(names.contains(kBeforeOthers));
}

TEST(MetricTable, ValuesAreWrittenAsTheTableSays) {
  using enum MetricKind::Text;
  const double third = 1.0 / 3;
  EXPECT_EQ(text_of(kWhole, 12345678901), "12345678901");
  EXPECT_EQ(text_of(kShort, third), "0.333333");
  EXPECT_EQ(std::stod(text_of(kSameBits, third)), third);
  EXPECT_EQ(text_of(kMilliseconds, 1764187200.12345), "1764187200.123");
  EXPECT_EQ(text_of(kFlag, 1), "true");
  EXPECT_EQ(text_of(kSameBits, std::nan("")), "null");
}

std::string across_in_words(Across across) {
  switch (across) {
    case Across::kSame: return "the same on all";
    case Across::kMax: return "largest";
    case Across::kRoot: return "rank 0's";
  }
  return "";
}

std::string text_in_words(MetricKind::Text text) {
  switch (text) {
    case MetricKind::Text::kWhole: return "whole number";
    case MetricKind::Text::kShort: return "6 digits";
    case MetricKind::Text::kSameBits: return "17 digits";
    case MetricKind::Text::kMilliseconds: return "3 after the point";
    case MetricKind::Text::kFlag: return "`true`";
  }
  return "";
}

std::string metrics_page() {
  std::string page =
      "# Metrics\n\n"
      "A run writes one line of JSON per step to `metrics.jsonl` in its folder, and the metrics "
      "marked with a dot as scalars for\nTensorBoard. This page is made from "
      "[metric_table.cc](../../trireme/train/metrics/metric_table.cc); a test compares them. "
      "With [`watch.ranks`](keys.md),\nTensorBoard also gets `communication_seconds/<axis>`, the "
      "seconds of the rank that waited longest on an axis.\n\n"
      "| key | unit | over ranks | text | TensorBoard | meaning |\n|---|---|---|---|---|---|\n";
  for (const MetricKind& kind : metric_kinds()) {
    const std::string name =
        kind.name.starts_with('*') ? concat("<unit>", kind.name.substr(1)) : std::string(kind.name);
    page += concat("| `", name, "` | ", kind.unit, " | ", across_in_words(kind.across), " | ",
                   text_in_words(kind.text), " | ", kind.is_charted ? "•" : "", " | ", kind.meaning,
                   " |\n");
  }
  page +=
      "\nAfter `validation_loss` come the metrics of the [task](../guide/tasks.md) and of "
      "[callbacks](../guide/callbacks.md), those of an\nevaluation as `validation_<name>`, the "
      "losses of [named validation sets](../guide/data.md#named-validation-sets) as\n"
      "`validation_loss.<name>`, and lists such as the tokens of each expert, all with 17 digits. "
      "Saves add `checkpoint_stall_seconds`\n(s that training waited for a save) and "
      "`failed_checkpoints` (so far).\n\n"
      "A number that is not finite is `null`. Numbers with 17 digits are read back with the same "
      "bits. A metric without a value is\nleft out, except where its meaning says `null`.\n";
  return page;
}

// TRIREME_WRITE_DOCS=1 writes the page anew.
TEST(MetricTable, DocsPageIsMadeFromIt) {
  if (std::getenv("TRIREME_WRITE_DOCS") != nullptr) {
    std::ofstream(TRIREME_METRICS_DOC) << metrics_page();
  }
  EXPECT_EQ(read_file(TRIREME_METRICS_DOC), metrics_page())
      << "run this test with TRIREME_WRITE_DOCS=1";
}

}  // namespace
}  // namespace trireme::train
