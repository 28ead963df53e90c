#include "trireme/train/run/counted_memory.h"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "tests/harness/ranks.h"
#include "trireme/base/machine/machine.h"

namespace trireme::train {
namespace {

using enum MemoryKind;

constexpr int64_t kBytes = int64_t{4} << 20;

at::Tensor block() { return at::empty({kBytes}, at::kByte); }

TEST(CountedMemory, KindsSumToTheTotal) {
  const auto ledger = counting_ledger();
  const MemoryScope scope(kOther, ledger);
  std::vector<at::Tensor> blocks;
  for (size_t kind = 0; kind < kNumMemoryKinds; ++kind) {
    const MemoryScope inner(static_cast<MemoryKind>(kind));
    for (size_t i = 0; i <= kind; ++i) blocks.push_back(block());
    EXPECT_EQ(ledger->use().now.bytes[kind], static_cast<int64_t>(kind + 1) * kBytes);
  }
  EXPECT_EQ(ledger->use().now.total(), std::ssize(blocks) * kBytes);
  blocks.clear();
  EXPECT_EQ(ledger->use().now, MemoryByKind());
  EXPECT_EQ(ledger->use().at_peak.total(), 28 * kBytes);
}

TEST(CountedMemory, ABlockIsGivenBackOnWhicheverThreadFreesIt) {
  const auto ledger = counting_ledger();
  at::Tensor tensor;
  {
    const MemoryScope scope(kBuckets, ledger);
    tensor = block();
  }
  std::thread([moved = std::move(tensor)]() mutable { moved.reset(); }).join();
  EXPECT_EQ(ledger->use().now, MemoryByKind());
  EXPECT_EQ(ledger->use().most[kBuckets], kBytes);
}

TEST(CountedMemory, RanksThatAreThreadsDoNotMix) {
  harness::run_ranks(3, [](comm::Communicator& world) {
    const auto ledger = counting_ledger();
    const MemoryScope scope(kWeights, ledger);
    world.barrier();
    const at::Tensor own = at::empty({(world.rank() + 1) * kBytes}, at::kByte);
    world.barrier();
    EXPECT_EQ(ledger->use().now.total(), (world.rank() + 1) * kBytes);
    world.barrier();
  });
}

TEST(CountedMemory, WhatBackwardMakesIsCountedAndAProfilerSeesTheSame) {
  using namespace torch::profiler::impl;
  const auto ledger = counting_ledger();
  const MemoryScope scope(kActivations, ledger);
  const ProfilerConfig config(ProfilerState::KINETO, /*report_input_shapes=*/false,
                              /*profile_memory=*/true);
  const std::set<ActivityType> activities = {ActivityType::CPU};
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
  {
    const at::Tensor x = at::ones({1024, 1024}).requires_grad_();  // 4 MiB
    x.sigmoid().sum().backward();
    EXPECT_EQ(ledger->use().now[kActivations], 2 * kBytes);  // x and its gradient
  }
  EXPECT_EQ(ledger->use().now, MemoryByKind());
  const auto result = torch::autograd::profiler::disableProfiler();
  int64_t largest = 0;
  for (const auto& event : result->events()) largest = std::max(largest, event.nBytes());
  EXPECT_EQ(largest, kBytes);
}

TEST(CountedMemory, RawBlocksAndSmallOnesPassThrough) {
  at::Tensor before = at::zeros({4096});  // perhaps before anything counts
  const auto ledger = counting_ledger();
  const MemoryScope scope(kOther, ledger);
  before.reset();
  const at::Tensor small = at::empty({static_cast<int64_t>(kFewestCountedBytes) - 1}, at::kByte);
  EXPECT_EQ(ledger->use().now, MemoryByKind());
  c10::Allocator& allocator = *c10::GetCPUAllocator();
  void* const raw = allocator.raw_allocate(kBytes);  // as oneDNN takes them
  EXPECT_EQ(ledger->use().now[kOther], kBytes);
  allocator.raw_deallocate(raw);
  EXPECT_EQ(ledger->use().now, MemoryByKind());
}

TEST(CountedMemory, AFreedBlockIsReusedWhereTheProcessKeepsFreedMemory) {
  const auto ledger = counting_ledger();
  const MemoryScope scope(kOther, ledger);
  set_freed_memory(FreedMemory::kKept);
  at::Tensor tensor = block();
  const void* const place = tensor.data_ptr();
  tensor.reset();
  EXPECT_EQ(ledger->use().now, MemoryByKind());
  std::thread([&] { tensor = block(); }).join();  // counted by nobody, or the only ledger
  EXPECT_EQ(tensor.data_ptr(), place);
  tensor.reset();
  tensor = block();
  EXPECT_EQ(tensor.data_ptr(), place);
  EXPECT_EQ(ledger->use().now[kOther], kBytes);
  void* const raw = c10::GetCPUAllocator()->raw_allocate(kBytes);
  EXPECT_NE(raw, place);
  set_freed_memory(FreedMemory::kReturned);
  tensor.reset();  // kept all the same, and not reused
  EXPECT_NE(block().data_ptr(), place);
  c10::GetCPUAllocator()->raw_deallocate(raw);
  EXPECT_EQ(ledger->use().now, MemoryByKind());
}

// As the kernel's huge pages must lie. Odd sizes: what was mapped for the alignment is returned.
TEST(CountedMemory, ReusedBlocksBeginAtAHugePage) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const auto ledger = counting_ledger();
  set_freed_memory(FreedMemory::kKept);
  for (const int64_t bytes : {kBytes, kBytes + 1, 2 * kBytes + 4097, int64_t{2} << 20}) {
    const at::Tensor tensor = at::full({bytes}, 7, at::kByte);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % kHugePage, 0) << bytes;
    EXPECT_EQ(tensor[bytes - 1].item<uint8_t>(), 7);
  }
  set_freed_memory(FreedMemory::kReturned);
}

TEST(CountedMemory, MetricsHaveItByKind) {
  MemoryByKind memory;
  memory[kStates] = 5;
  StepMetrics metrics;
  set_memory(memory, metrics);
  EXPECT_EQ(metrics.memory_states_bytes, 5);
  EXPECT_EQ(metrics.memory_weights_bytes, 0);
}

}  // namespace
}  // namespace trireme::train
