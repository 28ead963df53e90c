#include "trireme/comm/message/message_communicator.h"

#include <cstring>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/c10d/gloo_ranks.h"
#include "tests/comm/errors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

TEST(MessageCommunicator, BadArgumentsAreConfigErrorsAndTheGroupLivesOn) {
  run_gloo_ranks(2, [](Communicator& group) {
    at::Tensor data = at::ones({3});
    EXPECT_ERROR(ConfigError, group.broadcast(data, 2), "rank 2 is not in group world");
    EXPECT_ERROR(ConfigError, group.all_gather({data}, data), "got 1 tensors");
    EXPECT_ERROR(ConfigError, group.all_gather({data, data}, at::ones({4})), "has 16 bytes");
    EXPECT_ERROR(ConfigError, group.all_gather({data, at::ones({3}, at::kInt)}, data),
                 "got tensors of Int and Float");
    EXPECT_ERROR(ConfigError, group.reduce_scatter(data, {data}), "got 1 tensors");
    EXPECT_ERROR(ConfigError, group.send(data, group.rank()), "is this rank");
    EXPECT_ERROR(ConfigError, group.send(data, 1 - group.rank(), {.tag = -1}), "tag -1");
    EXPECT_ERROR(ConfigError, group.broadcast(at::Tensor(), 0), "an undefined tensor");
    EXPECT_ERROR(ConfigError, group.borrow({3}, at::kFloat, group.rank()), "borrow: rank");
    EXPECT_ERROR(ConfigError, group.borrow({3}, at::device(at::kMeta), 1 - group.rank()),
                 "borrow: the device is meta; expected the CPU");
    EXPECT_ERROR(ConfigError,
                 group.all_reduce(at::empty({3}, at::TensorOptions().device(at::kMeta))),
                 "a tensor on meta");
    group.all_reduce(data)->wait();
    EXPECT_EQ(data[0].item<float>(), 2);
  });
}

TEST(MessageCommunicator, BitsDoNotDependOnTheSizeOfTheMessage) {
  constexpr int64_t kSmall = MessageCommunicator::kSmallBytes / 4;
  run_gloo_ranks(3, [](Communicator& group) {
    const auto values = [&](int64_t count) {
      return at::sin(at::arange(count, at::kFloat) * (group.rank() + 1.5));
    };
    at::Tensor small = values(kSmall);
    at::Tensor large = values(kSmall * 5 + 1);
    group.all_reduce(small, {.operation = ReduceOp::kAverage})->wait();
    group.all_reduce(large, {.operation = ReduceOp::kAverage})->wait();
    EXPECT_EQ(std::memcmp(small.const_data_ptr(), large.const_data_ptr(), kSmall * 4), 0);
  });
}

TEST(MessageCommunicator, BackgroundWorkOfSeveralGroupsInterleavesFreely) {
  run_gloo_ranks(3, [](Communicator& world) {
    const auto a = world.split(0, 0, "a");
    const auto b = world.split(0, 0, "b");
    at::Tensor x = at::ones({3}), y = at::ones({3});
    std::vector<WorkPtr> works;
    for (Communicator* group :
         world.rank() == 1 ? std::vector{b.get(), a.get()} : std::vector{a.get(), b.get()}) {
      works.push_back(group->all_reduce(group == a.get() ? x : y, {.background = true}));
    }
    for (const WorkPtr& work : works) work->wait();
    EXPECT_EQ(x[0].item<float>(), 3);
    EXPECT_EQ(y[0].item<float>(), 3);
  });
}

TEST(MessageCommunicator, BackgroundWorkOnAStridedLeafNeedsNoGradientMode) {
  run_gloo_ranks(2, [](Communicator& group) {
    at::Tensor leaf = at::ones({4, 3}).t();
    leaf.requires_grad_();
    group.all_reduce(leaf, {.background = true})->wait();
    EXPECT_EQ(leaf.sum().item<double>(), 24);
  });
}

}  // namespace
}  // namespace trireme::comm
