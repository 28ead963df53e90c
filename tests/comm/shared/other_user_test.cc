// What other users of the host put into /dev/shm, and what they see there. Needs root, to be them.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/comm/errors.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"
#include "trireme/comm/shared/segment.h"
#include "trireme/comm/shared/shm_group.h"

namespace trireme::comm {
namespace {

constexpr SegmentSize kSize{8192};
constexpr uid_t kNobody = 65534;

std::string path_of(const std::string& job) { return "/dev/shm/trireme-" + job; }

void become_nobody() {
  const bool done = setgroups(0, nullptr) == 0 && setgid(kNobody) == 0 && setuid(kNobody) == 0;
  if (!done) throw Error("cannot become nobody");
}

// A process of nobody's that has run `function` and keeps what that returned until it is killed.
class Nobody {
 public:
  explicit Nobody(const std::function<std::shared_ptr<Segment>()>& function) {
    int ready[2];
    if (pipe(ready) != 0) throw Error("no pipe");
    child_ = fork();
    if (child_ == 0) {
      become_nobody();
      const auto kept = function();
      if (write(ready[1], "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    char byte;
    close(ready[1]);
    const bool is_ready = read(ready[0], &byte, 1) == 1;
    close(ready[0]);
    if (!is_ready) throw Error("nobody failed");
  }
  ~Nobody() { kill_now(); }
  void kill_now() {
    if (child_ > 0) kill(child_, SIGKILL);
    if (child_ > 0) waitpid(child_, nullptr, 0);
    child_ = 0;
  }

 private:
  pid_t child_ = 0;
};

TEST(OtherUser, ASegmentOfAnothersIsNotJoined) {
  const std::string job = harness::unique_job();
  const Nobody nobody([&] { return make_shm_segments()->create(job, 0, kSize); });
  EXPECT_ERROR(ConfigError, make_shm_segments()->open(job, 1, kSize),
               path_of(job) + " belongs to user 65534, and this process runs as user 0");
  EXPECT_ERROR(ConfigError, make_shm_group(job, 1, 2), "belongs to user 65534");
  EXPECT_ERROR(ConfigError, make_shm_group(job, 0, 2), "in use");
  std::filesystem::remove(path_of(job));
}

TEST(OtherUser, ASegmentOfRootsIsNotJoinedByAnother) {
  const std::string job = harness::unique_job();
  const auto created = make_shm_segments()->create(job, 0, kSize);
  const auto statuses = harness::fork_processes(1, [&](int) {
    become_nobody();
    EXPECT_ERROR(ConfigError, make_shm_segments()->open(job, 1, kSize), "belongs to user 0");
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0}));
}

// Nobody's whole segment behind a link of ours' name would still be nobody's.
TEST(OtherUser, ALinkToASegmentOfAnothersIsNotFollowed) {
  const std::string job = harness::unique_job();
  const std::string other = harness::unique_job();
  const Nobody nobody([&] {
    std::filesystem::create_symlink(path_of(job), path_of(other));
    return make_shm_segments()->create(job, 0, kSize);
  });
  EXPECT_ERROR(ConfigError, make_shm_segments()->open(other, 1, kSize), "is not a regular file");
  std::filesystem::remove(path_of(other));
  std::filesystem::remove(path_of(job));
}

TEST(OtherUser, TheSweepNeitherOpensNorRemovesWhatAnotherHasLeft) {
  const std::string job = harness::unique_job();
  Nobody nobody([&] { return make_shm_segments()->create(job, 0, kSize); });
  nobody.kill_now();
  const int events = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  ASSERT_GE(inotify_add_watch(events, path_of(job).c_str(), IN_OPEN | IN_DELETE_SELF), 0);
  sweep_orphans();
  char buffer[4096];
  EXPECT_EQ(read(events, buffer, sizeof(buffer)), -1) << "opened or removed";
  EXPECT_TRUE(std::filesystem::exists(path_of(job)));
  // The watch sees an open: this test can fail.
  std::ifstream(path_of(job)).get();
  EXPECT_GT(read(events, buffer, sizeof(buffer)), 0);
  close(events);
  // Its owner's sweep takes it away.
  const auto statuses = harness::fork_processes(1, [&](int) {
    become_nobody();
    EXPECT_GE(sweep_orphans(), 1);
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0}));
  EXPECT_FALSE(std::filesystem::exists(path_of(job)));
}

}  // namespace
}  // namespace trireme::comm
