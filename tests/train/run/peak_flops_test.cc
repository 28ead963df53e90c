#include "trireme/train/run/compute_device.h"

#include <gtest/gtest.h>

#include "tests/harness/fake_device.h"
#include "tests/harness/ranks.h"
#include "tests/train/language_config.h"

namespace trireme::train {
namespace {

TEST(PeakFlops, OfAGpuIsFoundByPartOfItsName) {
  EXPECT_EQ(peak_flops_of(" \t NVIDIA H200", c10::kBFloat16, false), 989.4e12);
  EXPECT_EQ(peak_flops_of("NVIDIA H100 PCIe", c10::kHalf, false), 756e12);
  EXPECT_EQ(peak_flops_of("NVIDIA A100-SXM4-80GB", c10::kFloat, true), 156e12);
  EXPECT_EQ(peak_flops_of("NVIDIA A100-SXM4-80GB", c10::kFloat, false), 19.5e12);
  EXPECT_EQ(peak_flops_of("Tesla V100-SXM2-32GB", c10::kFloat, true), 15.7e12);  // it has no TF32
  EXPECT_EQ(peak_flops_of("NVIDIA L40S", c10::kFloat, false), 91.6e12);
  EXPECT_EQ(peak_flops_of("NVIDIA L4", c10::kFloat, false), 30.3e12);
  EXPECT_EQ(peak_flops_of("a GPU of next year", c10::kFloat, false), 0);
  EXPECT_EQ(peak_flops_of("", c10::kFloat, false), 0);
}

TEST(PeakFlops, IsWhatTheConfigSaysOrMeasures) {
  harness::run_ranks(2, [](comm::Communicator& world) {
    RunConfig config = language_config();
    EXPECT_EQ(peak_flops(config, world), 0);
    config.train.peak_teraflops = 1.5;
    EXPECT_EQ(peak_flops(config, world), 1.5e12);
    config.train.measure_peak = true;
    const double measured = peak_flops(config, world);
    EXPECT_GT(measured, 1e8);
    EXPECT_LT(measured, 1e14);
  });
}

}  // namespace
}  // namespace trireme::train
