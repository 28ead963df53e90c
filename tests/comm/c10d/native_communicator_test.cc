// Over gloo's own collectives on the CPU: the same code runs NCCL's on GPUs.
#include "trireme/comm/c10d/native_communicator.h"

#include <mutex>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "tests/comm/c10d/native_suite.h"
#include "tests/comm/errors.h"
#include "tests/comm/transport_suite.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

void run_native_ranks(int size, const harness::RankFunction& function) {
  const auto make = [](const auto& store, int rank, int group_size,
                       std::chrono::milliseconds timeout) -> c10::intrusive_ptr<c10d::Backend> {
    auto options = c10d::ProcessGroupGloo::Options::create(timeout);
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, group_size, options);
  };
  const NativeOptions options{
      .name = "world",
      .transport = "native gloo",
      .timeout = std::chrono::minutes(1),
      .device = c10::DeviceType::CPU,
      .reduces = [](c10::ScalarType dtype, ReduceOp operation) {
        return operation <= ReduceOp::kMax &&
               (dtype == at::kFloat || dtype == at::kDouble || dtype == at::kLong);
      }};
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        function(*make_native_group(make, store, rank, size, options));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

TEST(NativeCommunicator, MovesBlocksOfAnySizes) {
  for (const int size : {1, 2, 3, 4}) run_native_ranks(size, check_moves);
}

TEST(NativeCommunicator, RefusesTheSameCallsInTheSameWords) {
  for (const int size : {1, 2, 3, 4}) run_native_ranks(size, check_refused_calls);
}

TEST(NativeCommunicator, Splits) {
  for (const int size : {1, 2, 3, 4}) run_native_ranks(size, check_split);
}

// What nccl_gpu_test runs on GPUs.
TEST(NativeCommunicator, DoesEverythingThatItDoesOnGpus) {
  for (const auto check :
       {check_native_reductions, check_native_moves, check_native_messages, check_native_split}) {
    for (const int size : {1, 2, 3, 4}) {
      run_native_ranks(size, [&](Communicator& group) { check(group, c10::DeviceType::CPU); });
    }
  }
}

TEST(NativeCommunicator, ReducesEvenAndUnevenBlocks) {
  run_native_ranks(3, [](Communicator& group) {
    const int64_t me = group.rank();
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{4, 4, 4}, {3, 0, 5}}) {
      std::vector<at::Tensor> inputs;
      for (const int64_t length : sizes) inputs.push_back(at::full({length}, 1 << me, at::kLong));
      at::Tensor output = at::zeros({sizes[me]}, at::kLong);
      group.reduce_scatter(output, inputs)->wait();
      EXPECT_TRUE(at::equal(output, at::full({sizes[me]}, 7, at::kLong)));
      EXPECT_TRUE(at::equal(inputs[0], at::full({sizes[0]}, 1 << me, at::kLong)));
    }
    at::Tensor data = at::full({2, 3}, me, at::kDouble).t();
    group.all_reduce(data, {.operation = ReduceOp::kMax, .background = true})->wait();
    EXPECT_EQ(data.sum().item<double>(), 12);
    data.fill_(static_cast<double>(me));
    group.reduce(data, 1)->wait();
    EXPECT_EQ(data[0][0].item<double>(), me == 1 ? 3 : me);
  });
}

TEST(NativeCommunicator, WhatTheBackendDoesNotReduceIsRefused) {
  run_native_ranks(1, [](Communicator& group) {
    EXPECT_ERROR(ConfigError, group.all_reduce(at::ones({2}), {.operation = ReduceOp::kAverage}),
                 "all_reduce: average of Float tensors is not defined on transport native gloo");
    EXPECT_ERROR(ConfigError, group.all_reduce(at::ones({2}, at::kBFloat16)), "sum of BFloat16");
    EXPECT_ERROR(ConfigError,
                 group.broadcast(at::empty({2}, at::TensorOptions().device(at::kMeta)), 0),
                 "a tensor on meta; expected a dense CPU tensor");
  });
}

TEST(NativeCommunicator, MessagesArriveAndFailuresNameTheOperation) {
  run_native_ranks(2, [](Communicator& group) {
    at::Tensor data = at::full({3}, group.rank());
    if (group.rank() == 0) group.send(data, 1, {.tag = 4})->wait();
    if (group.rank() == 1) {
      const WorkPtr work = group.recv(data, kAnySource, {.tag = 4});
      EXPECT_EQ(data[0].item<int64_t>(), 0);
      EXPECT_ERROR(CommError, group.recv(data, 0, {.timeout = std::chrono::milliseconds(50)}),
                   "recv #2 of group world (rank 1 of 2, native gloo): ");
    } else {
      EXPECT_THROW(group.recv(data, 1)->wait(), CommError);  // the peer's failure ends it
    }
  });
}

}  // namespace
}  // namespace trireme::comm
