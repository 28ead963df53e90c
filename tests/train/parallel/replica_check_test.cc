#include "trireme/train/parallel/replica_check.h"

#include <atomic>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

std::vector<NamedTensor> tensors() {
  std::vector<NamedTensor> result{{"a", at::ones({3, 5})}, {"b", at::arange(1000, at::kFloat)}};
  return result;
}

// One bit of one element.
void flip(const at::Tensor& tensor, int64_t index) {
  static_cast<uint32_t*>(tensor.mutable_data_ptr())[index] ^= 1;
}

TEST(ReplicaCheck, NamesTheRankAndTheTensorOfOneFlippedBit) {
  for (const int bad : {0, 1, 2}) {
    std::atomic<int> told = 0;
    harness::run_ranks(3, [&](comm::Communicator& group) {
      const auto mine = tensors();
      check_replicas(mine, group, 10 + group.rank());
      if (group.rank() == bad) flip(mine[1].second, 777);
      try {
        check_replicas(mine, group, 10 + group.rank());
      } catch (const Error& error) {
        const std::string text = error.what();
        if (text.find("\"b\" has different bits on rank " + std::to_string(10 + bad) + ";") !=
                std::string::npos &&
            text.find("no majority") == std::string::npos) {
          ++told;
        }
      }
    });
    EXPECT_EQ(told, 3) << bad;
  }
}

TEST(ReplicaCheck, SaysWhenTwoRanksCannotTellWhichIsRight) {
  std::atomic<int> told = 0;
  harness::run_ranks(2, [&](comm::Communicator& group) {
    const auto mine = tensors();
    if (group.rank() == 1) flip(mine[0].second, 0);
    try {
      check_replicas(mine, group, 10 + group.rank());
    } catch (const Error& error) {
      if (std::string(error.what()).find("no majority") != std::string::npos) ++told;
    }
  });
  EXPECT_EQ(told, 2);
}

TEST(ReplicaCheck, RanksOfATensorGroupHaveOneNumberOfThreads) {
  std::atomic<int> told = 0;
  harness::run_ranks(3, [&](comm::Communicator& group) {
    check_threads(4, group);
    try {
      check_threads(group.rank() == 2 ? 1 : 4, group);
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      if (text.find("ranks 0 and 2") != std::string::npos &&
          text.find("4 and 1 threads") != std::string::npos) {
        ++told;
      }
    }
  });
  EXPECT_EQ(told, 3);
}

class Unordered : public harness::CountingCommunicator {
 public:
  using CountingCommunicator::CountingCommunicator;
  bool reduces_in_rank_order() const override { return false; }
};

TEST(ReplicaCheck, ReproducibleSumsOfATensorGroupHaveOneOrder) {
  for (const int size : {1, 2, 3}) {
    harness::run_ranks(size, [&](comm::Communicator& group) {
      EXPECT_NO_THROW(check_sum_order(group));
      const Unordered unordered(group);
      if (size == 3) {
        EXPECT_THROW(check_sum_order(unordered), ConfigError);
      } else {
        EXPECT_NO_THROW(check_sum_order(unordered)) << size;
      }
    });
  }
}

}  // namespace
}  // namespace trireme::train
