// Checkpoints whose checksums are all right and whose structure is not: whoever writes one knows
// the format. Each is refused with one line before anything is allocated, or loads exactly what its
// pieces say.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/checkpoint/signed_manifest.h"
#include "tests/checkpoint/version_1.h"
#include "tests/harness/draw.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/checkpoint/shards.h"
#include "trireme/checkpoint/write/save_plan.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using harness::Draw;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kRanks = 3;
constexpr int64_t kRows = 6;
constexpr int64_t kColumns = 4;

mesh::Layout layout_of(const std::string& name) {
  const std::vector<mesh::Axis> axes{{"data", kRanks}};
  if (name == "scalar") return {{}, axes};
  if (name == "empty") return {{0, 3}, axes};
  return {{kRows, kColumns}, axes, {mesh::Placement::sharded(name == "rows" ? 0 : 1)}};
}

std::string shard_of(int rank) { return shard_name(rank, kRanks); }

// A rank has nothing of "few", and no rank has anything of "empty".
std::vector<Entry> entries_of(int rank) {
  std::vector<Entry> entries;
  for (const char* name : {"rows", "columns", "scalar", "empty"}) {
    const mesh::Layout layout = layout_of(name);
    entries.push_back(part_of(name, random_tensor(name, layout.shape(), at::kInt), layout, rank));
  }
  const mesh::Layout few({2}, {{"data", kRanks}}, {mesh::Placement::sharded(0)});
  entries.push_back(part_of("few", random_tensor("few", {2}, at::kLong), few, rank));
  return entries;
}

class Hostile : public ::testing::Test {
 protected:
  Hostile() {
    harness::run_ranks(kRanks, [&](comm::Communicator& world) {
      save(root_.path(), 10, entries_of(world.rank()), R"({"seed":1})", world, {.fsync = false});
    });
    to_version_1(folder_);
    original_ = read_file(folder_ / kManifestName);
  }
  void restore() { overwrite(folder_ / kManifestName, original_); }

  // What every reader says of the checkpoint: all the same, in one line, and changing nothing.
  std::string refusal(const fs::path& folder) {
    const std::string error = checkpoint_error([&] { inspect(folder); });
    EXPECT_THAT(error, Not(HasSubstr("\n")));
    EXPECT_THAT(error, Not(HasSubstr("json.exception")));
    EXPECT_THAT(verify(folder).problems, ::testing::ElementsAre(error));
    EXPECT_EQ(checkpoint_error([&] { load_tensor(folder, "rows"); }), error);
    EXPECT_EQ(checkpoint_error([&] { load_global(folder); }), error);
    harness::run_ranks(1, [&](comm::Communicator& world) {
      at::Tensor target = at::full({kRows, kColumns}, 7, at::kInt);
      std::vector<Entry> entries{{"rows", target, mesh::Layout({kRows, kColumns}, {})}};
      EXPECT_EQ(checkpoint_error([&] { load(folder, entries, world, {.strict = false}); }), error);
      EXPECT_TRUE((target == 7).all().item<bool>());
    });
    return error;
  }
  std::string refusal_of(const std::function<void(json&)>& edit) {
    restore();
    edit_manifest(folder_, edit);
    return refusal(folder_);
  }
  static json& rows(json& body) { return body["tensors"]["rows"]; }

  harness::TemporaryFolder root_;
  const fs::path folder_ = root_ / "step-000010";
  std::string original_;
};

TEST_F(Hostile, StepsAndWorldsOutOfRangeAreRefused) {
  for (const char* step : {"-1", "9223372036854775807", "9223372036854775808", "1e1", "10.0",
                           "true", "null", "\"10\"", "1000000000001"}) {
    EXPECT_THAT(refusal_of([&](json& body) { body["step"] = json::parse(step); }),
                AllOf(HasSubstr("step is "), HasSubstr("a whole number from 0 to 1000000000000")))
        << step;
  }
  for (const char* size : {"0", "-1", "4611686018427387904", "2.5"}) {
    EXPECT_THAT(refusal_of([&](json& body) { body["world_size"] = json::parse(size); }),
                AllOf(HasSubstr("world_size is "), HasSubstr("from 1 to 1048576")))
        << size;
    EXPECT_THAT(refusal_of([&](json& body) { rows(body)["axes"][0]["size"] = json::parse(size); }),
                AllOf(HasSubstr("tensors.rows.axes[0].size is "), HasSubstr("from 1 to 1048576")))
        << size;
  }
  EXPECT_THAT(refusal_of([](json& body) { body["format_version"] = -1; }),
              HasSubstr("format_version is -1"));
}

TEST_F(Hostile, ShapesAndBoxesOutOfRangeAreRefused) {
  EXPECT_THAT(refusal_of([](json& body) {
                rows(body)["shape"] = {-6, -4};
              }),
              HasSubstr("tensors.rows.shape[0] is -6"));
  EXPECT_THAT(refusal_of([](json& body) {
                rows(body)["shape"] = {1.5, 4};
              }),
              HasSubstr("tensors.rows.shape[0] is 1.5"));
  const int64_t huge = int64_t{1} << 32;  // whose square is 0 in 64 bits
  EXPECT_THAT(refusal_of([&](json& body) {
                rows(body)["shape"] = {huge, huge};
                rows(body)["pieces"] = json::array();
              }),
              AllOf(HasSubstr("tensor \"rows\" has the shape [4294967296, 4294967296]"),
                    HasSubstr("at most 64 dimensions and 2^63 - 1 bytes")));
  EXPECT_THAT(refusal_of([&](json& body) {
                rows(body)["shape"] = {0, huge, huge};
                rows(body)["pieces"] = json::array();
              }),
              HasSubstr("2^63 - 1 bytes"));
  EXPECT_THAT(refusal_of([](json& body) { rows(body)["shape"] = std::vector<int>(100'000, 1); }),
              HasSubstr("at most 64 dimensions"));
  EXPECT_THAT(refusal_of([](json& body) {
                rows(body)["pieces"][0]["offset"] = {9223372036854775807, 0};
              }),
              HasSubstr("reaches outside the shape [6, 4]"));
  EXPECT_THAT(refusal_of([](json& body) {
                rows(body)["pieces"][0]["size"] = {0, 4};
              }),
              HasSubstr("has no elements"));
  EXPECT_THAT(refusal_of([](json& body) { rows(body)["placements"].push_back("replicated"); }),
              HasSubstr("1 axes and 2 placements"));
  EXPECT_THAT(refusal_of([](json& body) { rows(body)["placements"][0] = "sharded(99999999999)"; }),
              HasSubstr("placement \"sharded(99999999999)\" is unknown"));
}

// The totals are right, and one row is in two pieces and another in none.
TEST_F(Hostile, OverlappingPiecesOfTheRightTotalAreRefused) {
  EXPECT_THAT(refusal_of([](json& body) {
                rows(body)["pieces"][1]["offset"] = {1, 0};
              }),
              HasSubstr("tensor \"rows\": element [1, 0] lies in 2 pieces, expected 1"));
  EXPECT_THAT(refusal_of([](json& body) {
                json& pieces = body["tensors"]["scalar"]["pieces"];
                pieces.push_back(pieces[0]);
                pieces[1]["file"] = shard_of(pieces[0]["file"] == shard_of(1) ? 2 : 1);
              }),
              HasSubstr("tensor \"scalar\": element [] lies in 2 pieces"));
  EXPECT_THAT(refusal_of([](json& body) { rows(body)["pieces"].erase(2); }),
              HasSubstr("element [4, 0] lies in 0 pieces"));
  // The same bytes as two pieces.
  EXPECT_THAT(refusal_of([](json& body) {
                rows(body)["pieces"][1]["file"] = rows(body)["pieces"][0]["file"];
                rows(body)["pieces"][1]["checksum"] = rows(body)["pieces"][0]["checksum"];
              }),
              HasSubstr("two pieces in the file"));
}

TEST_F(Hostile, FileNamesThatLeaveTheFolderAreRefused) {
  const fs::path outside = root_ / "outside.safetensors";
  for (const std::string& name :
       {std::string("../outside.safetensors"), outside.string(), std::string("."),
        std::string(".."), std::string(""), std::string(".hidden"), std::string("a/b"),
        std::string("a\0b", 3), std::string("a\nb"), std::string("\x1b[2J"),
        std::string(256, 'a')}) {
    EXPECT_THAT(refusal_of([&](json& body) {
                  for (json& file : body["files"]) {
                    if (file["name"] == rows(body)["pieces"][0]["file"]) file["name"] = name;
                  }
                  rows(body)["pieces"][0]["file"] = name;
                }),
                AnyOf(HasSubstr("the file name"), HasSubstr("[0].file is")))
        << name;
  }
  EXPECT_THAT(refusal_of([](json& body) { body["files"].push_back(body["files"][0]); }),
              HasSubstr("lists the file \"rank-000-of-003.safetensors\" twice"));
  EXPECT_THAT(refusal_of([](json& body) { body["files"].erase(0); }), HasSubstr("not listed"));
}

TEST_F(Hostile, NamesThatATerminalObeysAreRefusedAndNotShownRaw) {
  for (const char* name : {"\x1b[2Jw", "w\r",
                           "\xc2\x9b"
                           "2J"}) {
    const std::string error = refusal_of([&](json& body) { body["tensors"][name] = rows(body); });
    EXPECT_THAT(error, HasSubstr("control characters"));
    EXPECT_TRUE(std::ranges::all_of(error, [](unsigned char c) { return c >= 0x20 && c < 0x7f; }));
  }
}

TEST_F(Hostile, DepthDoubleKeysAndDamagedTextAreRefused) {
  const auto refusal_of_text = [&](const std::string& rest) {
    overwrite(folder_ / kManifestName, signed_text(rest));
    return refusal(folder_);
  };
  EXPECT_THAT(refusal_of_text("\"x\": " + std::string(100'000, '[')), HasSubstr("deep"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(refusal_of_text("\"state\": " + objects), HasSubstr("deep"));
  const std::string rest = original_.substr(33);
  EXPECT_THAT(refusal_of_text("\"step\": 9,\n" + rest), HasSubstr("has the key \"step\" twice"));
  EXPECT_THAT(refusal_of_text("\"checksum\": \"0\",\n" + rest), HasSubstr("twice"));
  EXPECT_THAT(refusal_of_text("\"step\": 1}"), HasSubstr("expected an object with"));
  EXPECT_THAT(refusal_of_text(rest + "{}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal_of_text("\"step\": \xff}"), HasSubstr("text"));
}

TEST_F(Hostile, ARenamedFolderIsRefusedAndACopyElsewhereIsNot) {
  const fs::path renamed = root_ / "step-000050";
  fs::copy(folder_, renamed);
  EXPECT_THAT(refusal(renamed), AllOf(HasSubstr("step 10 lies in a folder named step-000050"),
                                      HasSubstr("rename it to step-000010")));
  EXPECT_EQ(refusal(renamed / ""), refusal(renamed));
  const fs::path link = root_ / "step-000060";
  fs::create_directory_symlink(folder_, link);
  EXPECT_THAT(refusal(link), HasSubstr("a folder named step-000060"));
  fs::rename(renamed, root_ / "best");
  EXPECT_EQ(inspect(root_ / "best").step, 10);
  EXPECT_EQ(inspect(folder_ / "").step, 10);
}

// A link leads to bytes that are checked as all others are; what is no file is never opened.
TEST_F(Hostile, OnlyRegularFilesAreOpened) {
  const fs::path shard = folder_ / shard_of(0);
  const fs::path moved = root_ / "moved";
  fs::rename(shard, moved);
  const auto problems = [&] { return verify(folder_).problems; };
  fs::create_symlink(moved, shard);
  EXPECT_THAT(problems(), ::testing::IsEmpty());
  fs::remove(shard);
  fs::create_symlink(folder_ / shard_of(1), shard);
  EXPECT_THAT(problems(), ::testing::Not(::testing::IsEmpty()));
  for (const char* target : {"/dev/zero", "/proc/self/mem", "/", "/none"}) {
    fs::remove(shard);
    fs::create_symlink(target, shard);
    EXPECT_THAT(problems(), ::testing::ElementsAre(HasSubstr(shard.string()))) << target;
  }
  fs::remove(shard);
  ASSERT_EQ(mkfifo(shard.c_str(), 0600), 0);
  EXPECT_THAT(problems(), ::testing::ElementsAre(HasSubstr("not a regular file")));
  fs::remove(folder_ / kManifestName);
  ASSERT_EQ(mkfifo((folder_ / kManifestName).c_str(), 0600), 0);
  EXPECT_THAT(refusal(folder_), HasSubstr("not a regular file"));
}

TEST_F(Hostile, ATensorsDtypeAndShapeInTheFileMustBeThePieces) {
  restore();
  edit_manifest(folder_, [](json& body) { rows(body)["dtype"] = "F32"; });
  EXPECT_THAT(checkpoint_error([&] { load_global(folder_); }),
              HasSubstr("not in it as the manifest"));
}

// --- of any manifest that passes, every loaded element comes from exactly one checked piece

// One edit of the pieces of "rows" or "columns"; some leave a manifest that is right.
void edit_pieces(json& body, Draw& draw) {
  json& record = body["tensors"][draw.below(2) == 0 ? "rows" : "columns"];
  json& pieces = record["pieces"];
  if (pieces.empty()) return;
  json& piece = pieces[draw.below(pieces.size())];
  json& other = pieces[draw.below(pieces.size())];
  const size_t dim = draw.below(2);
  const auto by = static_cast<int64_t>(draw.below(5)) - 2;
  switch (draw.below(10)) {
    case 0: piece["offset"][dim] = piece["offset"][dim].get<int64_t>() + by; return;
    case 1: piece["size"][dim] = piece["size"][dim].get<int64_t>() + by; return;
    case 2: std::swap(piece["offset"], other["offset"]); return;
    case 3: std::swap(piece["size"], other["size"]); return;
    case 4: std::swap(piece["file"], other["file"]); return;
    case 5: std::swap(piece["checksum"], other["checksum"]); return;
    case 6: std::swap(piece, other); return;
    case 7: pieces.erase(draw.below(pieces.size())); return;
    case 8: pieces.push_back(json(piece)); return;
    default: record["shape"][dim] = int64_t{1} << (draw.below(2) == 0 ? 32 : 3); return;
  }
}

// Every element's bits from the one piece that holds it, read without the code under test's boxes.
at::Tensor expected_values(const fs::path& folder, const TensorRecord& record,
                           const std::string& name) {
  at::Tensor values = at::full(record.shape, -1, at::kInt);
  at::Tensor count = at::zeros(record.shape, at::kInt);
  for (const Piece& piece : record.pieces) {
    const at::Tensor stored = SafetensorsReader(folder / piece.file).read(name);
    for (int64_t i = 0; i < piece.box.size[0]; ++i) {
      for (int64_t j = 0; j < piece.box.size[1]; ++j) {
        const int64_t row = piece.box.offset[0] + i, column = piece.box.offset[1] + j;
        values[row][column] = stored[i][j];
        count[row][column] += 1;
      }
    }
  }
  EXPECT_TRUE((count == 1).all().item<bool>()) << name << " passes with other counts than one";
  return values;
}

TEST_F(Hostile, WhatPassesLoadsEveryElementFromExactlyOneCheckedPiece) {
  constexpr int kSentinel = 0x5a5a5a5a;
  int num_refused = 0, num_unreadable = 0, num_loaded = 0, num_changed = 0;
  for (uint64_t seed = 0; seed < 3'000; ++seed) {
    SCOPED_TRACE(concat("seed ", seed));
    Draw draw(seed);
    restore();
    edit_manifest(folder_, [&](json& body) {
      for (size_t i = 1 + draw.below(3); i > 0; --i) edit_pieces(body, draw);
    });
    Manifest manifest;
    const std::string error = checkpoint_error([&] { manifest = read_manifest(folder_); });
    EXPECT_THAT(error, Not(HasSubstr("\n")));
    num_refused += error.empty() ? 0 : 1;
    for (const char* name : {"rows", "columns"}) {
      if (!error.empty()) break;
      const TensorRecord& record = manifest.tensors.at(name);
      at::Tensor target = at::full(record.shape, kSentinel, at::kInt);
      std::vector<Entry> entries{{name, target, mesh::Layout(record.shape, {})}};
      std::string unreadable;
      harness::run_ranks(1, [&](comm::Communicator& world) {
        unreadable = checkpoint_error([&] { load(folder_, entries, world, {.strict = false}); });
      });
      if (!unreadable.empty()) {  // a piece is not in the file as the manifest says
        ++num_unreadable;
        continue;
      }
      ++num_loaded;
      harness::assert_same_bits(target, expected_values(folder_, record, name), name);
      num_changed += target.equal(random_tensor(name, {kRows, kColumns}, at::kInt)) ? 0 : 1;
    }
    ASSERT_FALSE(HasFailure());
  }
  std::printf(
      "%d manifests refused, %d tensors not as in their files, %d loaded, %d of them with "
      "pieces that changed places\n",
      num_refused, num_unreadable, num_loaded, num_changed);
  EXPECT_GT(num_refused, 500);
  EXPECT_GT(num_unreadable, 50);
  EXPECT_GT(num_loaded, 500);
  EXPECT_GT(num_changed, 10);
}

}  // namespace
}  // namespace trireme::checkpoint
