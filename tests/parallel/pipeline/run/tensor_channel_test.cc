#include "trireme/parallel/pipeline/run/tensor_channel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

constexpr std::chrono::milliseconds kGroupTimeout{0};

std::vector<EdgeTensor> list_of(int index) {
  return {{at::full({index, 3}, index, at::kDouble), true},
          {},
          {at::arange(2 * index, at::kLong).view({2, index}).t(), false},  // not contiguous
          {at::scalar_tensor(index, at::kBFloat16), true}};
}

void expect_equal(const std::vector<EdgeTensor>& actual, const std::vector<EdgeTensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].value.defined(), expected[i].value.defined());
    EXPECT_EQ(actual[i].requires_grad, expected[i].requires_grad);
    if (actual[i].value.defined())
      harness::assert_same_bits(actual[i].value, expected[i].value, "list");
  }
}

TEST(TensorChannel, BringsShapesDtypesAndAbsenceAlong) {
  for (const bool large : {false, true}) {
    harness::run_ranks(2, [&](comm::Communicator& inner) {
      harness::CountingCommunicator group(inner);
      TensorChannel channel(group, kGroupTimeout, at::kCPU);
      const auto list = [&](int index) {
        std::vector<EdgeTensor> tensors = list_of(index);
        if (large) tensors[1].value = at::full({100'000}, index, at::kFloat);
        return tensors;
      };
      // More lists than a pair of ranks has room for, in both directions, taken in any order.
      constexpr int kLists = 9, kTags = 5;
      const int peer = 1 - group.rank();
      int64_t expected_bytes = 0;
      for (int i = 0; i < kLists; ++i) {
        channel.send(list(i), peer, i * kTags);
        expected_bytes += 4 * TensorChannel::kHeaderBytes;
        for (const EdgeTensor& tensor : list(i))
          expected_bytes +=
              tensor.value.defined() ? static_cast<int64_t>(tensor.value.nbytes()) : 0;
      }
      for (int i = 0; i < kLists; ++i) channel.start_recv(4, peer, i * kTags);
      for (const int i : {2, 0, 1, 8, 3, 7, 5, 4, 6}) {
        channel.progress();
        expect_equal(channel.finish_recv(i * kTags), list(i));
      }
      channel.finish_sends();
      EXPECT_EQ(channel.bytes_sent(), expected_bytes);
      EXPECT_EQ(group.ledger().of(group.name(), "send").bytes, expected_bytes);
      channel.reset_counts();
      EXPECT_EQ(channel.bytes_sent(), 0);
    });
  }
}

TEST(TensorChannel, TooManyDimensionsAreRefused) {
  harness::run_ranks(1, [](comm::Communicator& group) {
    TensorChannel channel(group, kGroupTimeout, at::kCPU);
    EXPECT_THROW(channel.send({{at::zeros({1, 1, 1, 1, 1, 1, 1, 1, 1}), false}}, 0, 0),
                 ConfigError);
  });
}

TEST(TensorChannel, AnAbortEndsWhatWaits) {
  harness::run_ranks(2, [](comm::Communicator& group) {
    TensorChannel channel(group, kGroupTimeout, at::kCPU);
    if (group.rank() == 0) {
      channel.start_recv(1, 1, 7);
      channel.abort("enough");
    } else {
      const auto receive = [&] {
        channel.start_recv(1, 0, 7);  // may be late already
        channel.finish_recv(7);
      };
      EXPECT_THROW(receive(), CommError);
      channel.abort("enough");
    }
  });
}

}  // namespace
}  // namespace trireme::parallel
