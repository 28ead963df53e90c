#include "trireme/comm/recorder/ring.h"

#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/comm/errors.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/comm/recorder/recorder.h"

namespace trireme::comm {
namespace {

// A closed ring with one call, as bytes.
std::string ring_bytes(const RecorderOptions& options = {}) {
  const harness::TemporaryFolder folder;
  RecorderOptions in_folder = options;
  in_folder.folder = folder.path();
  {
    Recorder recorder(in_folder);
    const int group = recorder.add_group("world", std::vector<int>{0});
    recorder.issue(group, {.operation = "barrier"}).finish(true);
  }
  return read_file(folder / ring_name(options.rank));
}

Ring parse(const std::string& bytes) {
  return parse_ring(std::as_bytes(std::span(bytes)), "the ring");
}

TEST(Ring, ReadingOnlyWhatIsNewLeavesOutEndedCallsAndKeepsOpenOnes) {
  Recorder recorder({});
  const int group = recorder.add_group("world", std::vector<int>{0});
  const auto open = recorder.issue(group, {.operation = "open", .is_background = true});
  for (int i = 1; i < 4; ++i) recorder.issue(group, {.operation = "old"}).finish(true);
  const WallTime since = recorder.snapshot().records.back().ended + std::chrono::nanoseconds(1);
  const auto numbers_since = [&] {
    std::vector<uint64_t> numbers;
    for (const Record& record : parse_ring(recorder.bytes(), "the ring", since).records) {
      numbers.push_back(record.number);
    }
    return numbers;
  };
  EXPECT_EQ(numbers_since(), (std::vector<uint64_t>{0}));
  while (recorder.snapshot().now <= since) continue;
  open.finish(true);
  recorder.issue(group, {.operation = "new"}).finish(true);
  EXPECT_EQ(numbers_since(), (std::vector<uint64_t>{0, 4}));
  EXPECT_EQ(recorder.snapshot().records.size(), 5u);
}

TEST(Ring, FileHasTheDocumentedBytes) {
  const std::string bytes = ring_bytes({.rank = 2, .world_size = 3, .num_records = 16});
  // docs/design/recorder-format.md: header, 256 groups, members, records.
  EXPECT_EQ(bytes.size(), 4096u + 256 * 128 + 16384 * 4 + 16 * 128);
  const auto word = [&](size_t offset) {
    uint32_t value = 0;
    std::memcpy(&value, bytes.data() + offset, sizeof(value));
    return value;
  };
  EXPECT_EQ(bytes.substr(0, 8), std::string("TRIRING\0", 8));
  EXPECT_EQ(word(8), 1u);
  EXPECT_EQ(word(32), 2u);
  EXPECT_EQ(word(36), 3u);
  EXPECT_EQ(word(344), 1u);
  EXPECT_EQ(bytes.substr(4096, 6), std::string("world\0", 6));
  const size_t record = 4096 + 256 * 128 + 16384 * 4;
  EXPECT_EQ(word(record), 1u);
  EXPECT_EQ(word(record + 40), static_cast<uint32_t>(CallState::kDone));
  EXPECT_EQ(bytes.substr(record + 64, 8), std::string("barrier\0", 8));
}

TEST(Ring, RefusesWhatIsNoRing) {
  const harness::TemporaryFolder folder;
  for (const std::string& content : {std::string(), std::string("text"), std::string(9000, 'x')}) {
    std::ofstream(folder / "rank-00000.ring") << content;
    EXPECT_ERROR(ConfigError, read_ring(folder / "rank-00000.ring"), "is not a recorder's ring");
  }
  EXPECT_ERROR(Error, read_ring(folder / "rank-00001.ring"), "rank-00001.ring");
}

TEST(Ring, RefusesCorruptBytes) {
  const std::string whole = ring_bytes();
  EXPECT_EQ(parse(whole).records.size(), 1u);
  const auto damaged = [&](size_t offset, char value) {
    std::string bytes = whole;
    bytes[offset] = value;
    return bytes;
  };
  EXPECT_ERROR(ConfigError, parse(damaged(32, 9)), "the ring is corrupt: its header's checksum");
  EXPECT_ERROR(ConfigError, parse(damaged(200, 9)), "checksum");
  EXPECT_ERROR(ConfigError, parse(damaged(347, 9)), "groups, expected at most 256");
  EXPECT_ERROR(ConfigError, parse(damaged(4096 + 67, 9)), "group 0 has members");
  EXPECT_ERROR(ConfigError, parse(whole.substr(0, whole.size() - 1)), "bytes, expected");
  EXPECT_ERROR(ConfigError, parse(whole + "x"), "bytes, expected");
}

// Hostile rings: whoever makes one signs its header too.
class SignedRing {
 public:
  explicit SignedRing(const RecorderOptions& options) : bytes_(ring_bytes(options)) {}
  template <typename T>
  SignedRing& set(size_t offset, T value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof(value));
    const std::string sum = checksum(std::as_bytes(std::span(bytes_)).first(320));
    std::memcpy(bytes_.data() + 320, sum.data(), 16);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

TEST(Ring, RefusesWhatNoWriterWritesUnderARightChecksum) {
  const auto with = [](size_t offset, auto value) {
    return SignedRing({.world_size = 2}).set(offset, value).bytes();
  };
  EXPECT_EQ(parse(with(32, int32_t{1})).rank, 1);
  for (const int32_t rank : {-1, 2, 1 << 30}) {
    EXPECT_ERROR(ConfigError, parse(with(32, rank)), "expected a rank below");
  }
  for (const int32_t size : {-1, 0, 1 << 19, 0x7fffffff}) {
    EXPECT_ERROR(ConfigError, parse(with(36, size)), "expected a rank below");
  }
  for (const size_t place : {16, 20, 24}) {  // groups, members, records
    for (const uint32_t count : {1u << 24, 1u << 31, 0xffffffffu}) {
      EXPECT_ERROR(ConfigError, parse(with(place, count)), "bytes, expected");
    }
  }
  for (const size_t place : {64, 72, 336}) {  // offset of the clocks, made, closed
    for (const int64_t time :
         {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
      EXPECT_ERROR(ConfigError, parse(with(place, time)), "is corrupt: it was");
    }
  }
  const size_t members = 4096 + 256 * 128;
  for (const int32_t member : {-1, 1 << 18, 0x7fffffff}) {
    EXPECT_ERROR(ConfigError, parse(with(members, member)), "is a member of group 0");
  }
  // Groups that share members would take more memory than the file has.
  EXPECT_ERROR(ConfigError, parse(with(4096 + 68, uint32_t{1})), "group 0 has members 1 to 2");
  EXPECT_ERROR(ConfigError,
               parse(SignedRing({.world_size = 2})
                         .set(344, uint32_t{2})
                         .set(4096 + 128 + 64, uint32_t{1})
                         .bytes()),
               "group 1 has members 0 to 1");
}

TEST(Ring, RefusesPipesAndFilesThatAreLargeInNameOnly) {
  const harness::TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "rank-00000.ring").c_str(), 0600), 0);
  EXPECT_ERROR(Error, read_rings(folder.path()), "it is a pipe");
  std::filesystem::remove(folder / "rank-00000.ring");
  std::ofstream(folder / "rank-00000.ring") << ring_bytes();
  std::filesystem::resize_file(folder / "rank-00000.ring", uint64_t{1} << 40);
  EXPECT_ERROR(Error, read_rings(folder.path()), "1099511627776 bytes; expected at most");
}

TEST(Ring, RefusesANewerFormat) {
  std::string bytes = ring_bytes();
  bytes[8] = 2;
  EXPECT_ERROR(ConfigError, parse(bytes), "has format 2; this program reads up to 1");
}

TEST(Ring, RecordWithAnUnfinishedStampIsLeftOut) {
  std::string bytes = ring_bytes({.num_records = 8});
  const size_t record = bytes.size() - 8 * 128;
  std::memset(bytes.data() + record, 0xff, 8);
  const Ring ring = parse(bytes);
  EXPECT_TRUE(ring.records.empty());
  EXPECT_EQ(ring.num_torn, 1u);
}

TEST(Ring, FolderGivesTheNewestJobByRank) {
  const harness::TemporaryFolder folder;
  for (const int rank : {3, 2, 1, 0}) {
    Recorder({.folder = folder.path(), .rank = rank, .world_size = 4, .job = "old"});
  }
  for (const int rank : {1, 0}) {
    Recorder({.folder = folder.path(), .rank = rank, .world_size = 2, .job = "new"});
  }
  std::ofstream(folder / "notes.txt") << "not mine";
  const std::vector<Ring> rings = read_rings(folder.path());
  ASSERT_EQ(rings.size(), 2u);
  EXPECT_EQ(rings[0].rank, 0);
  EXPECT_EQ(rings[1].rank, 1);
  EXPECT_EQ(rings[1].job, "new");
}

TEST(Ring, FolderPassesOverRingsOfAnotherWorldSize) {
  const harness::TemporaryFolder folder;
  for (const int rank : {0, 1, 2}) {
    Recorder({.folder = folder.path(), .rank = rank, .world_size = 3, .job = "host-29500"});
  }
  Recorder({.folder = folder.path(), .rank = 0, .world_size = 2, .job = "host-29500"});
  EXPECT_EQ(read_rings(folder.path()).size(), 1u);
}

// What a start leaves that is refused, or has not got the folder yet.
TEST(Ring, FolderGivesTheRunThatGoesOnAndNotOneThatIsStarting) {
  const harness::TemporaryFolder folder;
  const auto made = [&](int rank, const std::string& job, bool is_unpublished) {
    return std::make_unique<Recorder>(RecorderOptions{.folder = folder.path(),
                                                      .rank = rank,
                                                      .world_size = 2,
                                                      .job = job,
                                                      .is_unpublished = is_unpublished});
  };
  const auto jobs = [&] {
    std::string text;
    for (const Ring& ring : read_rings(folder.path())) text += concat(ring.rank, ring.job, " ");
    return text;
  };
  auto old_0 = made(0, "old", false);
  auto old_1 = made(1, "old", false);
  auto new_0 = made(0, "new", true);
  EXPECT_EQ(jobs(), "0old 1old ");
  old_0.reset();
  EXPECT_EQ(jobs(), "0old 1old ") << "rank 1 goes on";
  old_1.reset();
  EXPECT_EQ(jobs(), "0new ");
  auto new_1 = made(1, "new", true);
  EXPECT_EQ(jobs(), "0new 1new ");
  new_1->publish();
  EXPECT_EQ(jobs(), "0new 1new ") << "one of them has the folder already";
  new_0->publish();
  EXPECT_EQ(jobs(), "0new 1new ");
}

TEST(Ring, FolderWithoutRingsIsAnError) {
  const harness::TemporaryFolder folder;
  EXPECT_ERROR(ConfigError, read_rings(folder / "missing"), "is not a folder");
  EXPECT_ERROR(ConfigError, read_rings(folder.path()), "holds no ring");
}

// A process that holds a ring open until it is killed.
class Writer {
 public:
  explicit Writer(const std::filesystem::path& folder) : path_(folder / "rank-00000.ring") {
    child_ = fork();
    if (child_ == 0) {
      Recorder recorder({.folder = folder});
      for (;;) pause();
    }
    while (!std::filesystem::exists(path_)) usleep(1000);
  }
  ~Writer() { end(); }
  Ring ring() const { return read_ring(path_); }
  void signal(int number) const { kill(child_, number); }
  void end() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = 0;
  }
  pid_t process_id() const { return child_; }

 private:
  std::filesystem::path path_;
  pid_t child_ = 0;
};

TEST(ProcessState, FollowsTheProcess) {
  const harness::TemporaryFolder folder;
  Writer writer(folder.path());
  const Ring ring = writer.ring();
  EXPECT_EQ(ring.process_id, writer.process_id());
  EXPECT_EQ(process_state(ring), ProcessState::kRunning);
  int status = 0;
  writer.signal(SIGSTOP);
  ASSERT_EQ(waitpid(writer.process_id(), &status, WUNTRACED), writer.process_id());
  EXPECT_EQ(process_state(ring), ProcessState::kStopped);
  writer.signal(SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, writer.process_id(), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(process_state(ring), ProcessState::kGone) << "a zombie";
  writer.end();
  EXPECT_EQ(process_state(ring), ProcessState::kGone);
}

TEST(ProcessState, IsObservedWithTheRing) {
  const harness::TemporaryFolder folder;
  Writer writer(folder.path());
  std::vector<ObservedRank> ranks = observe_ranks(folder.path());
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_EQ(ranks[0].ring.process_id, writer.process_id());
  EXPECT_EQ(ranks[0].process, ProcessState::kRunning);
  writer.end();
  ranks = observe_ranks(folder.path());
  EXPECT_EQ(ranks[0].process, ProcessState::kGone);
  EXPECT_FALSE(ranks[0].ring.closed.has_value());
}

TEST(ProcessState, TellsAnotherProcessOfTheSameIdAndAnotherHost) {
  const auto state_with = [](const std::function<void(Ring&)>& change) {
    const Recorder recorder({});
    Ring ring = recorder.snapshot();
    change(ring);
    return process_state(ring);
  };
  EXPECT_EQ(state_with([](Ring&) {}), ProcessState::kRunning);
  EXPECT_EQ(state_with([](Ring& ring) { ++ring.process_start; }), ProcessState::kGone);
  EXPECT_EQ(state_with([](Ring& ring) { ring.boot_id = "before"; }), ProcessState::kGone);
  EXPECT_EQ(state_with([](Ring& ring) { ++ring.pid_namespace; }), ProcessState::kUnknown);
  EXPECT_EQ(state_with([](Ring& ring) {
              ring.boot_id = "there";
              ring.host = "there";
            }),
            ProcessState::kUnknown);
}

}  // namespace
}  // namespace trireme::comm
