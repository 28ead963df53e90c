#include "trireme/train/overlap_choice.h"

#include <thread>

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"

namespace trireme::train {
namespace {

TEST(OverlapChoice, IsWhatTheConfigSays) {
  harness::run_ranks(1, [](comm::Communicator& world) {
    for (const bool on : {false, true}) {
      OverlapChoice choice(on ? "on" : "off", world);
      for (int step = 0; step < 10; ++step) {
        choice.begin_step();
        EXPECT_EQ(*choice.flag(), on);
        EXPECT_FALSE(choice.end_step());
      }
    }
  });
}

// The slower way sleeps on one rank alone; all ranks must decide alike, and say so once.
TEST(OverlapChoice, IsTheWayInWhichTheSlowestRankIsFaster) {
  for (const bool slow : {false, true}) {
    harness::run_ranks(3, [slow](comm::Communicator& world) {
      OverlapChoice choice("auto", world);
      int lines = 0;
      for (int step = 0; step < 12; ++step) {
        choice.begin_step();
        if (*choice.flag() == slow && world.rank() == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(40));
        }
        if (const auto line = choice.end_step()) {
          ++lines;
          EXPECT_NE(line->find(slow ? "parallel off:" : "parallel on:"), std::string::npos)
              << *line;
        }
      }
      EXPECT_EQ(lines, 1);
      EXPECT_EQ(*choice.flag(), !slow);
    });
  }
}

}  // namespace
}  // namespace trireme::train
