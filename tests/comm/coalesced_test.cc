#include "trireme/comm/coalesced.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

// Different for every rank and index; small whole numbers, exact in every dtype.
at::Tensor values(int rank, int64_t index, at::IntArrayRef sizes, c10::ScalarType dtype) {
  const at::Tensor flat = at::arange(at::empty(sizes).numel()) + 3 * rank + index;
  return flat.remainder(7).to(dtype).view(sizes);
}

const std::vector<std::pair<std::vector<int64_t>, c10::ScalarType>>& kinds() {
  static const std::vector<std::pair<std::vector<int64_t>, c10::ScalarType>> kinds = {
      {{3, 5}, at::kFloat},
      {{0}, at::kFloat},
      {{7}, at::kLong},
      {{}, at::kFloat},
      {{4, 1}, at::kLong}};
  return kinds;
}

class Coalesced : public testing::TestWithParam<bool> {
 protected:
  Options options() const { return {.background = GetParam()}; }
};

TEST_P(Coalesced, AllReduceGivesOneCallATensor) {
  for (const int size : {1, 2, 3}) {
    harness::run_ranks(size, [&](Communicator& group) {
      std::vector<at::Tensor> data;
      std::vector<at::Tensor> expected;
      for (size_t i = 0; i < kinds().size(); ++i) {
        data.push_back(values(group.rank(), i, kinds()[i].first, kinds()[i].second));
        expected.push_back(data.back().clone());
        group.all_reduce(expected.back())->wait();
      }
      data[0] = data[0].t().contiguous().t();  // not contiguous
      const WorkPtr work = all_reduce_coalesced(group, data, options());
      work->wait();
      EXPECT_TRUE(work->poll());
      for (size_t i = 0; i < data.size(); ++i)
        harness::assert_same_bits(data[i], expected[i], "all_reduce");
    });
  }
}

TEST_P(Coalesced, AllGatherTakesBlocksOfOtherSizesByRank) {
  for (const int size : {1, 2, 3}) {
    harness::run_ranks(size, [&](Communicator& group) {
      const auto block = [](int rank, size_t i) {
        return values(rank, i, {static_cast<int64_t>(rank + i), 2}, kinds()[i].second);
      };
      std::vector<at::Tensor> inputs;
      std::vector<std::vector<at::Tensor>> outputs;
      for (size_t i = 0; i < kinds().size(); ++i) {
        inputs.push_back(block(group.rank(), i));
        outputs.emplace_back();
        for (int rank = 0; rank < size; ++rank)
          outputs.back().push_back(at::empty_like(block(rank, i)));
      }
      all_gather_coalesced(group, outputs, inputs, options())->wait();
      for (size_t i = 0; i < kinds().size(); ++i) {
        for (int rank = 0; rank < size; ++rank)
          harness::assert_same_bits(outputs[i][rank], block(rank, i), "all_gather");
      }
    });
  }
}

TEST_P(Coalesced, ReduceScatterGivesOneCallATensor) {
  for (const int size : {1, 2, 3}) {
    harness::run_ranks(size, [&](Communicator& group) {
      std::vector<at::Tensor> outputs;
      std::vector<at::Tensor> expected;
      std::vector<std::vector<at::Tensor>> inputs;
      for (size_t i = 0; i < kinds().size(); ++i) {
        inputs.emplace_back();
        for (int to = 0; to < size; ++to) {
          inputs.back().push_back(
              values(group.rank(), to + i, {static_cast<int64_t>(to + i)}, kinds()[i].second));
        }
        outputs.push_back(at::empty_like(inputs.back()[group.rank()]));
        expected.push_back(at::empty_like(outputs.back()));
        group.reduce_scatter(expected.back(), inputs.back())->wait();
      }
      reduce_scatter_coalesced(group, outputs, inputs, options())->wait();
      for (size_t i = 0; i < outputs.size(); ++i)
        harness::assert_same_bits(outputs[i], expected[i], "reduce_scatter");
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Where, Coalesced, testing::Bool(),
                         [](const auto& info) { return info.param ? "background" : "foreground"; });

TEST(CoalescedLists, MustHaveATensorForEachRank) {
  harness::run_ranks(2, [](Communicator& group) {
    const at::Tensor tensor = at::zeros({2});
    const std::vector<at::Tensor> tensors = {tensor};
    const std::vector<std::vector<at::Tensor>> short_list = {tensors};
    EXPECT_ERROR(ConfigError, all_gather_coalesced(group, short_list, tensors),
                 "a list of 1 tensors");
    EXPECT_ERROR(ConfigError, reduce_scatter_coalesced(group, tensors, {}),
                 "0 lists for 1 tensors");
  });
}

}  // namespace
}  // namespace trireme::comm
