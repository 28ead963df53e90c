#include "trireme/parallel/learner/difference_exchange.h"

#include <chrono>
#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/message/memory_channel.h"
#include "tests/harness/ranks.h"
#include "trireme/comm/message/message_communicator.h"
#include "trireme/comm/message/paced_channel.h"

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
  harness::run_ranks(2, [&](comm::Communicator& world) {
    const auto alone = world.split(world.rank(), 0, "alone");
    DifferenceExchange first(world, *alone), second(world, *alone, 4);
    first.start(drawn(9, world.rank(), at::kFloat), {1});
    second.start(drawn(5, world.rank(), at::kFloat), {2});
    EXPECT_EQ(second.finish().sum.numel(), 5);
    const auto [sum, notes, residual] = first.finish();
    EXPECT_TRUE(sum.equal(drawn(9, 0, at::kFloat) + drawn(9, 1, at::kFloat)));
    EXPECT_EQ(notes[0], std::vector<double>{1});
  });
}

// Learners that begin at different times, over lines on which bytes take no time and each way
// `delay`. What a learner sends must not wait for what it receives: all have everything two delays
// after the later one has begun (a third for the second half of an all-reduce).
TEST(DifferenceExchange, TakesTwoTripsAfterTheLastLearnerHasBegun) {
  using namespace std::chrono_literals;
  for (const int learners : {2, 3, 4}) {
    for (const WireForm& form : {WireForm{}, WireForm{.code = WireCode::kInt8}}) {
      const auto mail = std::make_shared<comm::Mail>();
      const comm::LinkShape line{.rate = 1e15, .delay = 50ms};
      comm::run_threads(learners, [&](int rank) {
        auto paced = std::make_unique<comm::PacedChannel>(
            std::make_unique<comm::MemoryChannel>(mail, rank, learners),
            comm::PacedOptions{std::vector(static_cast<size_t>(learners), line)});
        comm::PacedChannel& clock = *paced;
        comm::MessageCommunicator group(std::move(paced), "learners", 10s, {});
        const auto alone = group.split(rank, 0, "alone");
        const auto before = std::chrono::floor<std::chrono::milliseconds>(clock.now());
        const auto late = rank == 0 ? 30s : 0s;
        clock.advance(late);
        DifferenceExchange exchange(group, *alone, 0, form);
        exchange.start(drawn(1 << 15, rank, at::kFloat), {});
        exchange.finish();
        const auto taken = std::chrono::floor<std::chrono::milliseconds>(clock.now()) - before;
        const int trips = form.code == WireCode::kFloat32 && learners > 2 ? 3 : 2;
        // The first to begin waits for the last; that one's peers have sent their part of it.
        EXPECT_LE(taken, 30s + trips * 50ms) << learners << " learners, rank " << rank;
        EXPECT_GE(taken, 30s);
      });
    }
  }
}

}  // namespace
}  // namespace trireme::parallel
