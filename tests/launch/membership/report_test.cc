#include "trireme/launch/membership/report.h"

#include <string>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

HostReport example_report() {
  return {.id = "id-a",
          .name = "a",
          .address = "10.0.0.1",
          .port = 4711,
          .node_rank = 1,
          .num_workers = 2,
          .epoch = 3,
          .is_leaving = true,
          .notice = "signal 15",
          .is_ending = true,
          .keeps_workers = true,
          .program = "digest",
          .beat = 9,
          .clock_us = 12,
          .link_address = "10.0.0.2",
          .link_port = 4712,
          .links_known = 6,
          .unreached = {{"id-b", "no answer within 2 s"}},
          .workers = {{.state = WorkerState::kFailed,
                       .rank = 0,
                       .step = 5,
                       .first_step = 3,
                       .code = -1,
                       .signal = 9,
                       .message = "gone"},
                      {.state = WorkerState::kLeft, .rank = 1, .step = 5}},
          .observations = {{.rank = 1, .host = "a", .step = 5}}};
}

TEST(HostReport, IsReadAsItWasWritten) {
  const HostReport report = parse_report(to_json(example_report()), "a report");
  EXPECT_EQ(to_json(report), to_json(example_report()));
  EXPECT_EQ(report.workers[0].signal, 9);
  EXPECT_EQ(report.observations[0].step, 5);
}

TEST(HostReport, KeepsApartNoStepAndAnUnknownOne) {
  HostReport report = example_report();
  report.workers[0].step = 0;
  report.workers[1].step.reset();
  const HostReport read = parse_report(to_json(report), "a report");
  EXPECT_EQ(read.workers[0].step, 0);
  EXPECT_EQ(read.workers[1].step, std::nullopt);
}

TEST(HostReport, ReplacesBytesThatAreNotText) {
  HostReport report = example_report();
  report.workers[0].message = "bad \xff byte";
  EXPECT_NO_THROW(parse_report(to_json(report), "a report"));
}

TEST(HostReport, RefusesMoreWorkersThanTheHostRuns) {
  HostReport report = example_report();
  report.num_workers = 1;
  EXPECT_THROW(parse_report(to_json(report), "a report"), ConfigError);
}

TEST(HostReport, RefusesWhatIsNoReport) {
  for (const char* text : {"", "{}", "[]", "{\"id\": 3}"}) {
    EXPECT_THROW(parse_report(text, "a report"), ConfigError) << text;
  }
}

TEST(WorkerReport, IsDescribedInOneLine) {
  EXPECT_EQ(describe(example_report().workers[0], "host a"),
            "rank 0 on host a was killed by signal 9 (Killed, by someone or for lack of memory)");
  EXPECT_EQ(describe({.state = WorkerState::kFailed, .rank = 2, .code = 1, .message = "boom"}, "b"),
            "rank 2 on b exited with code 1: boom");
  EXPECT_EQ(describe({.state = WorkerState::kFailed, .rank = 2, .code = 1}, ""),
            "rank 2 exited with code 1");
}

}  // namespace
}  // namespace trireme::launch
