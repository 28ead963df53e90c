#include "trireme/checkpoint/offline/reshard.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/offline/mixed_tensors.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/machine/machine_memory.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using harness::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Reshard, KeepsEveryBitFromAndToAnyNumberOfRanks) {
  for (const int before : {1, 2, 3}) {
    const TemporaryFolder root;
    const std::vector<Global> saved = mixed_tensors(before);
    save_all(root / "a", 12, saved, before);
    const SavedTensors source(root / "a" / "step-000012");
    for (const int after : {1, 2, 3, 5}) {
      const fs::path out = root / std::to_string(after);
      reshard(source, out, after);
      const Summary summary = inspect(out / "step-000012");
      EXPECT_EQ(summary.step, 12);
      EXPECT_EQ(summary.world_size, after);
      EXPECT_EQ(summary.state, inspect(root / "a" / "step-000012").state);
      EXPECT_THAT(verify(out / "step-000012").problems, ElementsAre());
      for (const int loaded : {1, 2}) {
        expect_loads(out / "step-000012", mixed_tensors(loaded), loaded);
      }
    }
  }
}

TEST(Reshard, CutsDimensionZeroOrTheLongestOne) {
  const TemporaryFolder root;
  save_all(root / "a", 1, mixed_tensors(1), 1);
  reshard(SavedTensors(root / "a" / "step-000001"), root / "b", 3);
  for (const TensorSummary& tensor : inspect(root / "b" / "step-000001").tensors) {
    if (tensor.name == "matrix") {
      EXPECT_EQ(tensor.layout, "shard=3 sharded(0)");
      EXPECT_EQ(tensor.num_pieces, 3);
    }
    if (tensor.name == "wide") EXPECT_EQ(tensor.layout, "shard=3 sharded(1)");
    if (tensor.name == "scalar") EXPECT_EQ(tensor.layout, "shard=3 replicated");
  }
}

TEST(Reshard, TellsItsProgressUpToTheLastByte) {
  const TemporaryFolder root;
  save_all(root / "a", 1, mixed_tensors(2), 2);
  const SavedTensors source(root / "a" / "step-000001");
  int64_t last = 0, calls = 0;
  reshard(source, root / "b", 2, [&](int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    EXPECT_EQ(total, num_bytes(source));
    last = done;
    ++calls;
  });
  EXPECT_EQ(last, num_bytes(source));
  EXPECT_GT(calls, 2);
}

TEST(Reshard, LeavesNothingOfADamagedCheckpoint) {
  const TemporaryFolder root;
  save_all(root / "a", 1, mixed_tensors(1), 1);
  for (const auto& item : fs::directory_iterator(root / "a" / "step-000001")) {
    if (item.path().extension() != ".safetensors") continue;
    const std::string content = read_file(item.path());
    overwrite(item.path(), with_flipped_bit(content, 8 * content.size() - 1));
  }
  const SavedTensors source(root / "a" / "step-000001");
  EXPECT_THAT(checkpoint_error([&] { reshard(source, root / "b", 3); }), HasSubstr("damaged"));
  EXPECT_THAT(list(root / "b"), ElementsAre());
  EXPECT_TRUE(fs::is_empty(root / "b"));
}

TEST(Reshard, RefusesANumberOfRanksOutOfRange) {
  const TemporaryFolder root;
  save_all(root / "a", 1, mixed_tensors(1), 1);
  const SavedTensors source(root / "a" / "step-000001");
  for (const int ranks : {0, -1, kMaxReshardRanks + 1}) {
    EXPECT_THAT(harness::message_of<ConfigError>([&] { reshard(source, root / "b", ranks); }),
                HasSubstr(std::to_string(ranks)));
  }
}

TEST(Reshard, RefusesMoreThanTheMachineCanPlan) {
  const TemporaryFolder root;
  const mesh::Layout layout({1}, {});
  std::vector<Global> many;
  const at::Tensor one = random_tensor("one", {1}, at::kFloat);
  const double most = static_cast<double>(machine_memory_bytes()) / 2;
  const double per_tensor = 1500.0 * kMaxReshardRanks * kMaxReshardRanks;
  const auto enough = static_cast<int64_t>(most / per_tensor) + 1;
  for (int64_t i = 0; i < enough; ++i) many.push_back({"w" + std::to_string(i), one, layout});
  save_all(root / "a", 1, many, 1);
  const SavedTensors source(root / "a" / "step-000001");
  EXPECT_THAT(
      harness::message_of<ConfigError>([&] { reshard(source, root / "b", kMaxReshardRanks); }),
      HasSubstr("fewer ranks"));
  EXPECT_FALSE(fs::exists(root / "b"));
  reshard(source, root / "b", 2);
}

}  // namespace
}  // namespace trireme::checkpoint
