#include "trireme/cli/plan/device_rates.h"

#include <chrono>
#include <cmath>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/ranks.h"

namespace trireme::cli {
namespace {

TEST(DeviceRates, FindTheCurveThatMadeThem) {
  for (const double half : {0.0, 12.0, 100.0}) {
    std::vector<ProductRate> rates;
    for (const double n : {32.0, 64.0, 256.0, 1024.0}) {
      rates.push_back({n, 5e10 * std::pow(n / (n + half), 3)});
    }
    const ProductCurve curve = fit_products(rates);
    EXPECT_NEAR(curve.half_size, half, 0.05 * half + 0.5);
    EXPECT_NEAR(curve.flops / 5e10, 1, 0.05);
  }
}

TEST(DeviceRates, RowsHaveAHalfSizeOfTheirOwn) {
  std::vector<ProductRate> rates;
  for (const auto& [rows, n] : {std::pair{256.0, 512.0}, {2048.0, 256.0}, {2048.0, 1024.0}}) {
    rates.push_back({n, 8e11 * rows / (rows + 300) * std::pow(n / (n + 50), 2), rows});
  }
  const ProductCurve curve = fit_layers(rates);
  EXPECT_NEAR(curve.half_size, 50, 3);
  EXPECT_NEAR(curve.half_rows, 300, 15);
  EXPECT_NEAR(curve.flops / 8e11, 1, 0.03);
}

TEST(DeviceRates, AttentionIsFasterOverLongSequences) {
  const auto rate = [](double tokens) {
    return AttentionRate{tokens, 2e11 * tokens / (tokens + 150)};
  };
  const AttentionCurve curve = fit_attention(rate(256), rate(1024));
  EXPECT_NEAR(curve.flops, 2e11, 1);
  EXPECT_NEAR(curve.half_size, 150, 1e-6);
  // A noisy measurement has no curve that falls.
  const AttentionCurve noisy = fit_attention({256, 3e11}, {1024, 2e11});
  EXPECT_DOUBLE_EQ(noisy.flops, 2e11);
  EXPECT_EQ(noisy.half_size, 0);
}

TEST(DeviceRates, ALineIsReadBack) {
  const DeviceRates rates{.single = {1e10, 20},
                          .half = {2e9, 30, 40},
                          .attention = {3e9, 100},
                          .half_attention = {2.5e9, 200},
                          .head = 4e9,
                          .half_head = 5e9,
                          .loss_bytes = 3e9,
                          .update_bytes = 2e9,
                          .half_update_bytes = 1e9,
                          .memory_bytes = 4e9,
                          .half_memory_bytes = 3.5e9,
                          .launch_seconds = 5e-6,
                          .link_bytes = 6e9,
                          .link_seconds = 7e-7,
                          .disk_bytes = 9e8,
                          .resident_bytes = 8e8};
  EXPECT_EQ(line_of(read_device_line(line_of(rates))), line_of(rates));
}

TEST(DeviceRates, EveryRateIsMeasured) {
  harness::run_ranks(2, [](comm::Communicator& group) {
    const DeviceRates rates = measure_device(group, {.seconds = 1e-6}).value();
    for (const double rate :
         {rates.single.flops, rates.half.flops, rates.attention.flops, rates.half_attention.flops,
          rates.head, rates.half_head, rates.loss_bytes, rates.update_bytes,
          rates.half_update_bytes, rates.memory_bytes, rates.half_memory_bytes,
          rates.launch_seconds, rates.link_bytes, rates.link_seconds, rates.resident_bytes}) {
      EXPECT_GT(rate, 0);
      EXPECT_TRUE(std::isfinite(rate));
    }
  });
}

// As over a network on which a call takes far longer than the budget.
class SlowGroup : public harness::CountingCommunicator {
 public:
  using CountingCommunicator::CountingCommunicator;
  comm::WorkPtr run(comm::Collective call) override {
    if (call.kind == comm::Collective::Kind::kAllReduce) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return CountingCommunicator::run(std::move(call));
  }
};

TEST(DeviceRates, ASlowLinkIsMeasuredWithFewCallsAndBytes) {
  harness::run_ranks(2, [](comm::Communicator& group) {
    SlowGroup slow(group);
    const auto rates = measure_device(slow, {.seconds = 1e-6, .link_seconds = 0.001});
    ASSERT_TRUE(rates);
    EXPECT_GT(rates->link_bytes, 0);
    EXPECT_GT(rates->link_seconds, 0.005);
    // Two and what they agree on, small and large, the four sizes of bf16 products, and the rates
    // of the ranks themselves.
    EXPECT_EQ(slow.ledger().of(group.name(), "all_reduce").calls, 11);
    EXPECT_LT(slow.ledger().of(group.name()).bytes, 1 << 20);
    EXPECT_EQ(slow.ledger().of(group.name(), "barrier").calls, 0);
  });
}

TEST(DeviceRates, BytesHaveALimitToo) {
  harness::run_ranks(2, [](comm::Communicator& group) {
    harness::CountingCommunicator counted(group);
    ASSERT_TRUE(measure_device(counted, {.seconds = 1e-6, .link_bytes = 16 << 20}));
    // Two of the largest are the least that tells anything.
    EXPECT_LT(counted.ledger().of(group.name()).bytes, (2 * 16 + 16 + 16 + 8) << 20);
  });
}

TEST(DeviceRates, AnyRankMayStopIt) {
  for (const int num_asked : {1, 2, 4}) {
    harness::run_ranks(2, [&](comm::Communicator& group) {
      int asked = 0;
      const auto stop = [&] { return group.rank() == 1 && ++asked >= num_asked; };
      EXPECT_FALSE(measure_device(group, {.seconds = 1e-6, .stop = stop}));
    });
  }
}

}  // namespace
}  // namespace trireme::cli
