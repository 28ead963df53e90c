#include "trireme/parallel/learner/difference_exchange.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/message/wires.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"
#include "trireme/comm/message/message_communicator.h"
#include "trireme/comm/recorder/recorder.h"

namespace trireme::parallel {
namespace {

at::Tensor drawn(int64_t n, int rank, at::ScalarType dtype) {
  return at::sin(at::arange(n, at::kDouble) * 0.7 + rank * 1.3).to(dtype);
}

TEST(DifferenceExchange, SumsInRankOrderWithAnyNumberOfReplicas) {
  for (const int learners : {1, 2, 3, 4}) {
    for (const int replicas : {1, 2, 3}) {
      for (const int64_t n : {0, 1, 2, 7, 1000}) {
        for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
          harness::run_ranks(learners * replicas, [&](comm::Communicator& world) {
            const int learner = world.rank() / replicas;
            const auto own = world.split(learner, 0, "learner");
            const auto equal = world.split(world.rank() % replicas, 0, "learners");
            DifferenceExchange exchange(*equal, *own);
            exchange.start(drawn(n, learner, dtype), {learner + 0.5, 7});
            EXPECT_TRUE(exchange.is_under_way());
            const auto [sum, notes, residual] = exchange.finish();
            at::Tensor expected = drawn(n, 0, dtype);
            for (int i = 1; i < learners; ++i) expected = expected + drawn(n, i, dtype);
            EXPECT_TRUE(sum.equal(expected)) << learners << " x " << replicas << ", " << n;
            ASSERT_EQ(notes.size(), static_cast<size_t>(learners));
            for (int i = 0; i < learners; ++i) {
              EXPECT_EQ(notes[static_cast<size_t>(i)], (std::vector<double>{i + 0.5, 7}));
            }
          });
        }
      }
    }
  }
}

TEST(DifferenceExchange, CountsHowLongALearnerIsWaitedFor) {
  const std::vector<int> in_world{1, 3, 5};
  comm::Wires wires;
  harness::run_ranks(3, [&](comm::Communicator& world) {
    const auto recorder = std::make_shared<comm::Recorder>(
        comm::RecorderOptions{.rank = in_world[world.rank()], .world_size = 6});
    comm::MessageCommunicator learners(std::make_unique<comm::WireChannel>(wires, world.rank(), 3),
                                       "learners", std::chrono::seconds(60),
                                       comm::GroupRecorder(recorder, "learners", 3, in_world));
    const auto own = world.split(world.rank(), 0, "learner");
    DifferenceExchange exchange(learners, *own);
    world.barrier()->wait();
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    exchange.start(drawn(100, world.rank(), at::kFloat), {1, 2});
    exchange.finish();
    const auto sums = recorder->waits()->take_largest(1);
    if (world.rank() == 1) return;
    ASSERT_EQ(sums.size(), 1U);
    EXPECT_EQ(sums[0].group, "learners");
    EXPECT_EQ(sums[0].world_rank, 3);
  });
}

// Of two learners, each sends its difference once, whatever the number of replicas.
TEST(DifferenceExchange, ReplicasShareTheBytes) {
  for (const int replicas : {1, 2, 4}) {
    harness::run_ranks(2 * replicas, [&](comm::Communicator& world) {
      const auto own = world.split(world.rank() / replicas, 0, "learner");
      const auto equal = world.split(world.rank() % replicas, 0, "learners");
      DifferenceExchange exchange(*equal, *own);
      exchange.start(drawn(100, 0, at::kFloat), {});
      exchange.finish();
      EXPECT_EQ(exchange.sent_bytes(), 400 / replicas);
    });
  }
}

// What is sent in few bits is summed as it was decoded, and what it lost comes back next time.
TEST(DifferenceExchange, CodedDifferencesKeepWhatTheyLose) {
  for (const int replicas : {1, 2, 3}) {
    for (const WireForm& form : {WireForm{.code = WireCode::kInt4}, WireForm{.kept = 0.1}}) {
      harness::run_ranks(3 * replicas, [&](comm::Communicator& world) {
        const int learner = world.rank() / replicas;
        const auto own = world.split(learner, 0, "learner");
        const auto equal = world.split(world.rank() % replicas, 0, "learners");
        DifferenceExchange exchange(*equal, *own, 0, form);
        const int64_t n = 700;
        at::Tensor residual = at::zeros({n}), sent = at::zeros({n}), meant = at::zeros({n});
        for (int round = 0; round < 3; ++round) {
          const at::Tensor mine = drawn(n, learner + 3 * round, at::kFloat);
          exchange.start(mine.clone(), {}, residual.clone());
          auto result = exchange.finish();
          sent = sent + result.sum;
          for (int i = 0; i < 3; ++i) meant = meant + drawn(n, i + 3 * round, at::kFloat);
          residual = result.residual;
        }
        at::Tensor left = residual.clone();
        equal->all_reduce(left)->wait();
        // Of about 10 sums of numbers up to 10.
        EXPECT_TRUE(at::allclose(sent + left, meant, 0, 1e-4)) << replicas;
        EXPECT_GT(left.abs().max().item<double>(), 0.01);
      });
    }
  }
}

TEST(DifferenceExchange, ExchangesWithOtherTagsOverlap) {
  for (const int learners : {2, 3}) {
    harness::run_ranks(learners, [&](comm::Communicator& world) {
      const auto alone = world.split(world.rank(), 0, "alone");
      DifferenceExchange first(world, *alone), second(world, *alone, 4);
      first.start(drawn(9, world.rank(), at::kFloat), {1});
      second.start(drawn(5, world.rank(), at::kFloat), {2});
      EXPECT_EQ(second.finish().sum.numel(), 5);
      const auto [sum, notes, residual] = first.finish();
      at::Tensor expected = drawn(9, 0, at::kFloat) + drawn(9, 1, at::kFloat);
      if (learners == 3) expected = expected + drawn(9, 2, at::kFloat);
      EXPECT_TRUE(sum.equal(expected));
      EXPECT_EQ(notes[0], std::vector<double>{1});
    });
  }
}

// Parts of the sum go round in the background: one that is lost must not hold up the end.
TEST(DifferenceExchange, AnExchangeThatIsLeftEndsEverywhere) {
  harness::run_ranks(3, [&](comm::Communicator& world) {
    const auto equal = world.split(0, 0, "learners"), alone = world.split(world.rank(), 0, "alone");
    auto exchange = std::make_unique<DifferenceExchange>(*equal, *alone);
    exchange->start(drawn(9, world.rank(), at::kFloat), {});
    exchange->finish();
    if (world.rank() == 2) return;  // never begins the second
    const auto start = [&] { exchange->start(drawn(9, world.rank(), at::kFloat), {}); };
    // The first that misses rank 2, or leaves, may end the group before the other has begun.
    if (world.rank() == 0) {
      try {
        start();
      } catch (const CommError&) {
      }
      exchange.reset();
    } else {
      EXPECT_THROW((start(), exchange->finish()), CommError);
    }
  });
}

// A learner's data must not wait for an announcement, nor its request for its own data: a round
// trip, two ticks of the wires. Where parts are summed, these take half a one more.
TEST(DifferenceExchange, TakesOneRoundTrip) {
  constexpr int kRounds = 4;  // the first may connect
  for (const int learners : {2, 3, 4}) {
    for (const WireForm& form : {WireForm{}, WireForm{.code = WireCode::kInt8}}) {
      comm::Wires wires;
      int least = 1 << 20;
      harness::run_ranks(learners, [&](comm::Communicator& world) {
        const auto alone = world.split(world.rank(), 0, "alone");
        comm::MessageCommunicator group(
            std::make_unique<comm::WireChannel>(wires, world.rank(), learners), "learners",
            std::chrono::seconds(60));
        DifferenceExchange exchange(group, *alone, 0, form);
        for (int round = 0; round < kRounds; ++round) {
          world.barrier()->wait();
          const int begin = wires.now();
          world.barrier()->wait();
          exchange.start(drawn(1 << 15, world.rank(), at::kFloat), {1});
          exchange.finish();
          world.barrier()->wait();
          if (world.rank() == 0) least = std::min(least, wires.now() - begin);
        }
      });
      const bool has_parts = form.code == WireCode::kFloat32 && learners > 2;
      EXPECT_LE(least, has_parts ? 3 : 2) << learners << " learners";
      EXPECT_GE(least, 2);
    }
  }
}

}  // namespace
}  // namespace trireme::parallel
