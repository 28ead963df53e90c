#include "trireme/cli/train/memory_table.h"

#include <gmock/gmock.h>

#include "trireme/base/locale/text.h"

namespace trireme::cli {
namespace {

using testing::HasSubstr;

constexpr double kMiB = 1 << 20;

void expect_narrow(const std::string& text) {
  TextReader lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80) << line;
}

TEST(MemoryTable, HasBothColumnsAndNamesTheKindThatIsFurthestOff) {
  const BytesByKind planned{100 * kMiB, 100 * kMiB, 200 * kMiB, 300 * kMiB, 0, 12 * kMiB, 0};
  BytesByKind measured = planned;
  measured[3] = 240 * kMiB;
  measured[4] = kMiB;
  const std::string table = memory_table(planned, measured);
  EXPECT_THAT(table, HasSubstr("memory  at the peak      planned    measured\n"));
  EXPECT_THAT(table, HasSubstr("memory  activations    300.0 MiB   240.0 MiB   -20.0 %\n"));
  EXPECT_THAT(table, HasSubstr("memory  gathered             0 B     1.0 MiB\n"));
  EXPECT_THAT(table, HasSubstr("memory  sum of these   712.0 MiB   653.0 MiB    -8.3 %\n"));
  EXPECT_THAT(table, HasSubstr("furthest from the plan: activations, 60.0 MiB below it\n"));
  expect_narrow(table);
}

TEST(MemoryTable, WithoutAPlanHasWhatWasMeasured) {
  const std::string table = memory_table(std::nullopt, {kMiB});
  EXPECT_THAT(table, HasSubstr("memory  weights          1.0 MiB\n"));
  EXPECT_THAT(table, Not(HasSubstr("plan")));
}

TEST(MemoryTable, ThePlanIsWrapped) {
  const double large = 1023.9 * (1 << 30);
  expect_narrow(planned_lines({large, large, large, large, large, large, large}));
  EXPECT_EQ(planned_lines({124.1 * kMiB, 62 * kMiB, 124 * kMiB, 36 * kMiB, 0, 12 * kMiB, 0}),
            "planned 358.1 MiB per rank: weights 124.1 MiB, gradients 62.0 MiB,\n"
            "        states 124.0 MiB, activations 36.0 MiB, gathered 0 B, buckets 12.0 MiB,\n"
            "        other 0 B\n");
}

TEST(MemoryTable, NothingIsMeasuredOnGpus) {
  train::StepMetrics metrics;
  EXPECT_FALSE(measured_memory(metrics).has_value());
}

}  // namespace
}  // namespace trireme::cli
