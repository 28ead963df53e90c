#include "trireme/train/offload/activation_store.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/harness/fake_device.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

at::Tensor numbers(int64_t count, double phase) {
  return (at::arange(count, at::kFloat) * 0.7 + phase).sin();
}

class DiskActivationsTest : public testing::TestWithParam<bool> {
 protected:
  harness::TemporaryFolder folder_;
  DiskActivations store_{folder_.path(), GetParam()};
};

TEST_P(DiskActivationsTest, GivesBackWhatItGotInAnyOrder) {
  // More than the buffers, of sizes that grow, and small ones between them.
  std::vector<at::Tensor> inputs;
  std::vector<int64_t> order;
  for (int i = 0; i < 13; ++i) {
    inputs.push_back(i % 4 == 3 ? at::arange(i, at::kLong) : numbers(1100 + 977 * i, i));
  }
  inputs.push_back(numbers(6000, 0.5).view({60, 100}).t());  // not contiguous
  inputs.push_back(numbers(5000, 0.1).to(at::kBFloat16));
  inputs.push_back(
      numbers(4800, 0.1).view({2, 3, 20, 40}).contiguous(at::MemoryFormat::ChannelsLast));
  for (const bool backwards : {true, false}) {
    std::vector<int64_t> kept;
    for (const at::Tensor& input : inputs) kept.push_back(store_.put(input));
    EXPECT_EQ(store_.num_kept(), std::ssize(inputs));
    for (size_t k = 0; k < kept.size(); ++k) {
      const size_t i = backwards ? kept.size() - 1 - k : k;
      const at::Tensor found = store_.take(kept[i]);
      harness::assert_same_bits(found, inputs[i], "an input");
      EXPECT_EQ(found.suggest_memory_format(), inputs[i].suggest_memory_format());
    }
    EXPECT_EQ(store_.num_kept(), 0);
  }
}

TEST_P(DiskActivationsTest, TheFileHasRoomForWhatIsKeptAtATime) {
  constexpr int64_t kBytes = 1 << 16;
  for (int pass = 0; pass < 5; ++pass) {
    std::vector<int64_t> kept;
    for (int i = 0; i < 7; ++i) kept.push_back(store_.put(numbers(kBytes / 4, i)));
    store_.drop(kept[2]);
    store_.drop(kept[2]);  // again: nothing
    for (const int i : {6, 5, 4, 3, 1, 0}) {
      harness::assert_same_bits(store_.take(kept[i]), numbers(kBytes / 4, i), "an input");
    }
  }
  EXPECT_EQ(store_.file_bytes(), 2 * 4096 + 7 * kBytes);
}

TEST_P(DiskActivationsTest, AChangeOfTheInputDoesNotReachTheStore) {
  at::Tensor input = numbers(5000, 0);
  const int64_t number = store_.put(input);
  input.zero_();
  harness::assert_same_bits(store_.take(number), numbers(5000, 0), "an input");
}

TEST_P(DiskActivationsTest, TwoMicrobatchesMayBeTakenInTurn) {
  std::vector<int64_t> first, second;
  for (int i = 0; i < 6; ++i) first.push_back(store_.put(numbers(4000, i)));
  for (int i = 0; i < 6; ++i) second.push_back(store_.put(numbers(4000, 10 + i)));
  for (int i = 5; i >= 0; --i) {
    harness::assert_same_bits(store_.take(first[i]), numbers(4000, i), "of the first");
    first[i] = store_.put(numbers(4000, 20 + i));
  }
  for (int i = 5; i >= 0; --i) {
    harness::assert_same_bits(store_.take(second[i]), numbers(4000, 10 + i), "of the second");
  }
  for (int i = 0; i < 6; ++i) {
    harness::assert_same_bits(store_.take(first[i]), numbers(4000, 20 + i), "of the third");
  }
}

INSTANTIATE_TEST_SUITE_P(Io, DiskActivationsTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "uring" : "threads"; });

at::Tensor layer(const std::vector<at::Tensor>& in) { return (in[0] * in[0]).sin() + in[0]; }

struct Pass {
  at::Tensor output, gradient;
};

// Eight recomputed layers, whose inputs go to `store`.
Pass forward_backward(const std::shared_ptr<model::InputStore>& store, at::Device device) {
  at::Tensor start = numbers(3000, 0.2).to(device).requires_grad_();
  at::Tensor x = start;
  {
    const model::StoresInputs stores(store);
    for (int i = 0; i < 8; ++i) x = model::recompute(layer, {x});
  }
  torch::autograd::backward({x.sum()}, {});
  return {x.detach().cpu(), start.grad().cpu()};
}

TEST(ActivationStore, RecomputedLayersHaveTheSameBits) {
  const harness::TemporaryFolder folder;
  const Pass expected = forward_backward(nullptr, at::kCPU);
  const auto store = std::make_shared<DiskActivations>(folder.path());
  for (int pass = 0; pass < 2; ++pass) {
    const Pass found = forward_backward(store, at::kCPU);
    harness::assert_same_bits(found.output, expected.output, "output");
    harness::assert_same_bits(found.gradient, expected.gradient, "gradient");
    EXPECT_EQ(store->num_kept(), 0);
  }
  EXPECT_EQ(store->file_bytes(), 2 * 4096 + 8 * 12288);
}

TEST(ActivationStore, AGraphWithoutBackwardLetsGo) {
  const harness::TemporaryFolder folder;
  const auto store = std::make_shared<DiskActivations>(folder.path());
  {
    const model::StoresInputs stores(store);
    const at::Tensor x = model::recompute(layer, {numbers(3000, 0).requires_grad_()});
    EXPECT_EQ(store->num_kept(), 1);
    const c10::AutoGradMode off(false);
    model::recompute(layer, {x});
    EXPECT_EQ(store->num_kept(), 1);
  }
  EXPECT_EQ(store->num_kept(), 0);
  const at::Tensor outside = model::recompute(layer, {numbers(3000, 0).requires_grad_()});
  EXPECT_EQ(store->num_kept(), 0);
}

TEST(ActivationStore, OnADeviceTheHostOrItsDiskKeepsThem) {
  const harness::TemporaryFolder folder;
  const at::Device device = harness::fake_device(0);
  const Pass expected = forward_backward(nullptr, device);
  for (const OffloadPlace place : {OffloadPlace::kDisk, OffloadPlace::kHost}) {
    const auto store = make_activation_store(place, folder.path(), device);
    ASSERT_NE(store, nullptr);
    const Pass found = forward_backward(store, device);
    harness::assert_same_bits(found.output, expected.output, "output");
    harness::assert_same_bits(found.gradient, expected.gradient, "gradient");
  }
  EXPECT_EQ(make_activation_store(OffloadPlace::kHost, folder.path(), at::kCPU), nullptr);
  EXPECT_EQ(make_activation_store(OffloadPlace::kNone, folder.path(), device), nullptr);
}

TEST(ActivationStore, AFolderThatCannotBeIsRefused) {
  EXPECT_THAT([] { DiskActivations store("/proc/none/activations"); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("offload.folder")));
}

}  // namespace
}  // namespace trireme::train
