#include "trireme/base/file/file.h"

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/harness/file_size_limit.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

using harness::names_in;
using harness::TemporaryFolder;
using ::testing::ElementsAre;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(OutputFile, WritesAppendsAndTruncates) {
  const TemporaryFolder folder;
  {
    OutputFile file(folder / "a");
    file.write("one\n");
    file.write(std::string_view("t\0wo", 4));
    file.sync();
    file.close();
  }
  EXPECT_EQ(read_file(folder / "a"), std::string("one\nt\0wo", 8));
  OutputFile(folder / "a", true).write("!");
  EXPECT_EQ(read_file(folder / "a"), std::string("one\nt\0wo!", 9));
  OutputFile(folder / "a").write("new");
  EXPECT_EQ(read_file(folder / "a"), "new");
}

TEST(OutputFile, CloseMayBeCalledTwiceAndMovedFromIsClosed) {
  const TemporaryFolder folder;
  OutputFile first(folder / "a");
  OutputFile second(std::move(first));
  second.write("kept");
  second.close();
  second.close();
  EXPECT_EQ(read_file(folder / "a"), "kept");
}

TEST(OutputFile, ErrorNamesPathAndReason) {
  const TemporaryFolder folder;
  const auto path = folder / "missing" / "a";
  try {
    OutputFile file(path);
    FAIL() << "opened a file in a folder that does not exist";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), "cannot write " + path.string() + ": No such file or directory");
  }
}

TEST(OutputFile, ReportsADiskThatIsFull) {
  const TemporaryFolder folder;
  OutputFile file(folder / "a");
  const harness::FileSizeLimit limit(1000);
  EXPECT_THROW(file.write(std::string(5000, 'x')), Error);
}

TEST(MappedFile, GivesEveryByte) {
  const TemporaryFolder folder;
  const std::string content(100'001, 'z');
  write_file_atomically(folder / "a", content);
  MappedFile first(folder / "a");
  const MappedFile second(std::move(first));
  EXPECT_TRUE(first.bytes().empty());
  EXPECT_EQ(second.bytes().size(), content.size());
  EXPECT_EQ(checksum(second.bytes()), checksum(bytes_of(content)));
}

TEST(MappedFile, MapsAnEmptyFileToAnEmptySpan) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "");
  EXPECT_TRUE(MappedFile(folder / "a").bytes().empty());
  EXPECT_EQ(read_file(folder / "a"), "");
}

TEST(MappedFile, ErrorsNamePathAndReason) {
  const TemporaryFolder folder;
  const auto message = [](const std::filesystem::path& path) -> std::string {
    try {
      const MappedFile file(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  const std::string missing = (folder / "a").string();
  EXPECT_EQ(message(missing), "cannot read " + missing + ": No such file or directory");
  EXPECT_EQ(message(folder.path()), "cannot read " + folder.path().string() + ": Is a directory");
}

// Without a wait: a FIFO has no writer here, and its open would never return.
TEST(ReadFile, RefusesWhatIsNoRegularFile) {
  const TemporaryFolder folder;
  const std::string pipe = (folder / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink("pipe", folder / "link");
  const std::string is_pipe = ": it is a pipe; expected a regular file";
  const std::string is_device = ": it is a device; expected a regular file";
  const std::vector<std::function<void(const std::string&)>> readers = {
      [](const std::string& path) { static_cast<void>(read_file(path)); },
      [](const std::string& path) { const MappedFile file(path); },
      [](const std::string& path) { open_regular_file(path); }};
  for (const auto& read : readers) {
    const auto message = [&](const std::string& path) {
      return harness::message_of<Error>([&] { read(path); });
    };
    EXPECT_EQ(message(pipe), "cannot read " + pipe + is_pipe);
    EXPECT_EQ(message((folder / "link").string()),
              "cannot read " + (folder / "link").string() + is_pipe);
    EXPECT_EQ(message("/dev/zero"), "cannot read /dev/zero" + is_device);
    EXPECT_EQ(message(folder.path().string()),
              "cannot read " + folder.path().string() + ": Is a directory");
  }
  EXPECT_THROW(OutputFile{pipe}, Error);
  EXPECT_THROW(OutputFile{"/dev/null"}, Error);
}

TEST(IsFile, OnlyOfARegularFile) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "file", "");
  EXPECT_TRUE(is_file(folder.path() / "file"));
  EXPECT_FALSE(is_file(folder.path()));
  EXPECT_FALSE(is_file(folder.path() / "none"));
  EXPECT_FALSE(is_file(folder.path() / "file" / "below"));
  EXPECT_FALSE(is_file(std::string(5'000, 'a')));
}

TEST(ReadFile, ReportsAFailedReadWhereTheSizeSaysNothing) {
  // A file of /proc has no size: its content is whatever a read gives, and an error is an error.
  EXPECT_NE(read_file("/proc/self/status").find("Pid:"), std::string::npos);
  EXPECT_EQ(harness::message_of<Error>([] { static_cast<void>(read_file("/proc/self/mem")); }),
            "cannot read /proc/self/mem: Input/output error");
  EXPECT_THROW(MappedFile("/proc/self/mem"), Error);
  EXPECT_THROW(MappedFile("/proc/self/status"), Error);
}

TEST(ReadFile, RefusesMoreThanItsLimit) {
  const TemporaryFolder folder;
  const std::string path = (folder / "a").string();
  write_file_atomically(path, "12345");
  EXPECT_EQ(read_file(path, 5), "12345");
  const std::string text = "cannot read " + path + ": it has 5 bytes; expected at most 4";
  EXPECT_EQ(harness::message_of<Error>([&] { static_cast<void>(read_file(path, 4)); }), text);
  EXPECT_EQ(harness::message_of<Error>([&] { const MappedFile file(path, 4); }), text);
  // No memory is taken for a file that is large in name only.
  std::filesystem::resize_file(path, uint64_t{1} << 40);
  EXPECT_THROW(static_cast<void>(read_file(path)), Error);
}

TEST(OutputFile, LeavesPermissionsToTheUmask) {
  const TemporaryFolder folder;
  for (const mode_t mask : {0022, 0077, 0002}) {
    const std::filesystem::path path = folder / concat(mask);
    const mode_t before = ::umask(mask);
    OutputFile(path).close();
    ::umask(before);
    EXPECT_EQ(static_cast<mode_t>(std::filesystem::status(path).permissions()), 0666 & ~mask);
  }
}

TEST(WriteFileAtomically, ReplacesTheContentAndLeavesNothingElse) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "old");
  write_file_atomically(folder / "a", "new");
  EXPECT_EQ(read_file(folder / "a"), "new");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("a"));
}

TEST(WriteFileAtomically, KeepsTheOldContentWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "old");
  {
    const harness::FileSizeLimit limit(1000);
    EXPECT_THROW(write_file_atomically(folder / "a", std::string(5000, 'x')), Error);
  }
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("a"));
}

TEST(WriteFileAtomically, KeepsAFolderInItsWayAndCleansUp) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "a" / "inner");
  EXPECT_THROW(write_file_atomically(folder / "a", "text"), Error);
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a" / "inner"));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("a"));
}

TEST(WriteFileAtomically, DoesNotTakeThePlaceOfAPipe) {
  const TemporaryFolder folder;
  const std::string pipe = (folder / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(harness::message_of<Error>([&] { write_file_atomically(pipe, "text"); }),
            "cannot write " + pipe + ": it is a pipe; expected a regular file");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("pipe"));
}

TEST(MakeFolders, MakesWhatIsMissingAndTakesWhatIsThere) {
  const TemporaryFolder folder;
  for (int round = 0; round < 2; ++round) make_folders(folder / "a/b/c/");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b/c"));
  make_folders(folder / "a/../d");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("a", "d"));
}

TEST(MakeFolders, ARelativeNamesParentIsThere) {
  make_folders(std::filesystem::path("run").parent_path());
  make_folders(".");
}

TEST(MakeFolders, ErrorNamesThePathInTheWay) {
  const TemporaryFolder folder;
  OutputFile(folder / "file").close();
  EXPECT_THAT(harness::message_of([&] { make_folders(folder / "file/below"); }),
              ::testing::AllOf(::testing::HasSubstr("file"), ::testing::HasSubstr("File exists")));
}

TEST(MakeFolders, ErrorSaysWhyAndNotThatThereIsNone) {
  // Nobody makes folders there.
  EXPECT_THAT(harness::message_of([] { make_folders("/sys/trireme-test"); }),
              ::testing::AllOf(::testing::HasSubstr("cannot make the folder /sys/trireme-test: "),
                               ::testing::Not(::testing::HasSubstr("No such file"))));
}

TEST(SyncFolder, RefusesWhatIsNoFolder) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "text");
  EXPECT_NO_THROW(sync_folder(folder.path()));
  EXPECT_THROW(sync_folder(folder / "a"), Error);
}

TEST(Checksum, IsXxh3OnEveryMachine) {
  // The published XXH3_64bits of the empty input: checkpoints carry these digits between machines.
  EXPECT_EQ(checksum({}), "2d06800538d394c2");
  EXPECT_EQ(checksum(bytes_of("trireme")).size(), 16);
}

TEST(Checksum, OfAFileIsThatOfItsBytes) {
  const harness::TemporaryFolder folder;
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{240}, size_t{1} << 20, (size_t{5} << 19) + 3}) {
    std::string text(size, 'a');
    for (size_t i = 0; i < size; i += 7) text[i] = static_cast<char>(i);
    write_file_atomically(folder / "file", text);
    EXPECT_EQ(checksum(InputFile(folder / "file")), checksum(std::as_bytes(std::span(text))))
        << size;
  }
}

TEST(Checksum, ChangesWithEveryBit) {
  std::string text(300, 'a');
  const std::string before = checksum(bytes_of(text));
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    text[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    ASSERT_NE(checksum(bytes_of(text)), before) << "bit " << bit;
    text[bit / 8] ^= static_cast<char>(1 << (bit % 8));
  }
  EXPECT_EQ(checksum(bytes_of(text)), before);
}

TEST(ReadFile, GivesTheWholeContentWhateverItsSize) {
  const TemporaryFolder folder;
  for (const size_t size : {0, 1, 4095, 4096, 4097, 8192, 100'000}) {
    const std::string content(size, 'x');
    write_file_atomically(folder / "a", content);
    EXPECT_EQ(read_file(folder / "a"), content);
    EXPECT_EQ(read_file(folder / "a", size), content);
    if (size == 0) continue;
    EXPECT_THROW(read_file(folder / "a", size - 1), Error);
  }
}

TEST(ReadFile, AnErrorIsNotTakenForTheEnd) {
  // It says that it has no bytes; so does the second, and has some.
  EXPECT_EQ(harness::message_of([] { read_file("/proc/self/mem"); }),
            "cannot read /proc/self/mem: Input/output error");
  EXPECT_NE(read_file("/proc/self/status"), "");
}

TEST(ReadFile, ALargeFileIsRefusedBeforeItIsRead) {
  const TemporaryFolder folder;
  OutputFile(folder / "a").close();
  std::filesystem::resize_file(folder / "a", size_t{1} << 40);
  EXPECT_EQ(harness::message_of([&] { read_file(folder / "a", 1000); }),
            "cannot read " + (folder / "a").string() +
                ": it has 1099511627776 bytes; expected at most 1000");
  EXPECT_THROW(read_file(folder / "a"), Error);
}

TEST(InputFile, ReadsAnywhereAndSaysWhereTheFileEndsNow) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "0123456789");
  const InputFile file(folder / "a");
  EXPECT_EQ(file.num_bytes(), 10);
  std::string text(4, ' ');
  const auto bytes = std::as_writable_bytes(std::span(text));
  file.read(6, bytes);
  EXPECT_EQ(text, "6789");
  file.read(0, bytes.first(2));
  EXPECT_EQ(text, "0189");
  std::filesystem::resize_file(folder / "a", 8);
  file.read(4, bytes);
  EXPECT_EQ(text, "4567");
  EXPECT_EQ(harness::message_of([&] { file.read(6, bytes); }),
            "cannot read " + (folder / "a").string() +
                ": it ends before byte 10; it had 10 bytes when it was opened");
  EXPECT_THROW(file.read(uint64_t{1} << 62, bytes), Error);
  EXPECT_THROW(file.read(~uint64_t{0}, bytes), Error);
  file.read(100, {});
}

TEST(InputFile, GoesOnWithTheFileItOpened) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "before");
  const InputFile file(folder / "a");
  write_file_atomically(folder / "a", "behind");
  std::string text(6, ' ');
  file.read(0, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(text, "before");
  EXPECT_THROW(InputFile(folder / "missing"), Error);
  EXPECT_THROW(InputFile(folder.path()), Error);
}

}  // namespace
}  // namespace trireme
