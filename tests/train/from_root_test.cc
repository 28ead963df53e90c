#include "trireme/train/from_root.h"

#include <atomic>
#include <stdexcept>

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

TEST(FromRoot, GivesEveryRankWhatRank0Found) {
  for (const int size : {1, 2, 3, 4}) {
    for (const std::string text : {"", "some/path", "+c-k\n"}) {
      std::atomic<int> calls = 0;
      harness::run_ranks(size, [&](comm::Communicator& world) {
        EXPECT_EQ(from_root(world,
                            [&] {
                              ++calls;
                              return text;
                            }),
                  text);
      });
      EXPECT_EQ(calls, 1);
    }
  }
}

template <typename Expected, typename Thrown>
void expect_on_all(const char* message) {
  harness::run_ranks(3, [&](comm::Communicator& world) {
    const auto fail = [&]() -> std::string { throw Thrown(message); };
    EXPECT_EQ(harness::message_of<Expected>([&] { from_root(world, fail); }), message);
    // The group goes on.
    EXPECT_EQ(from_root(world, [] { return std::string("then"); }), "then");
  });
}

TEST(FromRoot, ThrowsRank0sErrorOnEveryRank) {
  expect_on_all<ConfigError, ConfigError>("a key is wrong");
  expect_on_all<CheckpointError, CheckpointError>("a checkpoint is damaged");
  expect_on_all<Error, Error>("a disk is full");
  expect_on_all<Error, std::runtime_error>("something else");
}

}  // namespace
}  // namespace trireme::train
