// Rows of metrics for tests.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/watch/series/metric_columns.h"

namespace trireme::watch {

// fields: behind the step, such as "\"loss\":1"
inline void add_row(MetricColumns& metrics, int64_t step, const std::string& fields) {
  MetricLine line;
  const std::string text = concat("{\"step\":", step, ",", fields, "}");
  ASSERT_TRUE(line.read(text) && metrics.add(line)) << text;
}

}  // namespace trireme::watch
