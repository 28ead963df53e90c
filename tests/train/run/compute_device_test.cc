#include "trireme/train/run/compute_device.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/fake_device.h"
#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/train/language_config.h"

namespace trireme::train {
namespace {

using ::testing::HasSubstr;

constexpr GpuTransport kNccl = GpuTransport::kNccl;

at::Device gpu(int index) { return {at::kCUDA, static_cast<c10::DeviceIndex>(index)}; }

std::string error_of(const RunConfig& config) {
  return harness::message_of([&] { check_device(config); });
}

TEST(RankDevice, AutoTakesGpusIfThereIsOneForEachRank) {
  EXPECT_EQ(rank_device(DeviceChoice::kAuto, kNccl, 0, 1, /*gpus=*/0), at::kCPU);
  EXPECT_EQ(rank_device(DeviceChoice::kAuto, kNccl, 1, 2, /*gpus=*/1), at::kCPU);
  EXPECT_EQ(rank_device(DeviceChoice::kAuto, kNccl, 1, 2, /*gpus=*/2), gpu(1));
  EXPECT_EQ(rank_device(DeviceChoice::kAuto, kNccl, 0, 1, /*gpus=*/8), gpu(0));
}

TEST(RankDevice, AChoiceIsKeptOrRefused) {
  EXPECT_EQ(rank_device(DeviceChoice::kCpu, kNccl, 0, 1, /*gpus=*/8), at::kCPU);
  EXPECT_EQ(rank_device(DeviceChoice::kCuda, kNccl, 3, 4, /*gpus=*/4), gpu(3));
  const auto refused = [](int ranks, int gpus) {
    return harness::message_of([&] { rank_device(DeviceChoice::kCuda, kNccl, 0, ranks, gpus); });
  };
  EXPECT_THAT(refused(1, 0), HasSubstr("this build's libtorch has no CUDA"));
  EXPECT_THAT(refused(4, 2), HasSubstr("4 ranks on this machine and 2 GPUs; each rank needs one"));
}

TEST(RankDevice, CudaIpcSharesTheFirstGpu) {
  constexpr GpuTransport kIpc = GpuTransport::kCudaIpc;
  EXPECT_EQ(rank_device(DeviceChoice::kCuda, kIpc, 3, 4, /*gpus=*/1), gpu(0));
  EXPECT_EQ(rank_device(DeviceChoice::kAuto, kIpc, 1, 2, /*gpus=*/2), gpu(0));
  EXPECT_EQ(rank_device(DeviceChoice::kAuto, kIpc, 1, 2, /*gpus=*/0), at::kCPU);
  EXPECT_THAT(
      harness::message_of([&] { rank_device(DeviceChoice::kCuda, kIpc, 0, 2, /*gpus=*/0); }),
      HasSubstr("no CUDA"));
}

TEST(NoteOfDevice, IsForUsersWhoseGpusIdle) {
  RunConfig config = language_config();
  EXPECT_EQ(note_of_device(config, 2, /*gpus=*/0), "");
  EXPECT_EQ(note_of_device(config, 2, /*gpus=*/1),
            "the CPU, as 2 ranks here would share 1 GPU; start 1 to use it");
  config.train.device = DeviceChoice::kCpu;
  EXPECT_EQ(note_of_device(config, 2, /*gpus=*/1), "");
  config.train.device = DeviceChoice::kAuto;
  config.device = gpu(0);
  EXPECT_EQ(note_of_device(config, 2, /*gpus=*/2), "");
}

TEST(CheckDevice, RefusesWhatNeedsTheHost) {
  RunConfig config = language_config();
  EXPECT_EQ(error_of(config), "");
  config.parallel.rebalance_interval = 10;
  EXPECT_EQ(error_of(config), "");
  config.device = harness::fake_device(0);
  EXPECT_THAT(error_of(config), HasSubstr("parallel.rebalance_interval is 10"));
  config.parallel.rebalance_interval = 0;
  EXPECT_EQ(error_of(config), "");
  config.train.shares_interval = 10;
  EXPECT_THAT(error_of(config), HasSubstr("train.shares_interval is 10"));
  config.train.shares_interval = 0;
  config.train.fp32_products = Fp32Products::kBf16;
  EXPECT_THAT(error_of(config), HasSubstr("train.fp32_products is for CPUs"));
  config.train.fp32_products = Fp32Products::kFp32;
  config.train.shares_interval = 0;
  config.parallel.transport = "mpi";
  EXPECT_THAT(error_of(config), HasSubstr("parallel.transport"));
  config.parallel.transport = "auto";
  config.train.device = DeviceChoice::kCuda;
  EXPECT_THAT(error_of(config), HasSubstr("RunConfig::device is hpu:0"));
}

TEST(CheckSameDevice, TellsEveryRankOfTheFirstThatDiffers) {
  harness::run_ranks(3, [](comm::Communicator& world) {
    check_same_device(world.rank() == 0 ? gpu(1) : gpu(0), world);
    EXPECT_THAT(harness::message_of([&] {
                  check_same_device(world.rank() == 2 ? at::Device(at::kCPU) : gpu(0), world);
                }),
                HasSubstr("rank 0 computes on cuda and rank 2 on cpu"));
  });
}

TEST(PeakDeviceBytes, IsUnknownWhereNobodyCounts) {
  EXPECT_EQ(peak_device_bytes(at::kCPU), std::nullopt);
  EXPECT_EQ(peak_device_bytes(harness::fake_device(0)), std::nullopt);
}

}  // namespace
}  // namespace trireme::train
