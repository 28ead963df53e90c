#include "trireme/checkpoint/manifest.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/checkpoint/signed_manifest.h"
#include "tests/harness/temporary_folder.h"

namespace trireme::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Manifest example() {
  Manifest manifest{.step = 50, .world_size = 2, .state = R"({"config":{"x":1e-05},"seed":7})"};
  manifest.tensors["block.0.w"] = {
      .dtype = at::kBFloat16,
      .shape = {3, 4},
      .axes = {{"data", 1}, {"tensor", 2}},
      .placements = {mesh::Placement::replicated(), mesh::Placement::sharded(0)},
      .pieces = {{.box = {{0, 0}, {2, 4}},
                  .chunks = {{.file = 0, .stored_bytes = 8, .num_bytes = 8, .digest = {1, 2}},
                             {.file = 1,
                              .begin = 4,
                              .stored_bytes = 5,
                              .num_bytes = 8,
                              .codec = Codec::kZstd,
                              .digest = {3, 4},
                              .stored_checksum = "0123456789abcdef"}}},
                 {.box = {{2, 0}, {1, 4}},
                  .chunks = {{.file = 1, .stored_bytes = 8, .num_bytes = 8, .digest = {5, 6}}}}}};
  manifest.tensors["empty"] = {.dtype = at::kFloat, .shape = {0}};
  manifest.files = {{"a.safetensors", 100, "0000000000000001"},
                    {"b.safetensors", 80, "0000000000000002"}};
  return manifest;
}

std::string edited(const std::function<void(nlohmann::json&)>& edit) {
  return checkpoint::edited(to_text(example()), edit);
}

std::string error_of(const std::string& text) {
  return checkpoint_error([&] { parse_manifest(text, "some/manifest.json"); });
}

TEST(Manifest, ReadsBackWhatWasWritten) {
  EXPECT_EQ(parse_manifest(to_text(example()), "here"), example());
  EXPECT_EQ(parse_manifest(to_text(Manifest{}), "here"), Manifest{});
}

// Older programs read what has none.
TEST(Manifest, OnlyPatchesNeedTheNewestFormat) {
  EXPECT_EQ(nlohmann::json::parse(to_text(example()))["format_version"], kVersionWithoutPatches);
  Manifest manifest = example();
  const Chunk rows{.file = 0, .begin = 16, .stored_bytes = 8, .num_bytes = 8, .digest = {7, 8}};
  manifest.tensors["block.0.w"].pieces[0].patches = {{.rows = {rows}, .values = {rows}},
                                                     {.rows = {rows}, .values = {rows}}};
  manifest.format_version = kFormatVersion;
  EXPECT_EQ(parse_manifest(to_text(manifest), "here"), manifest);
  EXPECT_EQ(checkpoint_error([&] { check_pieces(manifest, "here"); }), "");
  manifest.tensors["block.0.w"].pieces[0].patches[1].rows[0].file = 2;
  EXPECT_THAT(checkpoint_error([&] { check_pieces(manifest, "here"); }),
              HasSubstr("in file 2 of 2"));
}

// As ZeRO on thousands of ranks cuts a matrix: each has a cut of its own.
TEST(Manifest, AnAxisMayHaveThousandsOfCuts) {
  constexpr int kRanks = 3000;
  std::vector<int64_t> cuts;
  for (int64_t i = 0; i <= kRanks; ++i) cuts.push_back(i * 16);
  Manifest manifest;
  manifest.tensors["w"] = {.dtype = at::kFloat,
                           .shape = {kRanks * 16},
                           .axes = {{"data", kRanks}},
                           .placements = {mesh::Placement::sharded(0, cuts)}};
  EXPECT_EQ(parse_manifest(to_text(manifest), "here"), manifest);
}

// Each tensor passes: 19 pieces halve 18 dimensions one after the other.
TEST(Manifest, ThePiecesOfAllTensorsAreBoundedTogether) {
  constexpr int kDims = 18;
  TensorRecord record{.dtype = at::kByte, .shape = std::vector<int64_t>(kDims, 2)};
  Manifest manifest;
  for (int i = 0; i <= kDims; ++i) {
    const std::string file = "file-" + std::to_string(i);
    mesh::Box box{std::vector<int64_t>(kDims, 0), record.shape};
    for (int d = 0; d < i; ++d) box.size[d] = box.offset[d] = 1;
    if (i < kDims) box.size[i] = 1;
    const auto num_bytes = static_cast<uint64_t>(box.numel());
    record.pieces.push_back(
        {.box = box,
         .chunks = {
             {.file = static_cast<size_t>(i), .stored_bytes = num_bytes, .num_bytes = num_bytes}}});
    manifest.files.push_back({file, 1 << kDims, "0123456789abcdef"});
  }
  manifest.tensors["0"] = record;
  EXPECT_EQ(checkpoint_error([&] { check_pieces(manifest, "here"); }), "");
  for (int i = 1; i < 20; ++i) manifest.tensors[std::to_string(i)] = record;
  EXPECT_THAT(checkpoint_error([&] { check_pieces(manifest, "here"); }), HasSubstr("corners"));
}

TEST(Manifest, IsValidJsonThatEveryToolReads) {
  const auto body = nlohmann::json::parse(to_text(example()));
  EXPECT_EQ(body["format_version"], 2);
  EXPECT_EQ(body["tensors"]["block.0.w"]["pieces"][1]["offset"][0], 2);
}

TEST(Manifest, AnyFlippedBitIsNoticed) {
  const std::string text = to_text(example());
  for (size_t bit = 0; bit < text.size() * 8; ++bit)
    ASSERT_THAT(error_of(with_flipped_bit(text, bit)), HasSubstr("damaged")) << "bit " << bit;
}

TEST(Manifest, AnyTruncationIsNoticed) {
  const std::string text = to_text(example());
  for (size_t length = 0; length < text.size(); ++length)
    ASSERT_THAT(error_of(text.substr(0, length)), HasSubstr("damaged")) << length << " bytes";
}

TEST(Manifest, ANewerFormatIsRefusedNamingBothVersions) {
  EXPECT_THAT(error_of(edited([](auto& body) { body["format_version"] = 4; })),
              AllOf(HasSubstr("some/manifest.json"), HasSubstr("checkpoint format 4"),
                    HasSubstr("formats up to 3")));
}

TEST(Manifest, MissingKeysAndWrongTypesAreErrors) {
  EXPECT_THAT(error_of(edited([](auto& body) { body.erase("step"); })),
              HasSubstr("expected an object with \"step\""));
  EXPECT_THAT(error_of(edited([](auto& body) { body["tensors"]["empty"]["dtype"] = "F5"; })),
              HasSubstr("\"F5\" is unknown"));
  EXPECT_THAT(error_of(edited([](auto& body) { body["format"] = "other"; })),
              HasSubstr("\"other\""));
}

TEST(Manifest, PiecesMustMakeUpTheWholeTensor) {
  const auto error = [](const std::function<void(Manifest&)>& edit) {
    Manifest manifest = example();
    edit(manifest);
    return checkpoint_error([&] { check_pieces(manifest, "here"); });
  };
  EXPECT_EQ(error([](Manifest&) {}), "");
  EXPECT_THAT(error([](Manifest& m) { m.tensors["block.0.w"].pieces.pop_back(); }),
              HasSubstr("tensor \"block.0.w\": element [2, 0] lies in 0 pieces, expected 1"));
  EXPECT_THAT(error([](Manifest& m) { m.tensors["block.0.w"].pieces[1].box.offset[0] = 3; }),
              HasSubstr("reaches outside the shape [3, 4]"));
  EXPECT_THAT(error([](Manifest& m) { m.files.pop_back(); }), HasSubstr("in file 1 of 1"));
  EXPECT_THAT(error([](Manifest& m) { m.files[0].name = "../a"; }),
              HasSubstr("the file name \"../a\" is not one"));
}

TEST(Manifest, ChunksMustMakeUpTheirPieceAndLieInTheirFiles) {
  const auto error = [](const std::function<void(Chunk&)>& edit) {
    Manifest manifest = example();
    edit(manifest.tensors["block.0.w"].pieces[0].chunks[1]);
    return checkpoint_error([&] { check_pieces(manifest, "here"); });
  };
  constexpr uint64_t kMost = ~uint64_t{0};
  EXPECT_THAT(error([](Chunk& chunk) { chunk.file = 2; }), HasSubstr("in file 2 of 2"));
  EXPECT_THAT(error([](Chunk& chunk) { chunk.begin = 76; }),
              HasSubstr("has 5 bytes at 76 of \"b.safetensors\", which has 80"));
  for (const uint64_t huge : {kMost, kMost - 4, uint64_t{1} << 63}) {
    EXPECT_THAT(error([&](Chunk& chunk) { chunk.begin = huge; }), HasSubstr("which has 80"));
    EXPECT_THAT(error([&](Chunk& chunk) { chunk.stored_bytes = huge; }), HasSubstr("which has 80"));
    EXPECT_THAT(error([&](Chunk& chunk) { chunk.num_bytes = huge; }),
                HasSubstr("expected 1 to 1048576"));
  }
  EXPECT_THAT(error([](Chunk& chunk) { chunk.num_bytes = 0; }), HasSubstr("expected 1 to"));
  EXPECT_THAT(error([](Chunk& chunk) { chunk.codec = Codec::kRaw; }),
              HasSubstr("8 bytes stored in 5 without compression"));
  EXPECT_THAT(error([](Chunk& chunk) { chunk.num_bytes = 12; }), HasSubstr("more bytes in chunks"));
  EXPECT_THAT(error([](Chunk& chunk) { chunk.num_bytes = 4; }),
              HasSubstr("lacks chunks for the last 4 of its bytes"));
  EXPECT_THAT(error([](Chunk& chunk) { chunk.num_bytes = 7; }),
              HasSubstr("has 7 bytes, not whole elements"));
}

TEST(Manifest, AChunkOfAnotherFormIsRefused) {
  for (const char* chunk : {"", "0 0 8 8 raw", "0 0 8 8 lz4 00000000000000010000000000000002",
                            "-1 0 8 8 raw 00000000000000010000000000000002",
                            "0 0 8 99999999999999999999 raw 00000000000000010000000000000002",
                            "0 0 8 8 raw 00000000000000010000000000000002 ",
                            "0 0 8 8 raw 00000000000000010000000000000002 0123456789abcdef",
                            "0 0 8 8 zstd 00000000000000010000000000000002",
                            "0 0 8 8 zstd 00000000000000010000000000000002 0123456789abcde"}) {
    EXPECT_THAT(error_of(edited([&](auto& body) {
                  body["tensors"]["block.0.w"]["pieces"][0]["chunks"][0] = chunk;
                })),
                HasSubstr("expected \"FILE BEGIN STORED BYTES CODEC DIGEST\""))
        << chunk;
  }
}

TEST(Manifest, AStateThatIsNotJsonIsRefused) {
  EXPECT_THAT(checkpoint_error([] { to_text({.state = "{"}); }), HasSubstr("not valid JSON"));
}

TEST(Manifest, AFolderWithoutOneIsNamed) {
  const harness::TemporaryFolder folder;
  EXPECT_THAT(checkpoint_error([&] { read_manifest(folder.path()); }),
              HasSubstr(folder.path().string()));
}

TEST(Manifest, NamesOfFoldersHaveStepAndEpoch) {
  EXPECT_EQ(folder_name(50), "step-000050");
  EXPECT_EQ(folder_name(50, 1), "step-000050");
  EXPECT_EQ(folder_name(12'345'678, 12), "step-12345678-epoch-12");
  EXPECT_EQ(step_of("step-12345678-epoch-12"), 12'345'678);
  EXPECT_EQ(epoch_of("step-12345678-epoch-12"), 12);
  EXPECT_EQ(epoch_of("step-000050"), 1);
  for (const char* name : {"step-", "step-5x", "step--5", "step-5-epoch-", "step-5-epoch-1",
                           "step-5-epoch-2x", "step-5-epoch--2", "step-5-epoch", ".step-5"}) {
    EXPECT_EQ(step_of(name), -1) << name;
    EXPECT_EQ(epoch_of(name), -1) << name;
  }
}

}  // namespace
}  // namespace trireme::checkpoint
