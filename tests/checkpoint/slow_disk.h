// A disk that is slower than the collectives' timeout.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved.h"
#include "tests/harness/tensors.h"

namespace trireme::checkpoint {

constexpr int kSlowRank = 1;
constexpr std::chrono::milliseconds kTimeout{1500};
constexpr std::chrono::milliseconds kSlow{4000};

// A tensor on a disk: `before` runs before each access.
class OnDisk : public OffloadedTensor {
 public:
  OnDisk(at::Tensor tensor, std::function<void()> before)
      : tensor_(std::move(tensor)), before_(std::move(before)) {}
  at::Tensor read() const override {
    before_();
    return tensor_;
  }
  void write(const at::Tensor& values) override {
    before_();
    tensor_.copy_(values);
  }

 private:
  at::Tensor tensor_;
  std::function<void()> before_;
};

// This rank's rows of "a" and "b", each access of which runs `before`.
inline std::vector<Entry> entries_of(const comm::Communicator& world,
                                     const std::function<void()>& before) {
  std::vector<Entry> entries;
  for (const char* name : {"a", "b"}) {
    const mesh::Layout rows({6, 4}, {{"data", world.size()}}, {mesh::Placement::sharded(0)});
    Entry entry = part_of(name, random_tensor(name, {6, 4}, at::kInt), rows, world.rank());
    entry.offloaded = std::make_shared<OnDisk>(entry.local, before);
    entry.local = entry.local.to(at::kMeta);
    entries.push_back(std::move(entry));
  }
  return entries;
}

// Saves step 1 in `folder` and loads it; the slow rank sleeps once in each. `world` has kTimeout.
inline void save_and_load_slowly(comm::Communicator& world, const std::filesystem::path& folder) {
  const bool is_slow = world.rank() == kSlowRank;
  bool was_slow = false;
  const auto before = [&] {
    if (is_slow && !std::exchange(was_slow, true)) std::this_thread::sleep_for(kSlow);
  };
  std::vector<Entry> entries = entries_of(world, before);
  save(folder, 1, entries, "{}", world);
  was_slow = false;
  load(folder / "step-000001", entries, world);
  EXPECT_EQ(was_slow, is_slow);
}

inline void check_saved(const std::filesystem::path& folder) {
  EXPECT_THAT(verify(folder / "step-000001").problems, ::testing::ElementsAre());
  for (const char* name : {"a", "b"}) {
    harness::assert_same_bits(load_tensor(folder / "step-000001", name),
                              random_tensor(name, {6, 4}, at::kInt), name);
  }
}

}  // namespace trireme::checkpoint
