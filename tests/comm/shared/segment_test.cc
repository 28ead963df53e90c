#include "trireme/comm/shared/segment.h"

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/comm/errors.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

constexpr size_t kSegmentBytes = 8192;
constexpr SegmentSize kSegmentSize{kSegmentBytes};

std::string path_of(const std::string& job) { return "/dev/shm/trireme-" + job; }

// A file in /dev/shm that is gone at the end. A byte is locked, so that the sweep of a test that
// runs at the same time leaves it alone.
class ForeignFile {
 public:
  ForeignFile(std::string path, size_t num_bytes, off_t locked_byte = 5) : path_(std::move(path)) {
    std::ofstream(path_) << std::string(num_bytes, 'x');
    std::filesystem::permissions(path_, std::filesystem::perms(0600));
    descriptor_ = open(path_.c_str(), O_RDWR);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_start = locked_byte;
    lock.l_len = 1;
    fcntl(descriptor_, F_OFD_SETLK, &lock);
  }
  ~ForeignFile() {
    std::filesystem::remove(path_);
    close(descriptor_);
  }

 private:
  std::string path_;
  int descriptor_;
};

// A process that creates `job` as rank 0, says so, and is then killed or waits to be killed.
class Creator {
 public:
  explicit Creator(const std::string& job) {
    int ready[2];
    if (pipe(ready) != 0) throw std::runtime_error("no pipe");
    child_ = fork();
    if (child_ == 0) {
      const auto segment = make_shm_segments()->create(job, 0, kSegmentSize);
      if (write(ready[1], "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    char byte;
    close(ready[1]);
    created_ = read(ready[0], &byte, 1) == 1;
    close(ready[0]);
  }
  ~Creator() { kill_now(); }
  bool created() const { return created_; }
  void kill_now() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = 0;
  }

 private:
  pid_t child_ = 0;
  bool created_ = false;
};

TEST(ThreadSegments, RanksSeeTheSameZeroedBytes) {
  const auto segments = make_thread_segments();
  EXPECT_EQ(segments->open("a", 1, kSegmentSize), nullptr);
  const auto created = segments->create("a", 0, kSegmentSize);
  const auto opened = segments->open("a", 1, kSegmentSize);
  ASSERT_NE(opened, nullptr);
  EXPECT_EQ(static_cast<int>(created->data()[kSegmentBytes - 1]), 0);
  created->data()[5] = std::byte{7};
  EXPECT_EQ(static_cast<int>(opened->data()[5]), 7);
  EXPECT_TRUE(created->is_alive(1));
}

TEST(ThreadSegments, NameIsFreeAgainWhenAllHaveLetGo) {
  const auto segments = make_thread_segments();
  auto created = segments->create("a", 0, kSegmentSize);
  EXPECT_ERROR(ConfigError, segments->create("a", 0, kSegmentSize), "in use");
  EXPECT_ERROR(ConfigError, segments->open("a", 1, {2 * kSegmentBytes}),
               "8192 bytes, expected 16384");
  created.reset();
  EXPECT_NE(segments->create("a", 0, kSegmentSize), nullptr);
}

TEST(ThreadSegments, FactoriesAreNamespacesOfTheirOwn) {
  const auto one = make_thread_segments();
  const auto created = one->create("a", 0, kSegmentSize);
  EXPECT_EQ(make_thread_segments()->open("a", 1, kSegmentSize), nullptr);
}

TEST(ShmSegments, RanksSeeTheSameZeroedBytes) {
  const std::string job = harness::unique_job();
  const auto segments = make_shm_segments();
  EXPECT_EQ(segments->open(job, 1, kSegmentSize), nullptr);
  const auto created = segments->create(job, 0, kSegmentSize);
  const auto opened = segments->open(job, 1, kSegmentSize);
  ASSERT_NE(opened, nullptr);
  EXPECT_EQ(static_cast<int>(opened->data()[kSegmentBytes - 1]), 0);
  created->data()[5] = std::byte{7};
  EXPECT_EQ(static_cast<int>(opened->data()[5]), 7);
}

TEST(ShmSegments, LivenessFollowsTheAttachedRank) {
  const std::string job = harness::unique_job();
  const auto segments = make_shm_segments();
  const auto created = segments->create(job, 0, kSegmentSize);
  EXPECT_FALSE(created->is_alive(1));
  auto opened = segments->open(job, 1, kSegmentSize);
  EXPECT_TRUE(created->is_alive(1));
  EXPECT_TRUE(opened->is_alive(0));
  opened.reset();
  EXPECT_FALSE(created->is_alive(1));
}

TEST(ShmSegments, RefuseAnotherSizeTakenNamesAndTakenRanks) {
  const std::string job = harness::unique_job();
  const auto segments = make_shm_segments();
  const auto created = segments->create(job, 0, kSegmentSize);
  EXPECT_ERROR(ConfigError, segments->open(job, 1, {2 * kSegmentBytes}),
               "8192 bytes, expected 16384");
  EXPECT_ERROR(ConfigError, segments->create(job, 0, kSegmentSize), "is in use by another job");
  const auto opened = segments->open(job, 1, kSegmentSize);
  EXPECT_ERROR(ConfigError, segments->open(job, 1, kSegmentSize), "another process is that rank");
  EXPECT_NE(segments->open(job, 2, kSegmentSize), nullptr);  // the name survived the failed create
}

TEST(ShmSegments, SealTakesTheNameAwayAndKeepsTheBytes) {
  const std::string job = harness::unique_job();
  const auto created = make_shm_segments()->create(job, 0, kSegmentSize);
  const auto opened = make_shm_segments()->open(job, 1, kSegmentSize);
  EXPECT_TRUE(std::filesystem::exists(path_of(job)));
  created->seal();
  EXPECT_FALSE(std::filesystem::exists(path_of(job)));
  created->data()[0] = std::byte{9};
  EXPECT_EQ(static_cast<int>(opened->data()[0]), 9);
}

TEST(ShmSegments, UnsealedNameGoesWithItsCreator) {
  const std::string job = harness::unique_job();
  auto created = make_shm_segments()->create(job, 0, kSegmentSize);
  auto opened = make_shm_segments()->open(job, 1, kSegmentSize);
  opened.reset();
  EXPECT_TRUE(std::filesystem::exists(path_of(job)));
  created.reset();
  EXPECT_FALSE(std::filesystem::exists(path_of(job)));
}

TEST(ShmSegments, AskingForMoreThanThereIsSaysHowMuchIsFree) {
  struct statvfs status {};
  ASSERT_EQ(statvfs("/dev/shm", &status), 0);
  const std::string job = harness::unique_job();
  const size_t too_many = (static_cast<size_t>(status.f_blocks) + (1 << 20)) * status.f_frsize;
  EXPECT_ERROR(ConfigError, make_shm_segments()->create(job, 0, {too_many}),
               "/dev/shm is too small: this group needs ");
  EXPECT_FALSE(std::filesystem::exists(path_of(job)));
}

TEST(ShmSegments, ForeignFileWithoutALivingCreatorIsNotJoined) {
  const std::string job = harness::unique_job();
  const ForeignFile foreign(path_of(job), kSegmentBytes);
  EXPECT_EQ(make_shm_segments()->open(job, 1, kSegmentSize), nullptr);
  EXPECT_ERROR(ConfigError, make_shm_segments()->create(job, 0, kSegmentSize), "in use");
}

TEST(ShmSegments, ForeignOrDamagedFileOfALivingProcessIsRefused) {
  const std::string job = harness::unique_job();
  const ForeignFile foreign(path_of(job), kSegmentBytes, /*locked_byte=*/0);
  EXPECT_ERROR(ConfigError, make_shm_segments()->open(job, 1, kSegmentSize),
               "is not shared memory of this version");
  const std::string other = harness::unique_job();
  const auto created = make_shm_segments()->create(other, 0, kSegmentSize);
  std::filesystem::resize_file(path_of(other), kSegmentBytes + 100);
  EXPECT_ERROR(ConfigError, make_shm_segments()->open(other, 1, kSegmentSize), "is damaged");
}

// Takes away at the end what a test has put into /dev/shm.
class Removed {
 public:
  explicit Removed(std::string path) : path_(std::move(path)) {}
  ~Removed() { std::filesystem::remove(path_); }

 private:
  std::string path_;
};

// What is no file of this user's alone: refused by those who join, left alone by the sweep.
void expect_untouched(const std::string& job, const std::string& reason) {
  EXPECT_ERROR(ConfigError, make_shm_segments()->open(job, 1, kSegmentSize), reason);
  EXPECT_ERROR(ConfigError, make_shm_segments()->create(job, 0, kSegmentSize), "in use");
  sweep_orphans();
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::symlink_status(path_of(job))));
}

TEST(ShmSegments, ALinkIsNotFollowed) {
  const std::string job = harness::unique_job();
  const std::string other = harness::unique_job();
  const auto created =
      make_shm_segments()->create(other, 0, kSegmentSize);  // all is well behind it
  const Removed link(path_of(job));
  std::filesystem::create_symlink(path_of(other), path_of(job));
  expect_untouched(job, "is not a regular file");
  const std::string nowhere = harness::unique_job();
  const Removed dangling(path_of(nowhere));
  std::filesystem::create_symlink("/nowhere", path_of(nowhere));
  expect_untouched(nowhere, "is not a regular file");
}

TEST(ShmSegments, AFifoIsRefusedWithoutWaiting) {
  const std::string job = harness::unique_job();
  const Removed fifo(path_of(job));
  ASSERT_EQ(mkfifo(path_of(job).c_str(), 0600), 0);
  expect_untouched(job, "is not a regular file");
}

TEST(ShmSegments, AFolderIsRefused) {
  const std::string job = harness::unique_job();
  const Removed folder(path_of(job));
  std::filesystem::create_directory(path_of(job));
  expect_untouched(job, "is not a regular file");
}

TEST(ShmSegments, AFileThatOthersMayWriteIsRefused) {
  const std::string job = harness::unique_job();
  const auto created = make_shm_segments()->create(job, 0, kSegmentSize);
  for (const int mode : {0620, 0602, 0640, 0604}) {
    std::filesystem::permissions(path_of(job), std::filesystem::perms(mode));
    expect_untouched(job, concat("is open to other users (mode ", std::oct, mode));
  }
  std::filesystem::permissions(path_of(job), std::filesystem::perms(0600));
  EXPECT_NE(make_shm_segments()->open(job, 1, kSegmentSize), nullptr);
}

TEST(ShmSegments, AHeaderWithSizesThatOverflowIsRefused) {
  const std::string job = harness::unique_job();
  const auto created = make_shm_segments()->create(job, 0, kSegmentSize);
  const uint64_t sizes[] = {~uint64_t{0} - 4095,
                            kSegmentBytes + 4096};  // their sum is that of kSegmentSize
  std::fstream file(path_of(job), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(sizeof(uint64_t)).write(reinterpret_cast<const char*>(sizes), sizeof(sizes)).flush();
  EXPECT_ERROR(ConfigError, make_shm_segments()->open(job, 1, kSegmentSize), "expected 8192");
}

TEST(ShmSegments, ReservableBytesAreBoundedAndFollowTheLimits) {
  EXPECT_LE(reservable_bytes(), size_t{2} << 40);
  for (const auto resource : {RLIMIT_AS, RLIMIT_FSIZE}) {
    const auto statuses = harness::fork_processes(1, [&](int) {
      const rlimit limit{size_t{32} << 30, size_t{32} << 30};
      setrlimit(resource, &limit);
      EXPECT_EQ(reservable_bytes(), size_t{16} << 30);
    });
    EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0}));
  }
}

TEST(ShmSegments, ReservedPartTakesMemoryOnlyWhenCommitted) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer leaves no terabyte of addresses";
#endif
  const std::string job = harness::unique_job();
  const SegmentSize size{4096, size_t{1} << 40};  // more than any host has
  const auto created = make_shm_segments()->create(job, 0, size);
  const auto opened = make_shm_segments()->open(job, 1, size);
  const auto blocks = [&] {
    struct stat status {};
    EXPECT_EQ(stat(path_of(job).c_str(), &status), 0);
    return status.st_blocks * 512;
  };
  EXPECT_LE(blocks(), 3 * 4096);
  created->commit(size_t{1} << 39, 65536);
  EXPECT_GE(blocks(), 65536);
  created->data()[(size_t{1} << 39) + 65535] = std::byte{3};
  EXPECT_EQ(static_cast<int>(opened->data()[(size_t{1} << 39) + 65535]), 3);
  EXPECT_ERROR(ConfigError, opened->commit(4096, size_t{1} << 40), "/dev/shm is too small");
}

TEST(ShmSegments, WhatADeadCreatorLeftIsNotJoinedAndIsSwept) {
  const std::string job = harness::unique_job();
  Creator creator(job);
  ASSERT_TRUE(creator.created());
  sweep_orphans();
  EXPECT_TRUE(std::filesystem::exists(path_of(job))) << "a live segment was swept";
  EXPECT_NE(make_shm_segments()->open(job, 1, kSegmentSize), nullptr);
  creator.kill_now();
  EXPECT_EQ(make_shm_segments()->open(job, 1, kSegmentSize), nullptr);
  sweep_orphans();
  EXPECT_FALSE(std::filesystem::exists(path_of(job)));
}

// A rank that has forked a worker, which outlives it.
TEST(ShmSegments, AForkedChildOfTheDeadDoesNotPassForThem) {
  const std::string job = harness::unique_job();
  int ready[2], end[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(end), 0);
  const pid_t rank = fork();
  if (rank == 0) {
    const auto segment = make_shm_segments()->create(job, 0, kSegmentSize);
    const pid_t worker = fork();
    if (worker == 0) {
      close(end[1]);
      // It still has the memory, of which its parent's peers see what it writes.
      segment->data()[0] = std::byte{7};
      if (write(ready[1], "x", 1) != 1) _exit(1);
      char byte;
      _exit(read(end[0], &byte, 1) == 0 ? 0 : 1);  // until the test lets go of it
    }
    close(end[1]);
    for (;;) pause();
  }
  close(end[0]);
  close(ready[1]);
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const auto opened = make_shm_segments()->open(job, 1, kSegmentSize);
  ASSERT_NE(opened, nullptr);
  EXPECT_TRUE(opened->is_alive(0));
  kill(rank, SIGKILL);
  waitpid(rank, nullptr, 0);
  EXPECT_FALSE(opened->is_alive(0));
  EXPECT_EQ(static_cast<int>(opened->data()[0]), 7);
  opened->seal();
  close(end[1]);
  EXPECT_EQ(read(ready[0], &byte, 1), 0) << "the worker is still there";  // closed by its end
  close(ready[0]);
}

TEST(ShmSegments, OrphanIsKeptWhileAnotherRankLives) {
  const std::string job = harness::unique_job();
  Creator creator(job);
  auto opened = make_shm_segments()->open(job, 3, kSegmentSize);
  creator.kill_now();
  sweep_orphans();
  EXPECT_TRUE(std::filesystem::exists(path_of(job)));
  opened.reset();
  sweep_orphans();
  EXPECT_FALSE(std::filesystem::exists(path_of(job)));
}

TEST(ShmSegments, SweepLeavesFilesWithItsPrefixThatAreNotItsOwn) {
  const std::string path = path_of(harness::unique_job());
  std::ofstream(path) << std::string(kSegmentBytes, 'x');
  sweep_orphans();
  EXPECT_TRUE(std::filesystem::remove(path));
}

TEST(ShmSegments, SweepLeavesOtherFilesAlone) {
  const std::string path = "/dev/shm/other-" + harness::unique_job();
  std::ofstream(path) << "x";
  sweep_orphans();
  EXPECT_TRUE(std::filesystem::remove(path));
}

}  // namespace
}  // namespace trireme::comm
