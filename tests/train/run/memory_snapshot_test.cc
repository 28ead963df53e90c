#include "trireme/train/run/memory_snapshot.h"

#include <filesystem>
#include <iterator>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/file/file.h"
#include "trireme/train/run/counted_memory.h"

namespace trireme::train {
namespace {

constexpr int64_t kElements = int64_t{1} << 20;

nlohmann::json snapshot_in(const std::filesystem::path& folder, const std::string& name) {
  return nlohmann::json::parse(read_file(folder / kMemoryFolder / name));
}

TEST(MemorySnapshot, TheFileNamesOperatorUnitAndKindOfWhatIsThere) {
  const harness::TemporaryFolder folder;
  const auto ledger = counting_ledger();
  const MemoryScope scope(MemoryKind::kActivations, ledger);
  write_memory_snapshots(*ledger, folder.path(), 3);
  ledger->blocks()->set_step(12);
  const std::string unit = "layers.1";
  const at::Tensor x = at::zeros({kElements});
  const MemoryUnit in_unit(unit);
  const at::Tensor y = at::softmax(x.view({2, kElements / 2}), 1).repeat({2, 1});
  const nlohmann::json found = snapshot_in(folder.path(), "rank-00003.json");
  EXPECT_EQ(found["rank"], 3);
  EXPECT_EQ(found["step"], 12);
  EXPECT_EQ(found["failed_bytes"], 0);
  EXPECT_EQ(found["kinds"]["activations"], found["total_bytes"]);
  const nlohmann::json& largest = found["largest"][0];
  EXPECT_EQ(largest["bytes"], 8 * kElements);
  EXPECT_EQ(largest["kind"], "activations");
  EXPECT_EQ(largest["operator"], "aten::repeat");
  EXPECT_EQ(largest["unit"], unit);
  EXPECT_EQ(largest_words(*ledger).find("; the largest tensors: 8.0 MiB of activations "
                                        "(aten::repeat in layers.1)"),
            0u);
}

TEST(MemorySnapshot, WhatCannotBeAllocatedLeavesWhatThereWas) {
  const harness::TemporaryFolder folder;
  const auto ledger = counting_ledger();
  const MemoryScope scope(MemoryKind::kStates, ledger);
  write_memory_snapshots(*ledger, folder.path(), 0);
  {
    const at::Tensor x = at::zeros({kElements});
    EXPECT_THROW(at::empty({int64_t{1} << 55}, at::kByte), c10::Error);
  }
  const nlohmann::json found = snapshot_in(folder.path(), "rank-00000.json");
  EXPECT_EQ(found["failed_bytes"], int64_t{1} << 55);
  EXPECT_EQ(found["largest"][0]["bytes"], 4 * kElements);
  EXPECT_NE(largest_words(*ledger).find("4.0 MiB of states (aten::zeros)"), std::string::npos);
}

TEST(MemorySnapshot, WithoutSnapshotsTheLargestKindsAreTold) {
  const auto ledger = counting_ledger();
  EXPECT_EQ(largest_words(*ledger), "");
  {
    const MemoryScope scope(MemoryKind::kGradients, ledger);
    const at::Tensor x = at::empty({kElements});
  }
  EXPECT_EQ(largest_words(*ledger).find("; at the peak: 4.0 MiB of gradients"), 0u);
}

TEST(MemorySnapshot, ThoseOfAnEarlierRunGoAndNothingElse) {
  const harness::TemporaryFolder folder;
  remove_memory_snapshots(folder.path());  // there are none
  const std::filesystem::path memory = folder.path() / kMemoryFolder;
  std::filesystem::create_directories(memory);
  for (const char* name : {"rank-00000.json", "rank-00007.json", "rank-00007.json.next", "notes"})
    OutputFile(memory / name).write("{}");
  remove_memory_snapshots(folder.path());
  EXPECT_TRUE(is_file(memory / "notes"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(memory), {}), 1);
}

TEST(MemorySnapshot, AFolderThatCannotBeWrittenIsNoError) {
  const auto ledger = counting_ledger();
  const MemoryScope scope(MemoryKind::kOther, ledger);
  write_memory_snapshots(*ledger, "/proc/none", 0);
  const at::Tensor x = at::empty({kElements});
  EXPECT_EQ(ledger->blocks()->snapshot().kinds.total(), 4 * kElements);
}

}  // namespace
}  // namespace trireme::train
