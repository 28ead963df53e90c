#include "trireme/comm/shared/heap.h"

#include <random>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

constexpr size_t kArena = 4 << 20;
constexpr SegmentSize kSize{4096, 2 * kArena};

std::shared_ptr<Heap> heap_of(const std::shared_ptr<Segment>& segment, int rank) {
  return Heap::in(segment, kSize.committed, kArena, rank, 2);
}

std::shared_ptr<Heap> some_heap() {
  return heap_of(make_shm_segments()->create(harness::unique_job(), 0, kSize), 0);
}

TEST(Heap, TensorOfOneRankIsReadByAnotherAtItsPlace) {
  const auto segments = make_shm_segments();
  const std::string job = harness::unique_job();
  const auto first = heap_of(segments->create(job, 0, kSize), 0);
  const auto second = heap_of(segments->open(job, 1, kSize), 1);  // mapped elsewhere
  for (const auto& [from, to] : {std::pair{first, second}, std::pair{second, first}}) {
    const at::Tensor tensor = from->empty({3, 5}, at::kDouble);
    tensor.fill_(7);
    const uint64_t place = from->place_of(tensor.data_ptr(), tensor.nbytes());
    ASSERT_NE(place, Heap::kOrdinary);
    EXPECT_NE(to->at(place), tensor.data_ptr());
    EXPECT_EQ(reinterpret_cast<const double*>(to->at(place))[14], 7);
  }
}

TEST(Heap, OrdinaryTensorsAndTheEndOfTheHeapHaveNoPlace) {
  const auto heap = some_heap();
  const at::Tensor ordinary = at::empty({8});
  EXPECT_EQ(heap->place_of(ordinary.data_ptr(), 32), Heap::kOrdinary);
  EXPECT_EQ(heap->place_of(heap->at(2 * kArena - 8), 9), Heap::kOrdinary);
  EXPECT_NE(heap->place_of(heap->at(2 * kArena - 8), 8), Heap::kOrdinary);
}

TEST(Heap, WhatAPeerTellsIsFoundOnlyWithinOneArenaAndAligned) {
  const auto heap = some_heap();
  EXPECT_EQ(heap->find(0, kArena, 1), heap->at(0));
  EXPECT_EQ(heap->find(2 * kArena - 8, 8, 8), heap->at(2 * kArena - 8));
  EXPECT_EQ(heap->find(2 * kArena - 8, 9, 1), nullptr);
  EXPECT_EQ(heap->find(kArena - 8, 16, 8), nullptr);  // from one arena into the next
  EXPECT_EQ(heap->find(0, kArena + 1, 1), nullptr);
  EXPECT_EQ(heap->find(2 * kArena, 0, 1), nullptr);
  EXPECT_EQ(heap->find(4, 8, 8), nullptr);
  EXPECT_EQ(heap->find(8, ~uint64_t{0} - 4, 1), nullptr);  // their sum is within
  EXPECT_EQ(heap->find(~uint64_t{0} - 7, 16, 1), nullptr);
}

TEST(Heap, EveryTensorOfAThreadHasAPlace) {
  const auto heap = Heap::of_threads();
  const at::Tensor tensor = heap->empty({8}, at::kInt);
  EXPECT_EQ(heap->at(heap->place_of(tensor.data_ptr(), 32)), tensor.data_ptr());
}

TEST(Heap, LiveTensorsNeverOverlapAndFreedMemoryIsUsedAgain) {
  const auto heap = some_heap();
  std::mt19937 random(1);
  std::vector<at::Tensor> live;
  for (int i = 0; i < 3000; ++i) {
    if (live.size() > 20 || (random() % 3 == 0 && !live.empty())) {
      const size_t which = random() % live.size();
      const auto value = live[which].numel() > 0 ? live[which][0].item<int>() : 0;
      ASSERT_TRUE(live[which].eq(value).all().item<bool>()) << "overwritten";
      live.erase(live.begin() + static_cast<int64_t>(which));
    }
    live.push_back(heap->empty({static_cast<int64_t>(random() % 20000)}, at::kInt).fill_(i));
  }
  live.clear();
  // All of it is one piece again.
  EXPECT_NO_THROW(heap->empty({static_cast<int64_t>(kArena)}, at::kByte));
}

TEST(Heap, FullArenaSaysHowLargeItIs) {
  const auto heap = some_heap();
  const at::Tensor most = heap->empty({static_cast<int64_t>(kArena) - 64}, at::kByte);
  EXPECT_ERROR(ConfigError, heap->empty({65}, at::kByte),
               "does not fit into this rank's heap of " + std::to_string(kArena));
  EXPECT_ERROR(ConfigError, heap->empty({65}, at::kByte), "raise parallel.heap_bytes");
  EXPECT_NO_THROW(heap->empty({64}, at::kByte));
}

TEST(Heap, ShapesThatNoMemoryHoldsAreTooLarge) {
  const auto heap = some_heap();
  const int64_t half = int64_t{1} << 32;
  EXPECT_ERROR(ConfigError, heap->empty({half, half}, at::kByte), "symmetric memory is full");
  EXPECT_ERROR(ConfigError, heap->empty({half, half / 8}, at::kDouble), "symmetric memory is full");
  EXPECT_ERROR(ConfigError, heap->empty({half / 2, half - 1}, at::kByte),
               "symmetric memory is full");
}

TEST(Heap, TensorKeepsItsMemoryWhenHeapAndSegmentGo) {
  at::Tensor tensor;
  {
    const auto heap = some_heap();
    tensor = heap->empty({100000}, at::kLong);
  }
  tensor.fill_(3);
  EXPECT_EQ(tensor.sum().item<int64_t>(), 300000);
}

TEST(Heap, ShapesWithoutElementsAndScalarsWork) {
  const auto heap = some_heap();
  EXPECT_EQ(heap->empty({0, 3}, at::kFloat).numel(), 0);
  EXPECT_EQ(heap->empty({}, at::kFloat).fill_(2).item<float>(), 2);
  EXPECT_ERROR(ConfigError, heap->empty({-1}, at::kFloat), "size of -1");
}

}  // namespace
}  // namespace trireme::comm
