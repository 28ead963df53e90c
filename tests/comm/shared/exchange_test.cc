#include "trireme/comm/shared/exchange.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "trireme/base/error.h"
#include "trireme/comm/reduce_kernel.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;

const ExchangeOptions kOptions{"crew", 4096, std::chrono::seconds(60), {}, true};

// Runs `function` on `size` ranks as threads; what each threw, empty for nothing.
std::vector<std::string> run(int size, const std::function<void(Exchange&)>& function,
                             const ExchangeOptions& options = kOptions) {
  const auto segment =
      make_thread_segments()->create("x", 0, {Exchange::segment_bytes(size, options)});
  std::vector<std::string> errors(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Exchange exchange(segment, rank, size, options);
      try {
        function(exchange);
      } catch (const CommError& error) {
        errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void expect_all(const std::vector<std::string>& errors, const std::string& part) {
  for (const std::string& error : errors) EXPECT_PRED2(contains, error, part);
}

TEST(Exchange, EveryRankReadsWhatTheOthersPostedInALongRun) {
  for (int size = 1; size <= 8; ++size) {
    const auto errors = run(size, [](Exchange& exchange) {
      exchange.begin({"count"}, {});
      for (int i = 0; i < 300; ++i) {
        const int value = 1000 * i + exchange.rank();
        std::memcpy(exchange.mine(), &value, sizeof(value));
        exchange.meet();
        for (int rank = 0; rank < exchange.size(); ++rank) {
          int other = -1;
          std::memcpy(&other, exchange.posted(rank), sizeof(other));
          if (other != 1000 * i + rank) throw CommError(concat("read ", other, " at ", i));
        }
      }
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "") << size << " ranks";
  }
}

TEST(Exchange, DifferentCallsAreReportedOnAllRanksWithBothSides) {
  const auto errors = run(4, [](Exchange& exchange) {
    const int64_t elements = exchange.rank() == 2 ? 9 : 8;
    exchange.begin({"all_reduce", 6, 0, -1, elements}, {});
    exchange.meet();
  });
  expect_all(errors, "all_reduce(Float, 8 elements, sum)");
  expect_all(errors, "rank 2 all_reduce(Float, 9 elements, sum)");
  expect_all(errors, "of group crew (4 ranks)");
}

TEST(Exchange, EveryPartOfACallIsCompared) {
  const Call base{"reduce", 6, 0, 1, 8, 5};
  std::vector<Call> others(6, base);
  others[0].operation = "broadcast";
  others[1].dtype = 7;
  others[2].reduce_op = 1;
  others[3].root = 0;
  others[4].elements = 7;
  others[5].block_sizes = 6;
  for (const Call& other : others) {
    const auto errors = run(2, [&](Exchange& exchange) {
      exchange.begin(exchange.rank() == 0 ? base : other, {});
      exchange.meet();
    });
    expect_all(errors, "rank 0 " + to_string(base) + ", rank 1 " + to_string(other));
  }
}

TEST(Exchange, TimeoutNamesTheLateRank) {
  std::atomic<int> failed = 0;
  const auto errors = run(3, [&](Exchange& exchange) {
    exchange.begin({"barrier"}, milliseconds(200));
    if (exchange.rank() == 2) {
      while (failed.load() < 2) std::this_thread::yield();
      return exchange.begin({"barrier"}, {});
    }
    try {
      exchange.meet();
    } catch (const CommError&) {
      ++failed;
      throw;
    }
  });
  expect_all(errors, "timed out after 0.2 s waiting for rank 2");
  expect_all(errors, "barrier #1 of group crew");
}

TEST(Exchange, TimeoutSaysWhenTheLateRankNeverJoined) {
  const auto segment =
      make_thread_segments()->create("x", 0, {Exchange::segment_bytes(2, kOptions)});
  Exchange exchange(segment, 0, 2, kOptions);
  exchange.begin({"join"}, milliseconds(60));
  EXPECT_ERROR(CommError, exchange.meet(), "waiting for rank 1, which never joined");
}

TEST(Exchange, RankThatLeavesIsNamedEvenWhileAnotherIsBusy) {
  std::atomic<bool> named = false;
  const auto errors = run(3, [&](Exchange& exchange) {
    exchange.begin({"barrier"}, {});
    if (exchange.rank() == 2) return;  // its end goes at once
    // Rank 0 waits for rank 1 first, which comes only after the error.
    while (exchange.rank() == 1 && !named.load()) std::this_thread::yield();
    try {
      exchange.meet();
    } catch (const CommError&) {
      named.store(true);
      throw;
    }
  });
  EXPECT_PRED2(contains, errors[0], "rank 2 has left the group");
  EXPECT_PRED2(contains, errors[1], "rank 2 has left the group");
}

TEST(Exchange, RankThatLeavesAfterItsLastMeetIsMissedByNoOne) {
  for (int i = 0; i < 200; ++i) {
    const auto errors = run(3, [](Exchange& exchange) {
      exchange.begin({"barrier"}, {});
      exchange.meet();
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

TEST(Exchange, LossThatTheCallerKnowsOfEndsTheWait) {
  const auto segment =
      make_thread_segments()->create("x", 0, {Exchange::segment_bytes(3, kOptions)});
  Exchange exchange(segment, 0, 3, kOptions);
  exchange.begin({"join"}, {});
  const auto loss_of = [](int rank) { return rank == 2 ? std::string("rank 2 sank") : ""; };
  EXPECT_ERROR(CommError, exchange.meet(loss_of), "rank 2 sank");
}

TEST(Exchange, AbortReasonReachesAllAndStays) {
  const auto errors = run(4, [](Exchange& exchange) {
    exchange.begin({"barrier"}, {});
    if (exchange.rank() == 3) {
      exchange.abort("mutiny");
      exchange.abort("another reason");
    }
    try {
      exchange.meet();
    } catch (const CommError&) {
    }
    EXPECT_EQ(exchange.loss_of(0), "mutiny");
    exchange.begin({"barrier"}, {});
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "mutiny");
}

TEST(Exchange, NotesTravelWithTheMeetOfAnyNumberOfRanks) {
  for (const int size : {1, 2, 5, 64}) {
    const auto errors = run(size, [](Exchange& exchange) {
      exchange.begin({"note"}, {});
      for (uint64_t i = 0; i < 20; ++i) {
        for (size_t word = 0; word < exchange.note().size(); ++word)
          exchange.note()[word] = 100 * exchange.rank() + 10 * i + word;
        exchange.meet();
        for (int rank = 0; rank < exchange.size(); ++rank) {
          for (size_t word = 0; word < exchange.note_of(rank).size(); ++word) {
            const uint64_t found = exchange.note_of(rank)[word];
            if (found != 100 * rank + 10 * i + word) throw CommError(concat("read ", found));
          }
        }
      }
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "") << size << " ranks";
  }
}

TEST(Exchange, TimeoutNamesEveryLateRank) {
  const auto segment =
      make_thread_segments()->create("x", 0, {Exchange::segment_bytes(4, kOptions)});
  Exchange exchange(segment, 0, 4, kOptions);
  Exchange attached(segment, 2, 4, kOptions);
  exchange.begin({"barrier"}, milliseconds(60));
  EXPECT_ERROR(CommError, exchange.meet(),
               "waiting for rank 1, which never joined, rank 2, rank 3, which never joined");
}

TEST(Exchange, GroupsHaveNoncesOfTheirOwn) {
  const auto segments = make_thread_segments();
  const SegmentSize size{Exchange::segment_bytes(2, kOptions)};
  const Exchange first(segments->create("x", 0, size), 0, 2, kOptions);
  const Exchange second(segments->open("x", 1, size), 1, 2, kOptions);
  const Exchange other(segments->create("y", 0, size), 0, 2, kOptions);
  EXPECT_EQ(first.nonce(), second.nonce());
  EXPECT_NE(first.nonce(), other.nonce());
}

TEST(Exchange, MemoryOfAnotherNumberOfRanksIsRefused) {
  const auto segment =
      make_thread_segments()->create("x", 0, {Exchange::segment_bytes(3, kOptions)});
  const Exchange exchange(segment, 0, 3, kOptions);
  EXPECT_ERROR(ConfigError, Exchange(segment, 1, 2, kOptions), "is not one of this version");
}

// Rank 1 is still at work on rank 0's memory when rank 0 gives up: rank 0 may not throw, and free
// that memory, before rank 1 has come to the meet too.
TEST(Exchange, ARankThatLendsItsMemoryThrowsOnlyWhenItsPeersHaveFinished) {
  std::atomic<bool> is_finished = false;
  const auto errors = run(2, [&](Exchange& exchange) {
    exchange.begin({"use"}, milliseconds(20));
    if (exchange.rank() == 0) exchange.lend();
    exchange.meet();
    if (exchange.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(400));
      is_finished = true;
    }
    try {
      exchange.meet();
    } catch (const CommError&) {
      EXPECT_TRUE(is_finished);
      throw;
    }
  });
  EXPECT_PRED2(contains, errors[0], "timed out");
}

// A peer that has left meanwhile will not come.
TEST(Exchange, ARankThatLendsItsMemoryDoesNotWaitForOneThatHasLeft) {
  const auto errors = run(3, [&](Exchange& exchange) {
    exchange.begin({"use"}, {});
    exchange.lend();
    exchange.meet();
    if (exchange.rank() == 2) return;
    exchange.meet();
  });
  for (const int rank : {0, 1}) EXPECT_PRED2(contains, errors[rank], "rank 2 has left");
}

}  // namespace
}  // namespace trireme::comm
