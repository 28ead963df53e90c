#include "trireme/train/parallel/overlap_choice.h"

#include <cstdint>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "trireme/comm/shared/thread_group.h"

namespace trireme::train {
namespace {

TEST(OverlapChoice, IsWhatTheConfigSays) {
  harness::run_ranks(1, [](comm::Communicator& world) {
    for (const bool on : {false, true}) {
      OverlapChoice choice(on ? AsyncTensor::kOn : AsyncTensor::kOff, world,
                           {nullptr, "tensor", 1});
      for (int step = 0; step < 10; ++step) {
        choice.begin_step();
        EXPECT_EQ(*choice.flag(), on);
        EXPECT_FALSE(choice.end_step({}));
      }
    }
  });
}

// The slower way takes longer on one rank only; all ranks must decide alike, and say so once.
TEST(OverlapChoice, IsTheWayInWhichTheSlowestRankIsFaster) {
  for (const bool slow : {false, true}) {
    harness::run_ranks(3, [slow](comm::Communicator& world) {
      int64_t now = 0;
      OverlapChoice choice(AsyncTensor::kAuto, world, {nullptr, "tensor", 3},
                           [&now] { return now; });
      int lines = 0;
      for (int step = 0; step < 12; ++step) {
        choice.begin_step();
        now += 30'000'000 - 1'000'000 * world.rank();
        if (*choice.flag() == slow && world.rank() == 1) now += 2'000'000;
        if (const auto line = choice.end_step({})) {
          ++lines;
          EXPECT_EQ(*line,
                    slow ? "decided asynchronous tensor parallel off: 31.0 ms per step with it, "
                           "30.0 without"
                         : "decided asynchronous tensor parallel on: 30.0 ms per step with it, "
                           "31.0 without");
        }
      }
      EXPECT_EQ(lines, 1);
      EXPECT_EQ(*choice.flag(), !slow);
    });
  }
}

// Layers that say that they waited for none of it.
TEST(OverlapChoice, SaysOnceHowMuchIsHidden) {
  for (const AsyncTensor mode : {AsyncTensor::kOn, AsyncTensor::kAuto, AsyncTensor::kOff}) {
    const auto recorder = std::make_shared<comm::Recorder>(comm::RecorderOptions{});
    const auto groups = comm::make_thread_group(1, {.name = "tensor", .recorder = recorder});
    OverlapChoice choice(mode, *groups[0], {recorder, "tensor", 1});
    std::string lines;
    for (int step = 0; step < 12; ++step) {
      choice.begin_step();
      groups[0]->all_reduce(at::ones({64}))->wait();
      const Span always{0, std::numeric_limits<int64_t>::max()};
      lines += choice.end_step({.window = always}).value_or("");
    }
    const std::string hides = "it hides 100 % of its communication";
    EXPECT_EQ(lines.find(hides) == std::string::npos, mode == AsyncTensor::kOff) << lines;
    EXPECT_EQ(lines.find(hides), lines.rfind(hides)) << lines;
    EXPECT_EQ(lines.find("ms per step with it") == std::string::npos, mode != AsyncTensor::kAuto)
        << lines;
  }
}

}  // namespace
}  // namespace trireme::train
