#include "trireme/comm/known_losses.h"

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

// Returns when a loss is known, with what check_peers() says of it.
std::string await_loss(Communicator& group) {
  std::string message;
  while (message.empty()) {
    message = harness::message_of<CommError>([&] { check_peers(group, "data"); });
    std::this_thread::yield();
  }
  return message;
}

TEST(KnownLosses, ThereIsNoneWhileAllRanksAreThere) {
  for (const int size : {1, 2, 3, 4}) {
    harness::run_ranks(size, [](Communicator& world) {
      check_peers(world, "data");
      world.barrier()->wait();
    });
  }
}

TEST(KnownLosses, AnAbortByAPeerIsKnownWithoutACall) {
  harness::run_ranks(3, [](Communicator& world) {
    const auto group = world.split(0, world.rank(), "group");
    if (world.rank() == 1) group->abort("rank 1 has no disk");
    const std::string message = await_loss(*group);
    EXPECT_NE(message.find("while waiting for data: "), std::string::npos) << message;
    EXPECT_NE(message.find("rank 1 has no disk"), std::string::npos) << message;
    EXPECT_THROW(group->barrier()->wait(), CommError);
    world.barrier()->wait();
  });
}

TEST(KnownLosses, ADeadProcessIsKnownWithoutACall) {
  const auto exits = harness::fork_ranks(3, [](Communicator& world) {
    world.barrier()->wait();
    if (world.rank() == 2) std::_Exit(7);
    const std::string message = await_loss(world);
    EXPECT_NE(message.find("rank 2"), std::string::npos) << message;
  });
  EXPECT_EQ(exits, (std::vector<harness::ExitStatus>{0, 0, 7}));
}

}  // namespace
}  // namespace trireme::comm
