#include "trireme/checkpoint/write/site_commit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::checkpoint {
namespace {

using ::testing::ElementsAre;

Chunk in_file(size_t file) { return {.file = file, .stored_bytes = 8, .num_bytes = 8}; }

// A report of a rank with one piece in the files [shared-a, own].
Manifest report_of(const std::string& name, int64_t offset, size_t file, const std::string& own) {
  Manifest report;
  report.tensors[name].pieces = {{.box = {{offset}, {2}}, .chunks = {in_file(file)}}};
  report.files = {{.name = "shared-a"}, {.name = own}};
  return report;
}

TEST(WrittenFiles, OfOneRankAreCountedOn) {
  Manifest rows = report_of("rows", 0, 0, "rank-0-rows");
  rows.tensors["rows"].pieces[0].patches = {{.rows = {in_file(1)}, .values = {in_file(1)}}};
  const Manifest both = joined(report_of("plain", 0, 1, "rank-0"), rows, 1);
  ASSERT_EQ(both.files.size(), 3u);
  EXPECT_EQ(both.files[2].name, "rank-0-rows");
  EXPECT_EQ(both.tensors.at("plain").pieces[0].chunks[0].file, 1u);
  const Piece& piece = both.tensors.at("rows").pieces[0];
  EXPECT_EQ(piece.chunks[0].file, 0u) << "the shared file";
  EXPECT_EQ(piece.patches[0].rows[0].file, 2u);
  EXPECT_EQ(piece.patches[0].values[0].file, 2u);
  // A report without a file of its own.
  Manifest nothing = report_of("plain", 0, 0, "none");
  nothing.files.pop_back();
  EXPECT_EQ(joined(nothing, rows, 1).tensors.at("rows").pieces[0].patches[0].rows[0].file, 1u);
}

TEST(WrittenFiles, OfAllRanksMakeOneManifestWithoutThoseThatNobodyUses) {
  std::map<std::string, TensorRecord> plan;
  plan["w"] = {.shape = {4}, .pieces = {{.box = {{0}, {2}}}, {.box = {{2}, {2}}}}};
  Manifest second = report_of("w", 2, 1, "rank-1");
  second.tensors["w"].pieces[0].patches = {{.rows = {in_file(0)}, .values = {in_file(1)}}};
  const std::vector<std::string> reports{to_text(report_of("w", 0, 1, "rank-0")), to_text(second)};
  const auto [manifest, used] = complete_manifest(5, "{}", plan, reports, Sites({"a", "b"}, 0));
  EXPECT_EQ(manifest.step, 5);
  ASSERT_EQ(manifest.files.size(), 3u);
  EXPECT_EQ(manifest.files[0].name, "rank-0");
  EXPECT_EQ(manifest.files[2].name, "shared-a") << "which only a patch uses";
  const Piece& piece = manifest.tensors.at("w").pieces[1];
  EXPECT_EQ(piece.patches[0].rows[0].file, 2u);
  EXPECT_EQ(piece.patches[0].values[0].file, 1u);
  EXPECT_THAT(used[0], ElementsAre("rank-0"));
  EXPECT_THAT(used[1], ElementsAre("rank-1", "shared-a"));
}

TEST(WrittenFiles, OfTheSitesBeforeAreKeptTooWithReplicas) {
  const std::vector<FileNames> used{{"a"}, {"b"}, {"c"}};
  EXPECT_EQ(with_replicas(used, 0), used);
  EXPECT_THAT(with_replicas(used, 1),
              ElementsAre(FileNames{"a", "c"}, FileNames{"a", "b"}, FileNames{"b", "c"}));
}

}  // namespace
}  // namespace trireme::checkpoint
