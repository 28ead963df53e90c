#include "trireme/comm/recorder/ring.h"

#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/comm/errors.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
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

TEST(Ring, FileHasTheDocumentedBytes) {
  const std::string bytes = ring_bytes({.rank = 2, .world_size = 3, .num_records = 16});
  // docs/recorder-format.md: header, 256 groups, members, records.
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
    EXPECT_ERROR(ConfigError, read_ring(folder / "rank-00000.ring"), "is no recorder's ring");
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

TEST(Ring, FolderWithoutRingsIsAnError) {
  const harness::TemporaryFolder folder;
  EXPECT_ERROR(ConfigError, read_rings(folder / "missing"), "is no folder");
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
