#include "trireme/comm/c10d/gloo_behaviour.h"

#include <csignal>
#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"
#include "trireme/comm/shared/shm_group.h"
#include "trireme/comm/shared/thread_group.h"
#ifdef TRIREME_HAVE_GLOO
#include "tests/comm/c10d/gloo_ranks.h"
#endif

// Kinds are read from texts, so the texts here are those of groups that really fail.
namespace trireme::comm {
namespace {

using std::chrono::milliseconds;
using RunRanks = std::function<void(int, const harness::RankFunction&, milliseconds timeout)>;

std::string failure_of_sum(Communicator& group, int elements = 3) {
  at::Tensor data = at::ones({elements});
  return error_of<CommError>([&] { group.all_reduce(data)->wait(); });
}

// Every way for a call to fail, on every rank that hears of it.
void check_kinds(const RunRanks& run_ranks) {
  run_ranks(
      3,
      [](Communicator& group) {
        if (group.rank() != 1) {
          EXPECT_EQ(kind_of(failure_of_sum(group)), FailureKind::kPeerLost);
        }
      },
      milliseconds(60000));
  run_ranks(
      3,
      [](Communicator& group) {
        if (group.rank() != 1) {
          at::Tensor data = at::ones({3});
          const std::string failure = error_of<CommError>([&] { group.recv(data, 1)->wait(); });
          EXPECT_EQ(kind_of(failure), FailureKind::kPeerLost) << failure;
        }
      },
      milliseconds(60000));
  run_ranks(
      2,
      [](Communicator& group) {
        EXPECT_EQ(kind_of(failure_of_sum(group, 3 + group.rank())), FailureKind::kMismatch);
      },
      milliseconds(60000));
  run_ranks(
      2,
      [](Communicator& group) {
        at::Tensor data = at::ones({3 + group.rank()});
        const std::string failure = error_of<CommError>([&] {
          (group.rank() == 0 ? group.send(data, 1) : group.recv(data, 0))->wait();
          group.barrier()->wait();  // a sender may be done before its peer has looked
        });
        EXPECT_EQ(kind_of(failure), FailureKind::kMismatch) << failure;
      },
      milliseconds(60000));
  std::latch late(1);
  run_ranks(
      2,
      [&](Communicator& group) {
        if (group.rank() == 1) {
          late.wait();
          const std::string failure = failure_of_sum(group);  // its peer's verdict
          EXPECT_EQ(kind_of(failure), FailureKind::kTimedOut) << failure;
          return;
        }
        at::Tensor data = at::ones({3});
        const std::string failure = error_of<CommError>([&] { group.all_reduce(data)->wait(); });
        EXPECT_EQ(kind_of(failure), FailureKind::kTimedOut) << failure;
        EXPECT_NE(in_words_of_gloo(failure).find("[trireme] Timed out waiting "),
                  std::string::npos);
        late.count_down();
      },
      milliseconds(100));
  std::latch aborted(2);
  run_ranks(
      2,
      [&](Communicator& group) {
        if (group.rank() == 0) group.abort("group " + group.name() + " was aborted");
        aborted.arrive_and_wait();
        EXPECT_EQ(kind_of(failure_of_sum(group)), FailureKind::kAborted);
      },
      milliseconds(60000));
}

// Each rank leaves when its function returns; harness::run_ranks keeps the groups.
void run_threads(int size, const harness::RankFunction& function, milliseconds timeout) {
  std::vector<std::thread> threads;
  for (auto& group : make_thread_group(size, {.timeout = timeout})) {
    threads.emplace_back([&function, own = std::move(group)]() mutable {
      function(*own);
      own.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(C10dErrors, KnowTheKindOfEveryFailureOfSharedMemory) { check_kinds(run_threads); }

#ifdef TRIREME_HAVE_GLOO
TEST(C10dErrors, KnowTheKindOfEveryFailureOfMessages) {
  check_kinds([](int size, const harness::RankFunction& function, milliseconds timeout) {
    run_gloo_ranks(size, function, loopback_options(timeout));
  });
}
#endif

TEST(C10dErrors, KnowADeathFromATimeout) {
  const auto statuses = harness::fork_ranks(2, [](Communicator& group) {
    if (group.rank() == 1) raise(SIGKILL);
    const std::string failure = failure_of_sum(group);
    TRIREME_CHECK(kind_of(failure) == FailureKind::kPeerLost, failure);
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0, -SIGKILL}));
}

TEST(C10dErrors, KnowWhoNeverCame) {
  const std::string failure = error_of<CommError>(
      [] { make_shm_group(harness::unique_job(), 1, 2, {.timeout = milliseconds(10)}); });
  EXPECT_EQ(kind_of(failure), FailureKind::kNeverCame);
  EXPECT_EQ(in_words_of_gloo(failure), "[trireme] wait timeout after 10ms: " + failure);
}

TEST(C10dErrors, SayTheKnownPhraseThenTheirOwn) {
  EXPECT_EQ(in_words_of_gloo("barrier #3 of group 0, timed out after 0.0015 s waiting for rank 1"),
            "[trireme] Timed out waiting 2ms: barrier #3 of group 0, timed out after 0.0015 s "
            "waiting for rank 1");
  EXPECT_EQ(in_words_of_gloo("rank 2 died"), "[trireme] Connection closed by peer: rank 2 died");
  EXPECT_EQ(in_words_of_gloo("the ranks call different operations: rank 0 ..."),
            "[trireme] Detected mismatch between collectives on ranks: the ranks call different "
            "operations: rank 0 ...");
  EXPECT_EQ(in_words_of_gloo("group 0 was aborted"), "group 0 was aborted");
  EXPECT_EQ(in_words_of_gloo("group 0 was aborted by a peer"),
            "[trireme] Connection closed by peer: group 0 was aborted by a peer");
  EXPECT_EQ(in_words_of_gloo("a peer gave up: recv, timed out after 2 s waiting for any rank"),
            "[trireme] Timed out waiting 2000ms: a peer gave up: recv, timed out after 2 s waiting "
            "for any rank");
}

TEST(C10dErrors, AreTorchsOwnType) {
  EXPECT_ERROR(c10::DistBackendError, as_c10d_errors([] { throw CommError("rank 2 died"); }),
               "[trireme] Connection closed by peer: rank 2 died");
  EXPECT_ERROR(ConfigError, as_c10d_errors([] { throw ConfigError("no such dtype"); }), "no such");
}

}  // namespace
}  // namespace trireme::comm
