#include "trireme/checkpoint/offline/rewrite.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include "tests/checkpoint/offline/mixed_tensors.h"
#include "tests/checkpoint/version_1.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/machine/machine.h"
#include "trireme/checkpoint/write/save_plan.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using harness::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Rewrite, KeepsEveryBitFromAndToAnyNumberOfRanks) {
  for (const int before : {1, 2, 3}) {
    const TemporaryFolder root;
    const std::vector<Global> saved = mixed_tensors(before);
    save_all(root / "a", 12, saved, before);
    const SavedTensors source(root / "a" / "step-000012");
    for (const int after : {1, 2, 3, 5}) {
      const fs::path out = root / std::to_string(after);
      EXPECT_EQ(rewrite(source, out, {.num_ranks = after}).num_ranks, after);
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

TEST(Rewrite, CutsDimensionZeroOrTheLongestOne) {
  const TemporaryFolder root;
  save_all(root / "a", 1, mixed_tensors(1), 1);
  rewrite(SavedTensors(root / "a" / "step-000001"), root / "b", {.num_ranks = 3});
  for (const TensorSummary& tensor : inspect(root / "b" / "step-000001").tensors) {
    if (tensor.name == "matrix") {
      EXPECT_EQ(tensor.layout, "shard=3 sharded(0)");
      EXPECT_EQ(tensor.num_pieces, 3);
    }
    if (tensor.name == "wide") EXPECT_EQ(tensor.layout, "shard=3 sharded(1)");
    if (tensor.name == "scalar") EXPECT_EQ(tensor.layout, "shard=3 replicated");
  }
}

// The boxes of every tensor, with their chunks' digests: what a copy has in common with its source.
std::map<std::string, std::vector<std::pair<mesh::Box, std::vector<Digest>>>> boxes_of(
    const fs::path& folder) {
  std::map<std::string, std::vector<std::pair<mesh::Box, std::vector<Digest>>>> boxes;
  for (const auto& [name, record] : read_manifest(folder).tensors) {
    for (const Piece& piece : record.pieces) {
      std::vector<Digest> digests;
      for (const Chunk& chunk : piece.chunks) digests.push_back(chunk.digest);
      boxes[name].emplace_back(piece.box, digests);
    }
  }
  return boxes;
}

// The numbers of the files in a checkpoint's folder.
std::set<ino_t> inodes_of(const fs::path& folder) {
  std::set<ino_t> inodes;
  for (const auto& item : fs::directory_iterator(folder)) {
    struct stat status {};
    EXPECT_EQ(::stat(item.path().c_str(), &status), 0);
    inodes.insert(status.st_ino);
  }
  return inodes;
}

// Each element of a vector, which is one chunk, becomes a box of its own.
void cut_into_elements(const fs::path& folder, const std::string& name) {
  const at::Tensor values = load_tensor(folder, name);
  const auto bytes = std::as_bytes(std::span(values.const_data_ptr<float>(), values.numel()));
  edit_manifest(folder, [&](nlohmann::json& body) {
    nlohmann::json& pieces = body["tensors"][name]["pieces"];
    Chunk chunk = parse_chunk(pieces.at(0)["chunks"].at(0).get<std::string>()).value();
    chunk.stored_bytes = chunk.num_bytes = 4;
    pieces.clear();
    for (int64_t i = 0; i < values.numel(); ++i, chunk.begin += 4) {
      chunk.digest = digest_of(bytes.subspan(4 * i, 4));
      pieces.push_back({{"offset", {i}}, {"size", {1}}, {"chunks", {to_text(chunk)}}});
    }
  });
}

TEST(Rewrite, AsSavedKeepsBoxesAndLayoutsAndSharesNoFile) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const Compression compression : {Compression::kNone, Compression::kZstd}) {
      const TemporaryFolder root;
      const std::vector<Global> saved = mixed_tensors(ranks);
      save_all(root / "a", 1, saved, ranks);
      save_all(root / "a", 2, saved, ranks);  // links the files of step 1
      const fs::path a = root / "a" / "step-000002", b = root / "b" / "step-000002";
      const SavedTensors source(a);
      const Rewritten done = rewrite(source, root / "b", {.compression = compression});
      EXPECT_EQ(done.num_ranks, ranks);
      EXPECT_EQ(done.num_bytes, num_bytes(source));
      EXPECT_EQ(done.shared_bytes, 0);
      EXPECT_EQ(boxes_of(b), boxes_of(a));
      const Summary before = inspect(a), after = inspect(b);
      for (size_t i = 0; i < before.tensors.size(); ++i)
        EXPECT_EQ(after.tensors[i].layout, before.tensors[i].layout);
      for (const ino_t inode : inodes_of(b)) EXPECT_FALSE(inodes_of(a).contains(inode));
      EXPECT_THAT(verify(b).problems, ElementsAre());
      expect_loads(b, saved, ranks);
    }
  }
}

TEST(Rewrite, BesideCheckpointsLinksWhatTheNewestHas) {
  const TemporaryFolder root;
  const auto tensors = [](uint64_t seed) {
    const auto rows = [](int64_t count) {
      return mesh::Layout({count, 8}, {{"data", 2}}, {mesh::Placement::sharded(0)});
    };
    return std::vector<Global>{
        {"same", random_tensor("same", {8192, 8}, at::kFloat), rows(8192)},
        {"new", random_tensor("new", {4096, 8}, at::kFloat, seed), rows(4096)}};
  };
  save_all(root / "a", 1, tensors(1), 2);
  save_all(root / "a", 2, tensors(2), 2);
  const int64_t same_bytes = 8192 * 8 * 4, new_bytes = 4096 * 8 * 4;
  rewrite(SavedTensors(root / "a" / "step-000001"), root / "packed", {});
  const SavedTensors packed(root / "packed" / "step-000001");
  for (const Compression compression : {Compression::kNone, Compression::kZstd}) {
    const Rewritten done =
        rewrite(packed, root / "a", {.incremental = true, .compression = compression});
    EXPECT_EQ(done.shared_bytes, same_bytes);
    EXPECT_GE(done.written_bytes, new_bytes);
    EXPECT_LE(done.written_bytes, new_bytes + 2 * 4096);  // and two headers
    EXPECT_THAT(verify(root / "a" / "step-000001").problems, ElementsAre());
    expect_loads(root / "a" / "step-000001", tensors(1), 2);
  }
  expect_loads(root / "a" / "step-000002", tensors(2), 2);
  // All of it is there: no file is written.
  rewrite(packed, root / "b", {});
  const Rewritten again = rewrite(packed, root / "b", {.incremental = true});
  EXPECT_EQ(again.shared_bytes, same_bytes + new_bytes);
  EXPECT_EQ(again.written_bytes, 0);
}

TEST(Rewrite, PutsEachBoxOfARankIntoTheFileOfThatRank) {
  const TemporaryFolder root;
  const mesh::Layout layout({6, 4}, {{"data", 3}}, {mesh::Placement::sharded(0)});
  const mesh::Layout whole({5}, {{"data", 3}});
  save_all(root / "a", 1,
           std::vector<Global>{{"w", random_tensor("w", {6, 4}, at::kFloat), layout},
                               {"b", random_tensor("b", {5}, at::kFloat), whole}},
           3);
  for (const int num_ranks : {3, kAsSaved}) {
    const fs::path out = root / std::to_string(num_ranks);
    rewrite(SavedTensors(root / "a" / "step-000001"), out, {.num_ranks = num_ranks});
    const Manifest manifest = read_manifest(out / "step-000001");
    const std::vector<Piece>& pieces = manifest.tensors.at("w").pieces;
    ASSERT_EQ(pieces.size(), 3);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(pieces[rank].box.offset[0], 2 * rank);
      EXPECT_EQ(manifest.files.at(pieces[rank].chunks.at(0).file).name, shard_name(rank, 3));
    }
  }
}

TEST(Rewrite, ReadsVersionOne) {
  const TemporaryFolder root;
  const std::vector<Global> saved = mixed_tensors(2);
  save_all(root / "a", 1, saved, 2);
  to_version_1(root / "a" / "step-000001");
  for (const int num_ranks : {kAsSaved, 3}) {
    rewrite(SavedTensors(root / "a" / "step-000001"), root / "b", {.num_ranks = num_ranks});
    EXPECT_EQ(read_manifest(root / "b" / "step-000001").format_version, kVersionWithoutPatches);
    expect_loads(root / "b" / "step-000001", saved, 2);
  }
}

TEST(Rewrite, RefusesMoreBoxesThanFiles) {
  const TemporaryFolder root;
  const int64_t many = kMaxRewriteRanks + 1;
  save_all(
      root / "a", 1,
      std::vector<Global>{{"w", random_tensor("w", {many}, at::kFloat), mesh::Layout({many}, {})}},
      1);
  cut_into_elements(root / "a" / "step-000001", "w");
  const SavedTensors source(root / "a" / "step-000001");
  EXPECT_THAT(harness::message_of<ConfigError>([&] { rewrite(source, root / "b"); }),
              HasSubstr("257 boxes; expected at most 256"));
  rewrite(source, root / "b", {.num_ranks = 3});
  EXPECT_EQ(read_manifest(root / "b" / "step-000001").tensors.at("w").pieces.size(), 3);
}

TEST(Rewrite, TellsItsProgressUpToTheLastByte) {
  const TemporaryFolder root;
  save_all(root / "a", 1, mixed_tensors(2), 2);
  const SavedTensors source(root / "a" / "step-000001");
  int64_t last = 0, calls = 0;
  rewrite(source, root / "b", {.num_ranks = 2, .on_progress = [&](int64_t done, int64_t total) {
                                 EXPECT_GE(done, last);
                                 EXPECT_EQ(total, num_bytes(source));
                                 last = done;
                                 ++calls;
                               }});
  EXPECT_EQ(last, num_bytes(source));
  EXPECT_GT(calls, 2);
}

// A table may be larger than this machine's memory.
TEST(Rewrite, ReadsALargeTensorSomeRowsAtATime) {
  const TemporaryFolder root;
  at::Tensor table = at::zeros({1 << 17, 160}, at::kInt);  // 84 MB
  table.select(1, 3).copy_(at::arange(1 << 17, at::kInt));
  const std::vector<Global> saved{
      {"table", table, {table.sizes().vec(), {{"data", 2}}, {mesh::Placement::sharded(0)}}}};
  save_all(root / "a", 1, saved, 2);
  const SavedTensors source(root / "a" / "step-000001");
  for (const int ranks : {1, 3}) {
    int64_t last = 0, most = 0;
    const auto on_progress = [&](int64_t done, int64_t /*total*/) {
      most = std::max(most, done - std::exchange(last, done));
    };
    const fs::path out = root / std::to_string(ranks);
    rewrite(source, out, {.num_ranks = ranks, .on_progress = on_progress});
    EXPECT_LE(most, 32 << 20);
    EXPECT_EQ(last, num_bytes(source));
    expect_loads(out / "step-000001", saved, 2);
  }
}

TEST(Rewrite, LeavesNothingOfADamagedCheckpoint) {
  const TemporaryFolder root;
  save_all(root / "a", 1, mixed_tensors(1), 1);
  for (const auto& item : fs::directory_iterator(root / "a" / "step-000001")) {
    if (item.path().extension() != ".safetensors") continue;
    const std::string content = read_file(item.path());
    overwrite(item.path(), with_flipped_bit(content, 8 * content.size() - 1));
  }
  const SavedTensors source(root / "a" / "step-000001");
  EXPECT_THAT(checkpoint_error([&] { rewrite(source, root / "b", {.num_ranks = 3}); }),
              HasSubstr("damaged"));
  EXPECT_THAT(list(root / "b"), ElementsAre());
  EXPECT_TRUE(fs::is_empty(root / "b"));
}

TEST(Rewrite, RefusesANumberOfRanksOutOfRange) {
  const TemporaryFolder root;
  save_all(root / "a", 1, mixed_tensors(1), 1);
  const SavedTensors source(root / "a" / "step-000001");
  for (const int ranks : {-1, kMaxRewriteRanks + 1}) {
    EXPECT_THAT(harness::message_of<ConfigError>(
                    [&] { rewrite(source, root / "b", {.num_ranks = ranks}); }),
                HasSubstr(std::to_string(ranks)));
  }
}

TEST(Rewrite, RefusesMoreThanTheMachineCanPlan) {
  const TemporaryFolder root;
  const mesh::Layout layout({1}, {});
  std::vector<Global> many;
  const at::Tensor one = random_tensor("one", {1}, at::kFloat);
  const double most = static_cast<double>(machine_memory_bytes()) / 2;
  const double per_tensor = 500.0 * kMaxRewriteRanks * kMaxRewriteRanks;
  const auto enough = static_cast<int64_t>(most / per_tensor) + 1;
  for (int64_t i = 0; i < enough; ++i) many.push_back({"w" + std::to_string(i), one, layout});
  save_all(root / "a", 1, many, 1);
  const SavedTensors source(root / "a" / "step-000001");
  EXPECT_THAT(harness::message_of<ConfigError>(
                  [&] { rewrite(source, root / "b", {.num_ranks = kMaxRewriteRanks}); }),
              HasSubstr("fewer ranks"));
  EXPECT_FALSE(fs::exists(root / "b"));
  rewrite(source, root / "b", {.num_ranks = 2});
}

}  // namespace
}  // namespace trireme::checkpoint
