#include "trireme/comm/shared/point_to_point.h"

#include <numeric>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/comm/scalar_model.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

using harness::assert_same_bits;

// 0, in one piece, just over one and two pieces (32 KiB), many.
constexpr int64_t kCounts[] = {0, 1, 8192, 8193, 16385, 200001};

class Messages : public testing::TestWithParam<bool> {
 protected:
  void run(int size, const harness::RankFunction& function) {
    GroupOptions options;
    options.zero_copy = GetParam();
    options.timeout = std::chrono::seconds(60);
    harness::run_ranks(size, function, options);
  }
};
INSTANTIATE_TEST_SUITE_P(Memory, Messages, testing::Bool(),
                         [](const auto& info) { return info.param ? "Symmetric" : "Ordinary"; });

TEST_P(Messages, BothWaysAtOnceInTheBackgroundOfAnySize) {
  run(3, [](Communicator& group) {
    for (const int64_t count : kCounts) {
      std::vector<at::Tensor> got;
      std::vector<WorkPtr> works;
      for (int peer = 0; peer < group.size(); ++peer) {
        if (peer == group.rank()) continue;
        got.push_back(at::zeros({count}));
        works.push_back(group.recv(got.back(), peer, {.background = true}));
        works.push_back(
            group.send(values_of(group.rank(), {count}, at::kFloat), peer, {.background = true}));
      }
      for (const WorkPtr& work : works) work->wait();
      size_t next = 0;
      for (int peer = 0; peer < group.size(); ++peer) {
        if (peer == group.rank()) continue;
        assert_same_bits(got[next++], values_of(peer, {count}, at::kFloat), concat("from ", peer));
      }
    }
  });
}

TEST_P(Messages, TagsAreMatchedWhateverTheOrder) {
  run(2, [](Communicator& group) {
    constexpr int kTags = 3;
    for (const int64_t count : kCounts) {
      std::vector<WorkPtr> works;
      std::vector<at::Tensor> got(kTags);
      for (int tag = 0; tag < kTags; ++tag) {
        if (group.rank() == 0) {
          works.push_back(
              group.send(values_of(tag, {count}, at::kFloat), 1, {.tag = tag, .background = true}));
        } else {
          const int reversed = kTags - 1 - tag;
          got[reversed] = at::zeros({count});
          group.recv(got[reversed], 0, {.tag = reversed})->wait();
        }
      }
      for (const WorkPtr& work : works) work->wait();
      for (int tag = 0; group.rank() == 1 && tag < kTags; ++tag)
        assert_same_bits(got[tag], values_of(tag, {count}, at::kFloat), concat("tag ", tag));
    }
  });
}

TEST_P(Messages, ManyOfOneTagStayInOrder) {
  run(2, [](Communicator& group) {
    std::vector<WorkPtr> works;
    std::vector<at::Tensor> data;
    for (int i = 0; i < 50; ++i) {
      const int64_t count = kCounts[1 + i % 4];
      data.push_back(group.rank() == 0 ? at::full({count}, i) : at::zeros({count}, at::kLong));
      data.back() = data.back().to(at::kLong);
      works.push_back(group.rank() == 0 ? group.send(data.back(), 1, {.background = true})
                                        : group.recv(data.back(), 0, {.background = true}));
    }
    for (int i = 0; i < 50; ++i) {
      works[i]->wait();
      EXPECT_TRUE(data[i].eq(i).all().item<bool>());
    }
  });
}

TEST_P(Messages, AnySourceTakesEachMessageOnceAndSaysWhoseItIs) {
  run(4, [](Communicator& group) {
    for (const int64_t count : {1, 20000}) {  // its own tag, as ranks run ahead
      if (group.rank() != 3) {
        for (int i = 0; i < 5; ++i)
          group
              .send(at::full({count}, 10 * group.rank() + i, at::kLong), 3,
                    {.tag = static_cast<int>(count)})
              ->wait();
        continue;
      }
      std::vector<int> next(3, 0);
      for (int i = 0; i < 15; ++i) {
        at::Tensor got = at::zeros({count}, at::kLong);
        const WorkPtr work =
            group.recv(got, kAnySource, {.tag = static_cast<int>(count), .background = i % 2 == 0});
        work->wait();
        const int source = work->source();
        ASSERT_TRUE(source >= 0 && source < 3);
        EXPECT_TRUE(got.eq(10 * source + next[source]++).all().item<bool>());
      }
      EXPECT_EQ(next, (std::vector<int>{5, 5, 5}));
    }
  });
}

// Another rank's message is for the recv from any, though an earlier one waits.
TEST_P(Messages, AnySourceLeavesOutTheRankThatAnEarlierRecvWaitsFor) {
  run(3, [](Communicator& group) {
    at::Tensor first = at::zeros({2}), any = at::zeros({2});
    if (group.rank() == 0) {
      const WorkPtr of_one = group.recv(first, 1, {.background = true});
      const WorkPtr of_any = group.recv(any, kAnySource, {.background = true});
      of_any->wait();
      EXPECT_EQ(of_any->source(), 2);
      group.send(at::ones({1}), 1, {.tag = 1})->wait();
      of_one->wait();
      EXPECT_TRUE(first.eq(1).all().item<bool>());
      EXPECT_TRUE(any.eq(2).all().item<bool>());
    } else {
      // Rank 1 waits until rank 2's message has been taken.
      at::Tensor word = at::zeros({1});
      if (group.rank() == 1) group.recv(word, 0, {.tag = 1})->wait();
      group.send(at::full({2}, group.rank(), at::kFloat), 0)->wait();
    }
  });
}

TEST_P(Messages, WhatCannotBeWrittenBackFailsItsOwnRecvAlone) {
  run(2, [](Communicator& group) {
    const at::Tensor values = values_of(0, {4}, at::kFloat);
    if (group.rank() == 0) {
      for (int i = 0; i < 2; ++i) group.send(values, 1)->wait();
      return;
    }
    // Four elements at one place.
    const at::Tensor narrow = at::zeros({1}).expand({4});
    const WorkPtr work = group.recv(narrow, 0, {.background = true});
    EXPECT_ANY_THROW(work->wait());
    at::Tensor whole = at::zeros({4});
    group.recv(whole, 0, {.background = true})->wait();
    assert_same_bits(whole, values, "the next one");
  });
}

// Every rank sends every other so many messages, each with a tag of its own, and receives them in
// reversed order.
void exchange_reversed(Communicator& group, int num_tags, const std::vector<int64_t>& counts,
                       bool is_symmetric) {
  const auto count_of = [&](int tag) { return counts[tag % counts.size()]; };
  const auto values = [&](int from, int tag) {
    return values_of(31 * from + tag, {count_of(tag)}, at::kFloat);
  };
  const auto empty = [&](int64_t count) {
    return is_symmetric ? group.symmetric_empty({count}, at::kFloat) : at::empty({count});
  };
  std::vector<WorkPtr> sends;
  for (int tag = 0; tag < num_tags; ++tag) {
    for (int peer = 0; peer < group.size(); ++peer) {
      if (peer == group.rank()) continue;
      const at::Tensor data = empty(count_of(tag));
      data.copy_(values(group.rank(), tag));
      sends.push_back(group.send(data, peer, {.tag = tag, .background = true}));
    }
  }
  for (int tag = num_tags - 1; tag >= 0; --tag) {
    for (int peer = 0; peer < group.size(); ++peer) {
      if (peer == group.rank()) continue;
      const at::Tensor got = empty(count_of(tag));
      group.recv(got, peer, {.tag = tag})->wait();
      assert_same_bits(got, values(peer, tag), concat("tag ", tag, " of rank ", peer));
    }
  }
  for (const WorkPtr& send : sends) send->wait();
}

TEST_P(Messages, AnyNumberWithOtherTagsMayComeBefore) {
  for (const int size : {2, 3}) {
    run(size, [](Communicator& group) {
      for (const int64_t count : kCounts) exchange_reversed(group, 30, {count}, true);
      exchange_reversed(group, 100, {1, 20000, 0, 8193}, false);
    });
  }
}

TEST(MessagesOfProcesses, AnyNumberWithOtherTagsMayComeBefore) {
  for (const bool is_symmetric : {false, true}) {
    for (const int size : {2, 3}) {
      const auto statuses = harness::fork_ranks(size, [&](Communicator& group) {
        for (const int64_t count : kCounts) exchange_reversed(group, 30, {count}, is_symmetric);
        exchange_reversed(group, 100, {1, 20000, 0, 8193}, is_symmetric);
      });
      EXPECT_EQ(statuses, std::vector<harness::ExitStatus>(size, 0));
    }
  }
}

TEST_P(Messages, ThoseOfOneTagStayInOrderAroundWhatIsMovedAside) {
  run(2, [](Communicator& group) {
    for (const int64_t count : kCounts) {
      std::vector<WorkPtr> sends;
      const auto exchange = [&](int tag, int value) {
        at::Tensor data = at::full({count}, value, at::kLong);
        if (group.rank() == 0) {
          sends.push_back(group.send(data, 1, {.tag = tag, .background = true}));
          return;
        }
        data.zero_();
        group.recv(data, 0, {.tag = tag})->wait();
        EXPECT_TRUE(data.eq(value).all().item<bool>()) << "tag " << tag << " value " << value;
      };
      if (group.rank() == 0) {
        for (int i = 0; i < 12; ++i) exchange(0, i);
        exchange(1, 100);
        for (int i = 12; i < 24; ++i) exchange(0, i);
        exchange(2, 200);
      } else {
        exchange(1, 100);
        for (int i = 0; i < 3; ++i) exchange(0, i);
        exchange(2, 200);
        for (int i = 3; i < 24; ++i) exchange(0, i);
      }
      for (const WorkPtr& send : sends) send->wait();
    }
  });
}

TEST_P(Messages, AnySourceFindsWhatWasMovedAsideAndWhatLiesBehind) {
  run(3, [](Communicator& group) {
    constexpr int kMessages = 20;
    for (const int64_t count : {1, 20000}) {
      // A rank that is ahead could otherwise answer for one that has not begun.
      group.barrier()->wait();
      if (group.rank() != 2) {
        std::vector<WorkPtr> sends;
        for (int i = 0; i < kMessages; ++i) {
          const at::Tensor data = at::full({count}, 100 * group.rank() + i, at::kLong);
          sends.push_back(group.send(data, 2, {.tag = i, .background = true}));
        }
        for (const WorkPtr& send : sends) send->wait();
        continue;
      }
      for (int tag = kMessages - 1; tag >= 0; --tag) {
        std::vector<int> sources;
        for (int i = 0; i < 2; ++i) {
          at::Tensor got = at::zeros({count}, at::kLong);
          const WorkPtr work = group.recv(got, kAnySource, {.tag = tag, .background = i == 1});
          work->wait();
          sources.push_back(work->source());
          EXPECT_TRUE(got.eq(100 * sources.back() + tag).all().item<bool>());
        }
        EXPECT_NE(sources[0], sources[1]);
      }
    }
  });
}

TEST_P(Messages, AMessageThatWasMovedAsideIsComparedAndLent) {
  run(2, [](Communicator& group) {
    constexpr int kMessages = 12;
    std::vector<WorkPtr> sends;
    if (group.rank() == 0) {
      for (int tag = 0; tag < kMessages; ++tag) {
        const at::Tensor data = group.symmetric_empty({20000}, at::kFloat).fill_(tag);
        sends.push_back(group.send(data, 1, {.tag = tag, .background = true}));
      }
      for (int tag = 1; tag < kMessages; ++tag) sends[tag]->wait();
      EXPECT_ERROR(CommError, group.barrier(), "rank 0 sends 80000 bytes of Float with tag 0");
      return;
    }
    for (int tag = kMessages - 1; tag > 0; --tag) {
      EXPECT_TRUE(
          group.borrow({20000}, at::kFloat, 0, {.tag = tag})->data().eq(tag).all().item<bool>());
    }
    at::Tensor other = at::zeros({20000}, at::kInt);
    EXPECT_ERROR(CommError, group.recv(other, 0), "rank 1 expects 80000 bytes of Int with tag 0");
  });
}

TEST_P(Messages, ARecvThatNobodyAnswersEndsThoughMessagesWereMovedAside) {
  run(2, [](Communicator& group) {
    at::Tensor data = at::zeros({20000});
    if (group.rank() == 0) {
      std::vector<WorkPtr> sends;
      for (int tag = 0; tag < 20; ++tag) {
        sends.push_back(group.send(data, 1, {.tag = tag, .background = true}));
      }
      for (const WorkPtr& send : sends) {
        try {
          send->wait();
        } catch (const CommError& error) {
          EXPECT_PRED2(contains, error.what(), "waiting for rank 0, tag 99");
        }
      }
    } else {
      EXPECT_ERROR(CommError,
                   group.recv(data, 0, {.timeout = std::chrono::milliseconds(200), .tag = 99}),
                   "timed out after 0.2 s waiting for rank 0, tag 99");
    }
  });
}

TEST_P(Messages, ANinthSendToARankThatReceivesNothingSaysWhy) {
  run(2, [](Communicator& group) {
    at::Tensor data = at::zeros({1});
    if (group.rank() == 0) {
      for (int tag = 0; tag < 8; ++tag) group.send(data, 1, {.tag = tag})->wait();
      EXPECT_ERROR(CommError,
                   group.send(data, 1, {.timeout = std::chrono::milliseconds(200), .tag = 8}),
                   "8 earlier messages to rank 1 wait to be received");
    } else {
      EXPECT_ERROR(CommError, group.barrier(), "send of group world");
    }
  });
}

TEST_P(Messages, StridedTensorsAreSentAndReceived) {
  run(2, [](Communicator& group) {
    const at::Tensor values = values_of(0, {300, 200}, at::kFloat);
    at::Tensor view = at::zeros({200, 300}).t();
    if (group.rank() == 0) {
      view.copy_(values);
      group.send(view, 1)->wait();
    } else {
      group.recv(view, 0)->wait();
      assert_same_bits(view, values, "strided");
    }
  });
}

TEST_P(Messages, AreIndependentOfCollectivesUnderWay) {
  run(2, [](Communicator& group) {
    at::Tensor data = at::ones({100000});
    at::Tensor token = at::full({60000}, group.rank());
    // Rank 1 joins the all-reduce only after it has the token.
    WorkPtr sum;
    if (group.rank() == 0) sum = group.all_reduce(data, {.background = true});
    if (group.rank() == 0) group.send(token, 1)->wait();
    if (group.rank() == 1) group.recv(token, 0)->wait();
    if (group.rank() == 1) sum = group.all_reduce(data, {.background = true});
    sum->wait();
    EXPECT_EQ(data[99999].item<float>(), 2);
    EXPECT_EQ(token[59999].item<float>(), 0);
  });
}

TEST_P(Messages, AnotherSizeOrDtypeIsReportedWithBothSides) {
  for (const bool other_dtype : {false, true}) {
    run(2, [&](Communicator& group) {
      at::Tensor data = at::zeros({group.rank() == 0 || other_dtype ? 50000 : 49999},
                                  group.rank() == 1 && other_dtype ? at::kInt : at::kFloat);
      const std::string expected =
          concat("rank 0 sends 200000 bytes of Float with tag 4, rank 1 expects ",
                 other_dtype ? "200000 bytes of Int" : "199996 bytes of Float", " with tag 4");
      if (group.rank() == 0) {
        EXPECT_ERROR(CommError, group.send(data, 1, {.tag = 4})->wait(), expected);
      } else {
        EXPECT_ERROR(CommError, group.recv(data, 0, {.tag = 4})->wait(), expected);
      }
    });
  }
}

TEST_P(Messages, TimeoutNamesThePeerAndTheTag) {
  run(2, [](Communicator& group) {
    at::Tensor data = at::zeros({50000});
    if (group.rank() == 1) {
      EXPECT_ERROR(CommError,
                   group.recv(data, 0, {.timeout = std::chrono::milliseconds(100), .tag = 9}),
                   "timed out after 0.1 s waiting for rank 0, tag 9");
    } else {
      EXPECT_ERROR(CommError, group.barrier(), "recv of group world");
    }
  });
}

TEST_P(Messages, MessageOfARankThatHasLeftStillArrives) {
  run(2, [](Communicator& world) {
    auto pair = world.split(0, world.rank(), "pair");
    at::Tensor data = at::full({100}, 5);
    if (world.rank() == 0) pair->send(data, 1)->wait();
    if (world.rank() == 0) pair.reset();
    world.barrier()->wait();
    if (world.rank() == 1) {
      data.zero_();
      pair->recv(data, 0)->wait();
      EXPECT_EQ(data[99].item<float>(), 5);
      EXPECT_ERROR(CommError, pair->recv(data, 0), "rank 0 has left the group");
    }
    world.barrier()->wait();
  });
}

TEST_P(Messages, AnySourceEndsWhenNobodyIsLeft) {
  run(3, [](Communicator& world) {
    auto crew = world.split(0, world.rank(), "crew");
    if (world.rank() != 0) return;
    at::Tensor data = at::zeros({1});
    EXPECT_ERROR(CommError, crew->recv(data, kAnySource), "every other rank has left");
  });
}

}  // namespace
}  // namespace trireme::comm
