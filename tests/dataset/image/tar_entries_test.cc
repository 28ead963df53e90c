#include "trireme/dataset/image/tar_entries.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/dataset/image/tar.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::dataset {
namespace {

class TarEntries : public ::testing::Test {
 protected:
  // "name=content" of each file.
  std::vector<std::string> read(const std::string& archive) {
    OutputFile(folder_ / "a.tar").write(archive);
    const std::unique_ptr<ByteSource> opened = local_files().open(folder_ / "a.tar");
    const ByteSource& file = *opened;
    std::vector<std::string> found;
    read_tar(file, [&](const TarEntry& entry) {
      std::string content(entry.size, '\0');
      file.read(entry.offset, std::as_writable_bytes(std::span(content)));
      EXPECT_EQ(entry.header % 512, 0U);
      found.push_back(entry.name + "=" + content);
    });
    return found;
  }
  std::string error(const std::string& archive) {
    const std::string message = harness::message_of<ConfigError>([&] { read(archive); });
    EXPECT_TRUE(message.empty() || message.starts_with((folder_ / "a.tar").string())) << message;
    return message;
  }

  harness::TemporaryFolder folder_;
};

using Files = std::vector<std::string>;

TEST_F(TarEntries, FilesComeInTheirOrder) {
  EXPECT_EQ(read(tar_end()), Files{});
  EXPECT_EQ(read(tar_entry("b", "2") + tar_entry("a", "") + tar_entry("c", std::string(600, 'x')) +
                 tar_end()),
            (Files{"b=2", "a=", "c=" + std::string(600, 'x')}));
  // Folders, in both forms, and what follows the end, are left out.
  EXPECT_EQ(read(tar_entry("d/", "", {.type = '5'}) + tar_entry("d/a", "1") + tar_entry("e/", "") +
                 std::string(512, '\0') + "rest"),
            Files{"d/a=1"});
}

TEST_F(TarEntries, LongNamesComeWhole) {
  const std::string part(90, 'p'), name(100, 'n'), longer(300, 'l');
  EXPECT_EQ(read(tar_entry(name, "1", {.prefix = part}) + tar_end()),
            Files{part + "/" + name + "=1"});
  // GNU's, whose magic has no prefix behind it.
  EXPECT_EQ(read(tar_entry("././@LongLink", longer + '\0', {.type = 'L', .gnu = true}) +
                 tar_entry("short", "1", {.prefix = "12345", .gnu = true}) +
                 tar_entry("other", "2", {.gnu = true}) + tar_end()),
            (Files{longer + "=1", "other=2"}));
  EXPECT_EQ(read(tar_entry("pax_global", pax_record("comment", "x"), {.type = 'g'}) +
                 tar_entry("pax", pax_record("mtime", "1.5") + pax_record("path", longer),
                           {.type = 'x'}) +
                 tar_entry("short", "1") + tar_entry("other", "2") + tar_end()),
            (Files{longer + "=1", "other=2"}));
}

TEST_F(TarEntries, LargeSizesHaveTheirForms) {
  std::string base256(12, '\0');
  base256[0] = static_cast<char>(0x80);
  base256[11] = 3;
  EXPECT_EQ(read(tar_entry("a", "123", {.size = base256}) + tar_end()), Files{"a=123"});
  EXPECT_EQ(read(tar_entry("pax", pax_record("size", "3"), {.type = 'x'}) +
                 tar_entry("a", "123", {.size = std::string("00000000000\0", 12)}) + tar_end()),
            Files{"a=123"});
  EXPECT_EQ(read(tar_entry("a", "123", {.size = std::string("         3 \0", 12)}) + tar_end()),
            Files{"a=123"});
}

TEST_F(TarEntries, DamagedArchivesAreRefusedAtTheirByte) {
  const std::string first = tar_entry("a", "1");
  std::string damaged = first + first + tar_end();
  damaged[1024 + 3] = 'x';
  EXPECT_NE(error(damaged).find("a.tar at byte 1024: a header's checksum is wrong"),
            std::string::npos);
  EXPECT_NE(error("text, and no archive" + std::string(600, ' ')).find("checksum is wrong"),
            std::string::npos);
  EXPECT_NE(error("\x1f\x8b" + std::string(600, ' ')).find("is compressed; unpack it with gunzip"),
            std::string::npos);
  EXPECT_NE(error("").find("has 0 bytes and not the end of a tar archive"), std::string::npos);
  EXPECT_NE(error(first).find("has 1024 bytes and not the end"), std::string::npos);
  EXPECT_NE(error(first + first.substr(0, 400))
                .find("at byte 1024: the archive ends within an entry, after 1424 bytes"),
            std::string::npos);
  EXPECT_NE(
      error(tar_entry("a", std::string(2000, 'x')).substr(0, 1500))
          .find("at byte 0: \"a\" has 2000 bytes by its header, and the archive ends within it"),
      std::string::npos);
  EXPECT_NE(error(tar_entry("a", "", {.type = '2'}) + tar_end())
                .find("\"a\" is a link, a device or a sparse file"),
            std::string::npos);
}

TEST_F(TarEntries, NamesThatLeadOutAreRefused) {
  for (const char* name : {"..", "../a", "x/../../a", "x/.."}) {
    const std::string message = error(tar_entry(name, "1") + tar_end());
    EXPECT_NE(message.find(concat("a.tar at byte 0: \"", name, "\" leads out of the archive")),
              std::string::npos)
        << message;
  }
  EXPECT_NE(error(tar_entry("x", pax_record("path", "../a"), {.type = 'x'}) + tar_entry("a", "1") +
                  tar_end())
                .find("\"../a\" leads out"),
            std::string::npos);
  EXPECT_NE(error(tar_entry("", "1") + tar_end()).find("an entry without a name"),
            std::string::npos);
  EXPECT_EQ(read(tar_entry("..a", "1") + tar_entry("./b..", "2") + tar_end()),
            (Files{"..a=1", "./b..=2"}));
}

TEST_F(TarEntries, HostileNumbersAreRefused) {
  const std::string huge = std::string("\xff", 1) + std::string(11, '\xff');
  EXPECT_NE(error(tar_entry("a", "", {.size = huge}) + tar_end()).find("states no size"),
            std::string::npos);
  EXPECT_NE(error(tar_entry("a", "", {.size = "77777777777 "}) + tar_end())
                .find("\"a\" has 8589934591 bytes by its header"),
            std::string::npos);
  // 2^63, in base 256 and as a pax record, and what is more than 2^64 behind the header.
  std::string base256(12, '\0');
  base256[0] = static_cast<char>(0x80);
  base256[4] = static_cast<char>(0x80);
  for (const std::string& archive :
       {tar_entry("a", "", {.size = base256}) + tar_end(),
        tar_entry("x", pax_record("size", "9223372036854775808"), {.type = 'x'}) +
            tar_entry("a", "") + tar_end()}) {
    EXPECT_NE(error(archive).find("\"a\" has 9223372036854775808 bytes by its header"),
              std::string::npos)
        << error(archive);
  }
  EXPECT_NE(error(tar_entry("x", pax_record("size", "18446744073709551615"), {.type = 'x'}) +
                  tar_entry("a", "") + tar_end())
                .find("\"a\" has 18446744073709551615 bytes"),
            std::string::npos);
  EXPECT_NE(error(tar_entry("a", "", {.size = "12x45678901 "}) + tar_end()).find("states no size"),
            std::string::npos);
  EXPECT_NE(error(tar_entry("L", "", {.type = 'L', .size = "00077777777 "}) + tar_end())
                .find("a header of 16777215 bytes; expected at most"),
            std::string::npos);
  for (const char* records : {"5 a=b", "99 a=b\n", "x a=b\n", "4 ab", "6 abcd\n", "7 abcd\n",
                              "18446744073709551616 a=b\n", "2 \n"}) {
    EXPECT_NE(error(tar_entry("x", records, {.type = 'x'}) + tar_entry("a", "1") + tar_end())
                  .find("at byte 0: a pax header"),
              std::string::npos)
        << records;
  }
  EXPECT_NE(error(tar_entry("x", pax_record("size", "-1"), {.type = 'x'}) + tar_entry("a", "1") +
                  tar_end())
                .find("a pax header states no size"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::dataset
