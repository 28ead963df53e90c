// Ranks as threads, a GPU each: as many as the machine has. Label gpu.
#include <exception>
#include <mutex>
#include <thread>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "tests/comm/c10d/native_suite.h"
#include "tests/comm/errors.h"
#include "trireme/base/error.h"
#include "trireme/comm/c10d/nccl_group.h"

namespace trireme::comm {
namespace {

using Check = void (*)(Communicator& group, c10::Device device);

void run_on_gpus(Check check) {
  const int num_gpus = c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->deviceCount();
  ASSERT_GT(num_gpus, 0) << "no GPU here; leave label gpu out";
  for (int size = 1; size <= num_gpus; ++size) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    std::mutex mutex;
    std::exception_ptr first;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          const c10::Device device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(rank));
          const c10::DeviceGuard guard(device);
          check(*make_nccl_group(store, rank, size), device);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (first) std::rethrow_exception(first);
  }
}

TEST(NcclGroupOnGpus, Reduces) { run_on_gpus(check_native_reductions); }
TEST(NcclGroupOnGpus, Moves) { run_on_gpus(check_native_moves); }
TEST(NcclGroupOnGpus, SendsMessages) { run_on_gpus(check_native_messages); }
TEST(NcclGroupOnGpus, Splits) { run_on_gpus(check_native_split); }

TEST(NcclGroupOnGpus, TensorsOfTheHostAreRefused) {
  run_on_gpus([](Communicator& group, c10::Device) {
    EXPECT_ERROR(ConfigError, group.all_reduce(at::ones({2})),
                 "a tensor on cpu; expected a dense tensor on cuda");
  });
}

}  // namespace
}  // namespace trireme::comm
