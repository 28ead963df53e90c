// Ranks as processes that share one GPU. Label gpu.
#include <csignal>
#include <functional>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>

#include "tests/comm/device/on_device.h"
#include "tests/comm/transport_suite.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/comm/device/cuda_ipc_group.h"

namespace trireme::comm {
namespace {

using Check = std::function<void(Communicator& world, std::unique_ptr<Communicator> gpus)>;

class CudaIpc : public testing::TestWithParam<int> {
 protected:
  // The processes are made before any of them uses CUDA.
  static void run(const Check& check) {
    const auto statuses = harness::fork_ranks(GetParam(), [&](Communicator& world) {
      const c10::DeviceGuard guard(kGpu);
      check(world, make_cuda_ipc_group(world.split(0, world.rank(), "gpus"), "gpus"));
      world.barrier()->wait();
    });
    EXPECT_EQ(statuses, std::vector<harness::ExitStatus>(GetParam(), 0));
  }
  static void run_suite(void (*suite)(Communicator&)) {
    run([&](Communicator&, std::unique_ptr<Communicator> gpus) {
      OnDevice on_device(std::move(gpus), kGpu);
      suite(on_device);
    });
  }
  static inline const at::Device kGpu{at::kCUDA, 0};
};

TEST_P(CudaIpc, ReductionsGiveTheModelsBits) { run_suite(check_reductions); }
TEST_P(CudaIpc, RefusesTheSameCallsInTheSameWords) { run_suite(check_refused_calls); }
TEST_P(CudaIpc, PairsThatAreNotDefinedAreRefused) { run_suite(check_unsupported_pairs); }
TEST_P(CudaIpc, MovesBlocksOfAnySizes) { run_suite(check_moves); }
TEST_P(CudaIpc, TakesStridedTensors) { run_suite(check_strided_tensors); }
TEST_P(CudaIpc, SendsAndReceives) { run_suite(check_point_to_point); }
TEST_P(CudaIpc, WorksInTheBackground) { run_suite(check_background); }
TEST_P(CudaIpc, Splits) { run_suite(check_split); }
TEST_P(CudaIpc, AbortEndsWhatOthersWaitFor) { run_suite(check_abort); }

// Larger than a slot, in several dtypes: the bits of shared memory.
TEST_P(CudaIpc, LargeSumsHaveTheBitsOfTheHost) {
  run([](Communicator& world, std::unique_ptr<Communicator> gpus) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      at::Tensor host = at::randn({20'000'003}, at::kFloat).to(dtype) * (world.rank() + 1);
      const at::Tensor device = host.to(kGpu);
      world.all_reduce(host)->wait();
      gpus->all_reduce(device)->wait();
      harness::assert_same_bits(device.cpu(), host, "all_reduce");
    }
  });
}

// The host runs ahead of the device, on two streams, over slots that are used again and again.
TEST_P(CudaIpc, CallsInARowDoNotMixTheirData) {
  run([](Communicator&, std::unique_ptr<Communicator> gpus) {
    const int size = gpus->size(), me = gpus->rank();
    const auto on_gpu = at::TensorOptions().device(kGpu).dtype(at::kDouble);
    std::vector<at::Tensor> sums;
    std::vector<std::vector<at::Tensor>> lists;
    std::vector<WorkPtr> works;
    for (int i = 0; i < 300; ++i) {
      const int64_t length = 1 + 7919 * (i % 11) * (i % 3);
      sums.push_back(at::full({length}, me + 1000.0 * i, on_gpu));
      sums.back().add_(1);
      works.push_back(gpus->all_reduce(sums.back(), {.background = i % 5 == 0}));
      std::vector<at::Tensor> list;
      for (int rank = 0; rank < size; ++rank) list.push_back(at::empty({length}, on_gpu));
      gpus->all_gather(list, at::full({length}, me + 10.0 * i, on_gpu))->wait();
      lists.push_back(std::move(list));
    }
    for (const WorkPtr& work : works) work->wait();
    for (int i = 0; i < 300; ++i) {
      const double sum = size * (1000.0 * i + 1) + size * (size - 1) / 2.0;
      ASSERT_TRUE(sums[i].eq(sum).all().item<bool>()) << "call " << i;
      for (int rank = 0; rank < size; ++rank) {
        ASSERT_TRUE(lists[i][rank].eq(rank + 10.0 * i).all().item<bool>()) << "call " << i;
      }
    }
  });
}

TEST(CudaIpcLoss, ADeadRankEndsTheOthersCalls) {
  const auto statuses = harness::fork_ranks(3, [](Communicator& world) {
    const c10::DeviceGuard guard({at::kCUDA, 0});
    const auto gpus = make_cuda_ipc_group(world.split(0, world.rank(), "gpus"), "gpus");
    const at::Tensor data = at::ones({1000}, at::device(at::Device(at::kCUDA, 0)));
    gpus->all_reduce(data)->wait();
    if (world.rank() == 2) ::raise(SIGKILL);
    EXPECT_THROW(gpus->all_reduce(data)->wait(), CommError);
    EXPECT_THROW(gpus->barrier()->wait(), CommError);
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0, 0, -SIGKILL}));
}

INSTANTIATE_TEST_SUITE_P(Ranks, CudaIpc, testing::Range(1, 5));

}  // namespace
}  // namespace trireme::comm
