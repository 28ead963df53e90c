#include "trireme/base/file/stored_zip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/zip.h"

namespace trireme {
namespace {

using harness::make_zip;
using harness::message_of;
using harness::put;
using harness::TemporaryFolder;
using harness::Zip;
using harness::ZipEntry;
using ::testing::HasSubstr;

const std::vector<ZipEntry> kFiles = {{"a/x", "12345"}, {"a/data/0", ""}, {"a/y", "678"}};

// Without waiting for the disk.
void overwrite(const std::filesystem::path& path, std::string_view bytes) {
  OutputFile(path).write(bytes);
}

StoredZip open_zip(const std::filesystem::path& path, uint64_t begin, uint64_t size) {
  return {std::make_shared<const InputFile>(path), begin, size, "torch.save"};
}

std::string error_of_zip(const std::string& bytes) {
  const TemporaryFolder folder;
  overwrite(folder / "a.zip", bytes);
  const std::string message = message_of([&] { open_zip(folder / "a.zip", 0, bytes.size()); });
  EXPECT_EQ(message.find('\n'), std::string::npos);
  return message;
}

// The error for `zip` after `change`.
template <typename Change>
std::string error_after(Zip zip, Change change) {
  change(zip);
  return error_of_zip(zip.bytes);
}

TEST(StoredZip, ReadsEntriesWithAndWithoutZip64AndWithinAFile) {
  for (const bool with64 : {false, true}) {
    const TemporaryFolder folder;
    const std::string bytes = make_zip(kFiles, with64).bytes;
    overwrite(folder / "a.zip", "before" + bytes + "behind");
    const StoredZip zip = open_zip(folder / "a.zip", 6, bytes.size());
    ASSERT_EQ(zip.entries().size(), 3u);
    for (const ZipEntry& file : kFiles) EXPECT_EQ(zip.read(file.name, 5), file.data);
    EXPECT_THAT(message_of([&] { zip.read("a/x", 4); }), HasSubstr("expected at most 4"));
    EXPECT_THAT(message_of([&] { zip.at("a/z"); }), HasSubstr("no entry \"a/z\""));
  }
}

// Archives of arrays have entries of many gigabytes. A hole in the file takes no room on the disk.
TEST(StoredZip, EntriesBehindFourGigabytesAreFound) {
  constexpr uint64_t kHole = uint64_t{5} << 30;
  Zip zip = make_zip({{"large", ""}, {"small", "123"}}, /*with64=*/true);
  const size_t extra = 46 + 5 + 4;
  put(zip.bytes, zip.entries[0] + extra, kHole);
  put(zip.bytes, zip.entries[0] + extra + 8, kHole);
  put(zip.bytes, zip.entries[1] + extra + 16, kHole + zip.locals[1]);
  put(zip.bytes, zip.end + 48, kHole + zip.entries[0]);
  put(zip.bytes, zip.end + 56 + 8, kHole + zip.end);
  const TemporaryFolder folder;
  const auto path = folder / "a.zip";
  overwrite(path, zip.bytes.substr(0, zip.locals[1]));
  std::filesystem::resize_file(path, kHole + zip.locals[1]);
  OutputFile(path, /*append=*/true).write(std::string_view(zip.bytes).substr(zip.locals[1]));
  const StoredZip read = open_zip(path, 0, kHole + zip.bytes.size());
  EXPECT_EQ(read.at("large").size, kHole);
  EXPECT_EQ(read.at("small").offset, kHole + zip.locals[1] + 30 + 5);
  EXPECT_EQ(read.read("small", 3), "123");
}

TEST(StoredZip, TruncationAtAnyByteIsNoticed) {
  for (const bool with64 : {false, true}) {
    const std::string bytes = make_zip(kFiles, with64).bytes;
    for (size_t size = 0; size < bytes.size(); ++size)
      EXPECT_NE(error_of_zip(bytes.substr(0, size)), "") << size;
  }
}

TEST(StoredZip, ARangeOutsideTheFileIsRefused) {
  const TemporaryFolder folder;
  const std::string bytes = make_zip(kFiles).bytes;
  overwrite(folder / "a.zip", bytes);
  for (const auto& [begin, size] : {std::pair<uint64_t, uint64_t>(0, bytes.size() + 1),
                                    {bytes.size() + 1, 0},
                                    {1, ~uint64_t{0}},
                                    {~uint64_t{0}, 1}}) {
    EXPECT_THAT(message_of([&] { open_zip(folder / "a.zip", begin, size); }),
                HasSubstr("truncated or damaged"));
  }
}

TEST(StoredZip, NamesThatLeadOutOfAFolderAreRefused) {
  for (const char* name :
       {"../a", "a/../b", "/a", "a/..", "..", ".", "a/./b", "a\\..\\b", "a\nb", ""}) {
    EXPECT_THAT(error_of_zip(make_zip({{name, "1"}}).bytes), HasSubstr("leads out of a folder"))
        << name;
  }
  EXPECT_THAT(error_of_zip(make_zip({{std::string(5000, 'a'), "1"}}).bytes),
              HasSubstr("leads out"));
  EXPECT_THAT(error_of_zip(make_zip({{"a", "1"}, {"a", "2"}}).bytes), HasSubstr("\"a\" twice"));
}

TEST(StoredZip, EntriesThatLieOrOverlapAreRefused) {
  const Zip zip = make_zip(kFiles);
  const auto change32 = [&](size_t offset, uint32_t value) {
    return error_after(zip, [&](Zip& bad) { put(bad.bytes, bad.entries[0] + offset, value); });
  };
  EXPECT_THAT(change32(24, 6), HasSubstr("has 5 bytes for 6"));
  EXPECT_THAT(change32(42, 0x7fffffff), HasSubstr("begins at byte 2147483647"));
  EXPECT_THAT(change32(42, 1), HasSubstr("has another header at its place"));
  EXPECT_THAT(change32(24, ~0U), HasSubstr("lacks its zip64 record"));
  const auto change16 = [&](size_t offset, uint16_t value) {
    return error_after(zip, [&](Zip& bad) { put(bad.bytes, bad.entries[0] + offset, value); });
  };
  EXPECT_THAT(change16(10, 8), HasSubstr("is compressed"));
  EXPECT_THAT(change16(8, 1), HasSubstr("is encrypted"));
  EXPECT_THAT(change16(28, 0xffff), HasSubstr("reaches beyond the archive's directory"));
  // Larger in both of its sizes, so that it reaches over the next.
  EXPECT_THAT(error_after(zip,
                          [](Zip& bad) {
                            put<uint32_t>(bad.bytes, bad.entries[0] + 20, 40);
                            put<uint32_t>(bad.bytes, bad.entries[0] + 24, 40);
                          }),
              HasSubstr("entries of the archive overlap"));
  EXPECT_THAT(error_after(zip,
                          [](Zip& bad) {
                            put<uint32_t>(bad.bytes, bad.entries[2] + 20, 4);
                            put<uint32_t>(bad.bytes, bad.entries[2] + 24, 4);
                          }),
              HasSubstr("has 4 bytes at byte"));
  EXPECT_THAT(
      error_after(zip, [](Zip& bad) { put<uint16_t>(bad.bytes, bad.locals[0] + 28, 9999); }),
      HasSubstr("truncated or damaged"));
}

TEST(StoredZip, ADirectoryThatLiesIsRefused) {
  const Zip zip = make_zip(kFiles);
  const auto change = [&](size_t offset, auto value) {
    return error_after(zip, [&](Zip& bad) { put(bad.bytes, bad.end + offset, value); });
  };
  EXPECT_THAT(change(12, 0x7fffffffU), HasSubstr("reaches beyond its end"));
  EXPECT_THAT(change(16, 0x7fffffffU), HasSubstr("reaches beyond its end"));
  EXPECT_THAT(change(12, static_cast<uint32_t>(zip.end - zip.entries[0] - 1)),
              HasSubstr("reaches beyond the archive's directory"));
  EXPECT_THAT(change(8, uint16_t{2}), HasSubstr("in several parts"));
  EXPECT_THAT(change(20, uint16_t{2}), HasSubstr("does not end as a zip"));
  EXPECT_THAT(error_after(zip,
                          [](Zip& bad) {
                            put<uint16_t>(bad.bytes, bad.end + 8, 9);
                            put<uint16_t>(bad.bytes, bad.end + 10, 9);
                          }),
              HasSubstr("entry 3 of 9 is missing"));
  EXPECT_THAT(error_after(zip,
                          [](Zip& bad) {
                            put<uint16_t>(bad.bytes, bad.end + 8, 2);
                            put<uint16_t>(bad.bytes, bad.end + 10, 2);
                          }),
              HasSubstr("surplus bytes in the archive's directory"));
}

TEST(StoredZip, Zip64RecordsThatLieAreRefused) {
  const Zip zip = make_zip(kFiles, /*with64=*/true);
  for (const uint64_t value : {uint64_t{1} << 63, ~uint64_t{0}, (uint64_t{1} << 63) - 1}) {
    for (const size_t offset : {size_t{32}, size_t{40}, size_t{48}, size_t{56 + 8}}) {
      EXPECT_NE(error_after(zip, [&](Zip& bad) { put(bad.bytes, bad.end + offset, value); }), "")
          << value << " at " << offset;
    }
    // The entry's two sizes, and its place.
    const size_t extra = zip.entries[0] + 46 + kFiles[0].name.size() + 4;
    EXPECT_THAT(error_after(zip,
                            [&](Zip& bad) {
                              put(bad.bytes, extra, value);
                              put(bad.bytes, extra + 8, value);
                            }),
                HasSubstr("bytes at byte"));
    EXPECT_THAT(error_after(zip, [&](Zip& bad) { put(bad.bytes, extra + 16, value); }),
                HasSubstr("begins at byte"));
  }
  EXPECT_THAT(error_after(zip, [](Zip& bad) { put<uint16_t>(bad.bytes, bad.end + 76 + 8, 4); }),
              HasSubstr("in several parts"));
  EXPECT_THAT(error_after(zip, [](Zip& bad) { put<uint32_t>(bad.bytes, bad.end + 76 + 12, 4); }),
              HasSubstr("the archive's end says 4"));
}

}  // namespace
}  // namespace trireme
