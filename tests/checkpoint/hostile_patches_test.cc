// Changed rows as someone writes them who knows the format, with right checksums, and damaged ones.
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/signed_manifest.h"
#include "tests/checkpoint/table_run.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/file/digest.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::vector<int64_t> kChanged{3, 50, 69'999};

class HostilePatches : public ::testing::Test {
 protected:
  HostilePatches() {
    harness::run_ranks(1, [&](comm::Communicator& world) {
      TableRun run(1, 0, mesh::Placement::sharded(0));
      Saver saver(world);
      save_now(saver, root_.path(), 1, run);
      run.touch(kChanged);
      save_now(saver, root_.path(), 2, run);
      globals_ = run.globals();
    });
    manifest_ = read_file(folder_ / kManifestName);
    file_ = read_file(folder_ / kFile);
  }
  void restore() {
    overwrite(folder_ / kManifestName, manifest_);
    overwrite(folder_ / kFile, file_);
  }
  json patch() const {
    return json::parse(manifest_)["tensors"]["table.weight"]["pieces"][0]["patches"][0];
  }
  static json& patches(json& body) {
    return body["tensors"]["table.weight"]["pieces"][0]["patches"];
  }
  static Chunk chunk_of(const json& text) { return parse_chunk(text.get<std::string>()).value(); }

  // Puts these numbers into the file, with right digests.
  void forge_rows(const std::vector<int64_t>& rows) {
    uint64_t head = 0;
    std::memcpy(&head, file_.data(), sizeof(head));
    Chunk chunk = chunk_of(patch()["rows"][0]);
    const auto bytes = std::as_bytes(std::span(rows));
    ASSERT_EQ(bytes.size(), chunk.num_bytes);
    std::string file = file_;
    std::memcpy(file.data() + 8 + head + chunk.begin, bytes.data(), bytes.size());
    overwrite(folder_ / kFile, file);
    chunk.digest = digest_of(bytes);
    edit_manifest(folder_, [&](json& body) { patches(body)[0]["rows"][0] = to_text(chunk); });
  }

  // What readers say of the manifest: all the same, in one line, before any file is opened.
  std::string refusal(const std::function<void(json&)>& edit) {
    edit_manifest(folder_, edit);
    const std::string error = checkpoint_error([&] { inspect(folder_); });
    EXPECT_THAT(error, AllOf(HasSubstr("\"table.weight\""), Not(HasSubstr("\n"))));
    EXPECT_THAT(verify(folder_).problems, ElementsAre(error));
    EXPECT_EQ(checkpoint_error([&] { load_tensor(folder_, "table.weight"); }), error);
    restore();
    return error;
  }

  // What readers say of bytes.
  std::string complaint() {
    const std::string error = checkpoint_error([&] { load_tensor(folder_, "table.weight"); });
    EXPECT_THAT(error, Not(HasSubstr("\n")));
    EXPECT_THAT(verify(folder_).problems, ElementsAre(error));
    harness::run_ranks(2, [&](comm::Communicator& world) {
      std::vector<Entry> entries = parts(at_two_ranks(), world.rank());
      EXPECT_NE(checkpoint_error([&] { load(folder_, entries, world); }), "");
    });
    restore();
    return error;
  }
  std::vector<Global> at_two_ranks() const {
    std::vector<Global> result = globals_;
    for (Global& global : result)
      global.layout = {global.tensor.sizes().vec(), {{"data", 2}}, {mesh::Placement::sharded(0)}};
    return result;
  }

  static constexpr const char* kFile = "rank-000-of-001-rows.safetensors";
  harness::TemporaryFolder root_;
  fs::path folder_ = root_ / "step-000002";
  std::vector<Global> globals_;
  std::string manifest_;
  std::string file_;
};

TEST_F(HostilePatches, AreAsTheFormatSays) {
  EXPECT_EQ(json::parse(manifest_)["format_version"], 3);
  EXPECT_EQ(chunk_of(patch()["rows"][0]).num_bytes, 24u);
  EXPECT_EQ(chunk_of(patch()["values"][0]).num_bytes, 3u * 64);
  EXPECT_THAT(verify(folder_).problems, IsEmpty());
  forge_rows(kChanged);
  expect_loads(folder_, globals_, 1);
}

TEST_F(HostilePatches, RowsOutOfOrderOrRangeAreRefused) {
  forge_rows({3, 3, 50});
  EXPECT_THAT(complaint(), AllOf(HasSubstr(kFile), HasSubstr("row 3 comes after row 3")));
  forge_rows({50, 3, 60});
  EXPECT_THAT(complaint(), HasSubstr("row 3 comes after row 50"));
  forge_rows({-1, 3, 50});
  EXPECT_THAT(complaint(), HasSubstr("row -1 is outside the rows 0 to 69999"));
  forge_rows({3, 50, 70'000});
  EXPECT_THAT(complaint(), HasSubstr("row 70000 is outside"));
  forge_rows({3, 50, std::numeric_limits<int64_t>::max()});
  EXPECT_THAT(complaint(), HasSubstr("is outside"));
}

TEST_F(HostilePatches, SizesThatDoNotFitAreRefused) {
  EXPECT_THAT(refusal([](json& body) { patches(body)[0]["values"] = json::array(); }),
              HasSubstr("1 chunks of rows and 0 of values"));
  EXPECT_THAT(refusal([](json& body) {
                patches(body)[0] = {{"rows", json::array()}, {"values", json::array()}};
              }),
              HasSubstr("0 chunks of rows"));
  const auto with_chunk = [&](const char* key, uint64_t num_bytes) {
    return refusal([&](json& body) {
      Chunk chunk = chunk_of(patches(body)[0][key][0]);
      chunk.num_bytes = chunk.stored_bytes = num_bytes;
      patches(body)[0][key][0] = to_text(chunk);
    });
  };
  EXPECT_THAT(with_chunk("values", 2 * 64), HasSubstr("128 bytes of values for 3 rows"));
  EXPECT_THAT(with_chunk("rows", 16), HasSubstr("192 bytes of values for 2 rows"));
  EXPECT_THAT(with_chunk("rows", 23), HasSubstr("expected 8 for each row"));
  EXPECT_THAT(with_chunk("rows", 0), HasSubstr("expected 1 to 1048576"));
  EXPECT_THAT(with_chunk("rows", uint64_t{1} << 60), HasSubstr("which has"));
  EXPECT_THAT(refusal([](json& body) {
                Chunk chunk = chunk_of(patches(body)[0]["values"][0]);
                chunk.file = 99;
                patches(body)[0]["values"][0] = to_text(chunk);
              }),
              HasSubstr("is in file 99"));
}

TEST_F(HostilePatches, TooManyAreRefused) {
  EXPECT_THAT(refusal([](json& body) {
                const json one = patches(body)[0];
                for (size_t i = 0; i < kMaxPatches; ++i) patches(body).push_back(one);
              }),
              HasSubstr("has 33 patches, expected at most 32"));
  // Each may be as large as a chunk, from the same bytes of a file.
  EXPECT_THAT(refusal([](json& body) {
                json& piece = body["tensors"]["table.weight"]["pieces"][0];
                Chunk values = chunk_of(piece["chunks"][0]);
                Chunk rows = values;
                rows.num_bytes = rows.stored_bytes = values.num_bytes / 64 * 8;
                for (int i = 0; i < 5; ++i) {
                  piece["patches"][0]["rows"].push_back(to_text(rows));
                  piece["patches"][0]["values"].push_back(to_text(values));
                }
              }),
              HasSubstr("rows where at most 70000 can be"));
}

// As a program that knows no patches has written it, and as every reader took it.
TEST_F(HostilePatches, OfAnEarlierFormatAreNone) {
  edit_manifest(folder_, [](json& body) { body["format_version"] = 2; });
  EXPECT_EQ(num_patches(folder_), 0);
}

TEST_F(HostilePatches, AnyFlippedBitOfThemIsFound) {
  uint64_t head = 0;
  std::memcpy(&head, file_.data(), sizeof(head));
  const size_t begin = 8 * (8 + head);
  for (size_t bit = begin; bit < 8 * file_.size(); bit += 61) {
    overwrite(folder_ / kFile, with_flipped_bit(file_, bit));
    ASSERT_EQ(verify(folder_).problems.size(), 1u) << bit;
    ASSERT_NE(checkpoint_error([&] { load_tensor(folder_, "table.weight"); }), "");
  }
  overwrite(folder_ / kFile, with_flipped_bit(file_, begin));
  EXPECT_THAT(complaint(), HasSubstr("the file is damaged"));
  overwrite(folder_ / kFile, file_.substr(0, file_.size() - 1));
  EXPECT_THAT(verify(folder_).problems, ElementsAre(HasSubstr("truncated")));
}

}  // namespace
}  // namespace trireme::checkpoint
