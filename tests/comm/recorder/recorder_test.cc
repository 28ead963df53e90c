#include "trireme/comm/recorder/recorder.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fstream>
#include <memory>
#include <set>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/comm/errors.h"
#include "tests/comm/recorder/recorded_ranks.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/comm/shared/thread_group.h"

namespace trireme::comm {
namespace {

const std::vector<int> kWorld = {0, 1};

TEST(Recorder, RemembersEveryFieldOfACall) {
  Recorder recorder({.rank = 1, .world_size = 4, .job = "job-7"});
  const std::vector<int> members = {1, 3};
  const int world = recorder.add_group("world", std::vector<int>{0, 1, 2, 3});
  const int tensor = recorder.add_group("tensor", members);
  recorder.issue(world, {.operation = "barrier"}).finish(true);
  const std::vector<int64_t> shape = {2, 3, 5, 7, 11};
  const auto entry = recorder.issue(tensor, {.operation = "all_reduce",
                                             .shape = shape,
                                             .elements = 2310,
                                             .dtype = 6,
                                             .reduce_op = 0,
                                             .peer = 3,
                                             .tag = 9,
                                             .is_background = true});
  Ring ring = recorder.snapshot();
  EXPECT_EQ(ring.rank, 1);
  EXPECT_EQ(ring.world_size, 4);
  EXPECT_EQ(ring.job, "job-7");
  EXPECT_FALSE(ring.closed.has_value());
  ASSERT_EQ(ring.groups.size(), 2u);
  EXPECT_EQ(ring.groups[1].name, "tensor");
  EXPECT_EQ(ring.groups[1].world_ranks, members);
  ASSERT_EQ(ring.records.size(), 2u);
  EXPECT_EQ(ring.records[0].operation, "barrier");
  EXPECT_EQ(ring.records[0].state, CallState::kDone);
  EXPECT_EQ(ring.records[0].num_dims, 0);
  const Record& call = ring.records[1];
  EXPECT_EQ(call.number, 1u);
  EXPECT_EQ(call.sequence, 1u);
  EXPECT_EQ(call.group, tensor);
  EXPECT_EQ(call.operation, "all_reduce");
  EXPECT_EQ(call.shape, (std::vector<int64_t>{2, 3, 5, 7}));
  EXPECT_EQ(call.num_dims, 5);
  EXPECT_EQ(call.elements, 2310);
  EXPECT_EQ(call.dtype, 6);
  EXPECT_EQ(call.reduce_op, 0);
  EXPECT_EQ(call.peer, 3);
  EXPECT_EQ(call.tag, 9);
  EXPECT_EQ(call.thread, own_thread_id());
  EXPECT_TRUE(call.is_background);
  EXPECT_FALSE(call.is_point_to_point);
  EXPECT_EQ(call.state, CallState::kIssued);
  EXPECT_GE(call.issued, ring.created);
  EXPECT_EQ(call.started, WallTime{});

  entry.start();
  ring = recorder.snapshot();
  EXPECT_EQ(ring.records[1].state, CallState::kStarted);
  EXPECT_GE(ring.records[1].started, ring.records[1].issued);
  EXPECT_EQ(ring.records[1].ended, WallTime{});
  entry.finish(false);
  ring = recorder.snapshot();
  EXPECT_EQ(ring.records[1].state, CallState::kFailed);
  EXPECT_GE(ring.records[1].ended, ring.records[1].started);
  EXPECT_GE(ring.now, ring.records[1].ended);
}

TEST(Recorder, CountsCollectivesAndPointToPointApart) {
  Recorder recorder({});
  const int group = recorder.add_group("world", kWorld);
  for (const bool is_point_to_point : {false, true, true, false}) {
    recorder.issue(group, {.operation = "call", .is_point_to_point = is_point_to_point})
        .finish(true);
  }
  const Ring ring = recorder.snapshot();
  EXPECT_EQ(ring.groups[0].num_collectives, 2u);
  EXPECT_EQ(ring.groups[0].num_point_to_point, 2u);
  std::vector<uint64_t> sequences;
  for (const Record& record : ring.records) sequences.push_back(record.sequence);
  EXPECT_EQ(sequences, (std::vector<uint64_t>{1, 1, 2, 2}));
}

TEST(Recorder, KeepsTheLatestCallsAndEveryUnfinishedOne) {
  Recorder recorder({.num_records = 8});
  const int group = recorder.add_group("world", kWorld);
  const auto pending = recorder.issue(group, {.operation = "recv", .is_background = true});
  for (int i = 0; i < 100; ++i) recorder.issue(group, {.operation = "barrier"}).finish(true);
  Ring ring = recorder.snapshot();
  ASSERT_EQ(ring.records.size(), 8u);
  EXPECT_EQ(ring.records[0].operation, "recv");
  EXPECT_EQ(ring.records[0].state, CallState::kIssued);
  for (int i = 1; i < 8; ++i) EXPECT_EQ(ring.records[i].sequence, 101u - 7 + i);
  EXPECT_EQ(ring.groups[0].num_collectives, 101u);
  pending.finish(true);
  for (int i = 0; i < 8; ++i) recorder.issue(group, {.operation = "barrier"}).finish(true);
  ring = recorder.snapshot();
  EXPECT_EQ(ring.records[0].operation, "barrier");
  EXPECT_EQ(ring.num_dropped, 0u);
}

TEST(Recorder, CountsCallsForWhichNoSlotIsFree) {
  Recorder recorder({.num_records = 8});
  const int group = recorder.add_group("world", kWorld);
  std::vector<Recorder::Entry> entries;
  for (int i = 0; i < 11; ++i) entries.push_back(recorder.issue(group, {.operation = "send"}));
  EXPECT_EQ(recorder.snapshot().num_dropped, 3u);
  for (const auto& entry : entries) entry.finish(true);
  recorder.issue(group, {.operation = "barrier"}).finish(true);
  EXPECT_EQ(recorder.snapshot().records.back().operation, "barrier");
}

TEST(Recorder, CutsLongNamesAndGoesOnWhenTheGroupTableIsFull) {
  Recorder recorder({});
  EXPECT_EQ(recorder.add_group(std::string(100, 'g'), kWorld), 0);
  EXPECT_EQ(recorder.add_group("huge", std::vector<int>(1 << 20)), -1);
  int last = 0;
  for (int i = 0; i < 300; ++i) last = recorder.add_group("split", kWorld);
  EXPECT_EQ(last, -1);
  recorder.issue(last, {.operation = std::string(30, 'o')}).finish(true);
  const Ring ring = recorder.snapshot();
  EXPECT_EQ(ring.groups.size(), 256u);
  EXPECT_EQ(ring.groups[0].name, std::string(63, 'g'));
  EXPECT_EQ(ring.records[0].operation, std::string(23, 'o'));
  EXPECT_EQ(ring.records[0].group, -1);
}

// Each call's fields say the same number in several places: a mixture of two calls is seen.
RecordedCall numbered_call(int64_t value, std::vector<int64_t>& shape) {
  shape.assign(4, value);
  return {.operation = "all_reduce",
          .shape = shape,
          .elements = value,
          .peer = static_cast<int>(value),
          .tag = static_cast<int>(value),
          .is_background = value % 2 == 0};
}

void expect_whole(const Record& record) {
  ASSERT_EQ(record.shape, std::vector<int64_t>(4, record.elements));
  ASSERT_EQ(record.peer, record.elements);
  ASSERT_EQ(record.tag, record.elements);
  ASSERT_EQ(record.is_background, record.elements % 2 == 0);
  ASSERT_EQ(record.operation, "all_reduce");
  if (record.state != CallState::kIssued) {
    ASSERT_GE(record.started, record.issued);
  }
  if (record.state == CallState::kDone) {
    ASSERT_GE(record.ended, record.started);
  }
}

TEST(Recorder, ManyThreadsWriteWhileAReaderReadsWholeRecords) {
  constexpr int kThreads = 4;
  Recorder recorder({.num_records = 32});  // small, so that slots are taken again all the time
  std::atomic<bool> stop = false;
  std::vector<uint64_t> num_calls(kThreads);
  std::vector<std::thread> writers;
  for (int thread = 0; thread < kThreads; ++thread) {
    const int group = recorder.add_group("group", std::vector<int>{thread});
    writers.emplace_back([&, group, thread] {
      std::vector<int64_t> shape;
      int64_t i = 0;
      for (; i < 1000 || !stop; ++i) {
        const auto entry = recorder.issue(group, numbered_call(i * kThreads + thread, shape));
        entry.start();
        entry.finish(true);
      }
      num_calls[thread] = static_cast<uint64_t>(i);
    });
  }
  int num_read = 0;
  while (num_read < 2000 && !testing::Test::HasFailure()) {
    const Ring ring = recorder.snapshot();
    std::set<uint64_t> numbers;
    for (const Record& record : ring.records) {
      expect_whole(record);
      EXPECT_EQ(record.elements % kThreads, ring.groups[record.group].world_ranks[0]);
      EXPECT_EQ(record.sequence, record.elements / kThreads + 1u);
      EXPECT_TRUE(numbers.insert(record.number).second);
      ++num_read;
    }
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  const Ring ring = recorder.snapshot();
  EXPECT_EQ(ring.records.size(), 32u);
  EXPECT_EQ(ring.num_torn, 0u);
  for (int thread = 0; thread < kThreads; ++thread) {
    EXPECT_EQ(ring.groups[thread].num_collectives, num_calls[thread]);
  }
}

TEST(Recorder, FileIsReadableAfterItsWriterWasKilledInTheMiddle) {
  const harness::TemporaryFolder folder;
  const auto path = folder / "recorder" / "rank-00003.ring";
  const pid_t child = fork();
  if (child == 0) {
    Recorder recorder({.folder = folder / "recorder", .rank = 3, .world_size = 5, .job = "job"});
    const int group = recorder.add_group("world", kWorld);
    std::vector<int64_t> shape;
    for (int64_t i = 0;; ++i) {
      const auto entry = recorder.issue(group, numbered_call(i, shape));
      entry.start();
      entry.finish(true);
    }
  }
  // Read while it is written, until the ring has wrapped.
  uint64_t last = 0;
  while (last < 20000) {
    if (!std::filesystem::exists(path)) continue;
    const Ring ring = read_ring(path);
    for (const Record& record : ring.records) expect_whole(record);
    if (!ring.records.empty()) last = ring.records.back().number;
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const Ring ring = read_ring(path);
  EXPECT_EQ(ring.rank, 3);
  EXPECT_EQ(ring.process_id, child);
  EXPECT_FALSE(ring.closed.has_value());
  EXPECT_LE(ring.num_torn, 1u);
  EXPECT_GE(ring.records.size(), 4095u);
  for (const Record& record : ring.records) expect_whole(record);
  EXPECT_EQ(process_state(ring), ProcessState::kGone);
}

TEST(Recorder, FileSaysWhenItWasClosed) {
  const harness::TemporaryFolder folder;
  {
    Recorder recorder({.folder = folder.path()});
    recorder.issue(-1, {.operation = "barrier"}).finish(true);
    EXPECT_FALSE(read_ring(folder / "rank-00000.ring").closed.has_value());
  }
  const Ring ring = read_ring(folder / "rank-00000.ring");
  ASSERT_TRUE(ring.closed.has_value());
  EXPECT_GE(*ring.closed, ring.records[0].ended);
}

TEST(Recorder, NewFileLeavesTheOldOneToItsWriter) {
  const harness::TemporaryFolder folder;
  Recorder old_run({.folder = folder.path(), .job = "old"});
  Recorder new_run({.folder = folder.path(), .job = "new"});
  old_run.issue(-1, {.operation = "barrier"}).finish(true);
  EXPECT_EQ(old_run.snapshot().records.size(), 1u);
  const Ring ring = read_ring(folder / "rank-00000.ring");
  EXPECT_EQ(ring.job, "new");
  EXPECT_TRUE(ring.records.empty());
}

TEST(Recorder, GroupRecordsItsCallsAndThoseOfItsSubgroups) {
  GroupOptions options{.name = "world", .recorder = std::make_shared<Recorder>(RecorderOptions{})};
  {
    const auto world = std::move(make_thread_group(1, options).front());
    const at::Tensor data = at::ones({2, 3});
    world->all_reduce(data, {.operation = ReduceOp::kMax})->wait();
    world->broadcast(data, 0, {.background = true})->wait();
    const auto part = world->split(0, 0, "part");
    part->barrier()->wait();
  }
  const Ring ring = options.recorder->snapshot();
  std::vector<std::string> calls;
  for (const Record& record : ring.records) {
    EXPECT_EQ(record.state, CallState::kDone) << record.operation;
    calls.push_back(concat(ring.groups[record.group].name, " ", record.sequence, " ",
                           record.operation, record.is_background ? " in the background" : ""));
  }
  EXPECT_EQ(calls, (std::vector<std::string>{
                       "world 1 join", "world 2 all_reduce", "world 3 broadcast in the background",
                       "world 4 all_gather", "part 1 join", "part 2 barrier"}));
  EXPECT_EQ(ring.records[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(ring.records[1].elements, 6);
  EXPECT_EQ(ring.records[1].dtype, static_cast<int>(at::kFloat));
  EXPECT_EQ(ring.records[1].reduce_op, static_cast<int>(ReduceOp::kMax));
  EXPECT_EQ(ring.records[2].peer, 0);
}

TEST(Recorder, GroupRecordsFailuresAndWorldRanks) {
  const harness::TemporaryFolder folder;
  RecordedRanks ranks(3, folder.path(), [](Communicator& world) {
    const auto part = world.split(world.rank() == 1 ? -1 : 0, 0, "ends");
    if (part == nullptr) return;
    if (part->rank() == 0) part->send(at::ones({4}), 1, {.tag = 5})->wait();
    if (part->rank() == 1) part->recv(at::ones({4}), 0, {.tag = 5})->wait();
    if (part->rank() == 1) throw Error("leaves");
    part->barrier()->wait();  // throws: the other has left
  });
  ranks.join();
  const std::vector<Ring> rings = read_rings(folder.path());
  ASSERT_EQ(rings.size(), 3u);
  ASSERT_EQ(rings[0].groups.size(), 2u);
  EXPECT_EQ(rings[0].groups[1].name, "ends");
  EXPECT_EQ(rings[0].groups[1].world_ranks, (std::vector<int>{0, 2}));
  const Record& send = rings[0].records[rings[0].records.size() - 2];
  EXPECT_EQ(send.operation, "send");
  EXPECT_TRUE(send.is_point_to_point);
  EXPECT_EQ(send.peer, 1);
  EXPECT_EQ(send.tag, 5);
  EXPECT_EQ(rings[2].records.back().operation, "recv");
  EXPECT_EQ(rings[0].records.back().operation, "barrier");
  EXPECT_EQ(rings[0].records.back().state, CallState::kFailed);
  for (const Ring& ring : rings) EXPECT_TRUE(ring.closed.has_value());
}

TEST(Recorder, FileIsItsOwnersAloneWhateverTheUmask) {
  const harness::TemporaryFolder folder;
  const mode_t before = ::umask(0);
  const Recorder recorder({.folder = folder / "recorder"});
  ::umask(before);
  const auto permissions = [](const std::filesystem::path& path) {
    return static_cast<unsigned>(std::filesystem::status(path).permissions());
  };
  EXPECT_EQ(permissions(folder / "recorder" / "rank-00000.ring"), 0600u);
  EXPECT_EQ(permissions(folder / "recorder"), 0777u) << "the folder is as the umask says";
}

TEST(Recorder, TakesTheNameThatItsJobHasAgreedOn) {
  const harness::TemporaryFolder folder;
  Recorder recorder({.folder = folder.path(), .job = "file:/a/long/path", .is_unpublished = true});
  recorder.name_job("7f");
  recorder.publish();
  EXPECT_EQ(read_ring(folder / "rank-00000.ring").job, "7f");
}

TEST(Recorder, UnpublishedFileReplacesNothing) {
  const harness::TemporaryFolder folder;
  const auto job_of = [&] { return read_ring(folder / "rank-00000.ring").job; };
  const Recorder live({.folder = folder.path(), .job = "live"});
  {
    const Recorder refused({.folder = folder.path(), .job = "refused", .is_unpublished = true});
    const Recorder waiting({.folder = folder.path(), .job = "waiting", .is_unpublished = true});
    EXPECT_EQ(job_of(), "live");
    EXPECT_EQ(harness::names_in(folder.path()).size(), 3u);
  }
  EXPECT_EQ(harness::names_in(folder.path()), std::vector<std::string>{"rank-00000.ring"});
  {
    Recorder next({.folder = folder.path(), .job = "next", .is_unpublished = true});
    next.publish();
    next.publish();
    EXPECT_EQ(job_of(), "next");
  }
  EXPECT_EQ(job_of(), "next") << "it stays when its run has ended";
  EXPECT_EQ(harness::names_in(folder.path()), std::vector<std::string>{"rank-00000.ring"});
}

TEST(Recorder, UnpublishedFileTakesTheFoldersMadeForItAlong) {
  const harness::TemporaryFolder folder;
  const RecorderOptions options{.folder = folder / "run/recorder", .is_unpublished = true};
  { const Recorder refused(options); }
  EXPECT_TRUE(harness::names_in(folder.path()).empty());
  {
    const Recorder refused(options);
    const Recorder published({.folder = folder / "run/recorder", .rank = 1, .world_size = 2});
  }
  EXPECT_EQ(harness::names_in(folder / "run/recorder"),
            std::vector<std::string>{"rank-00001.ring"});
  std::filesystem::remove(folder / "run/recorder/rank-00001.ring");
  { const Recorder refused(options); }
  EXPECT_TRUE(std::filesystem::exists(folder / "run/recorder")) << "it was there before";
}

TEST(Recorder, PublishingRemovesWhatKilledStartsHaveLeft) {
  const harness::TemporaryFolder folder;
  for (const int rank : {0, 3}) {
    const pid_t child = fork();
    if (child == 0) {
      const auto* left = new Recorder({.folder = folder.path(),
                                       .rank = rank,
                                       .world_size = 4,
                                       .job = "killed",
                                       .is_unpublished = true});
      raise(left != nullptr ? SIGKILL : SIGTERM);
    }
    waitpid(child, nullptr, 0);
  }
  const Recorder starting(
      {.folder = folder.path(), .rank = 1, .world_size = 2, .job = "new", .is_unpublished = true});
  EXPECT_EQ(harness::names_in(folder.path()).size(), 3u);
  const Recorder first({.folder = folder.path(), .world_size = 2, .job = "new"});
  const std::vector<std::string> names = harness::names_in(folder.path());
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0], "rank-00000.ring");
  EXPECT_TRUE(names[1].starts_with("rank-00001.") && names[1].ends_with(".new")) << names[1];
}

TEST(Recorder, FileThatCannotBeMadeIsAnErrorWithItsPath) {
  const harness::TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  EXPECT_ERROR(Error, Recorder({.folder = folder / "file"}), "file/rank-00000.ring");
}

}  // namespace
}  // namespace trireme::comm
