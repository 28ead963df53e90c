#include "trireme/parallel/pipeline/schedule/timeline_drawing.h"

#include <algorithm>
#include <sstream>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

struct Drawn {
  Schedule schedule;
  Timeline timeline;
};

Drawn draw_of(const char* name, int num_ranks, int num_microbatches) {
  const ScheduleOptions options{.num_ranks = num_ranks, .num_microbatches = num_microbatches};
  Drawn drawn{make_schedule(name, options), {}};
  drawn.timeline = make_timeline(drawn.schedule, options.costs);
  return drawn;
}

size_t count(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

TEST(TimelineDrawing, OneRowARankSaysWhatRunsWhen) {
  const auto [schedule, timeline] = draw_of("1f1b", 2, 2);
  EXPECT_EQ(draw_text(schedule, timeline),
            "rank 0  F0-F1-......B0====...B1====\n"
            "rank 1  ...F0-B0====F1-B1====......\n");
}

TEST(TimelineDrawing, PartsAndChunksHaveLettersOfTheirOwn) {
  const auto [schedule, timeline] = draw_of("zero-bubble-v", 1, 1);
  EXPECT_EQ(draw_text(schedule, timeline), "rank 0  F0a-F0b-I0b=I0a=W0b~W0a~\n");
}

TEST(TimelineDrawing, GoesOnInBandsThatFitTheWidth) {
  const auto [schedule, timeline] = draw_of("interleaved", 4, 16);
  const std::string text = draw_text(schedule, timeline, {.width = 80});
  std::istringstream lines(text);
  size_t rows = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80u);
    rows += !line.empty();
  }
  EXPECT_EQ(rows % 4, 0u);
  EXPECT_GT(rows, 4u);
  for (int microbatch = 0; microbatch < 16; ++microbatch)
    EXPECT_GE(count(text, concat("F", microbatch, "a")), 3u) << microbatch;
  EXPECT_THROW(draw_text(schedule, timeline, {.width = 8}), ConfigError);
}

TEST(TimelineDrawing, ColoursOnlyWhenAsked) {
  const auto [schedule, timeline] = draw_of("zero-bubble", 2, 3);
  EXPECT_EQ(count(draw_text(schedule, timeline), "\033"), 0u);
  const std::string text = draw_text(schedule, timeline, {.color = true});
  EXPECT_EQ(count(text, "\033[30;46m"), 6u);  // forwards
  EXPECT_EQ(count(text, "\033[30;42m"), 6u);  // input parts
  EXPECT_EQ(count(text, "\033[30;43m"), 6u);  // weight parts
  EXPECT_EQ(count(text, "~"), 0u);
}

TEST(TimelineDrawing, SvgHasABoxWithATitleForEachAction) {
  const auto [schedule, timeline] = draw_of("zero-bubble-v", 2, 4);
  const std::string svg = draw_svg(schedule, timeline, {.title = "V <&>", .unit = "ms"});
  EXPECT_EQ(svg.find("<svg xmlns="), 0u);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
  EXPECT_EQ(count(svg, "<title>forward of microbatch"), 16u);
  EXPECT_EQ(count(svg, "<title>weight part of the backward of microbatch"), 16u);
  EXPECT_EQ(count(svg, "forward of microbatch 0 on stage 0, 0 to 1 ms"), 1u);
  EXPECT_EQ(count(svg, "V &lt;&amp;&gt;"), 1u);
  EXPECT_EQ(count(svg, ">rank 1<"), 1u);
  EXPECT_EQ(count(svg, ">idle</text>"), 1u);
  EXPECT_EQ(count(svg, ">backward<"), 0u);  // no such action: not in the legend
}

}  // namespace
}  // namespace trireme::parallel
