// Many ranks on a host whose shared memory is large: a sparse /dev/shm of 1 TiB in a mount
// namespace of its own. Needs root.
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include "tests/comm/errors.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"
#include "trireme/comm/shared/segment.h"
#include "trireme/comm/shared/shm_group.h"

namespace trireme::comm {
namespace {

void make_large_host() {
  const bool done = unshare(CLONE_NEWNS) == 0 &&
                    mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                    mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1T") == 0;
  if (!done) throw Error("cannot mount a /dev/shm");
}

// Runs `function` on `num_ranks` processes of such a host.
void run_on_large_host(int num_ranks, const harness::RankFunction& function,
                       const GroupOptions& options) {
  const auto statuses = harness::fork_processes(1, [&](int) {
    make_large_host();
    EXPECT_EQ(shared_memory_bytes(), size_t{1} << 40);
    EXPECT_EQ(harness::fork_ranks(num_ranks, function, options),
              std::vector<harness::ExitStatus>(num_ranks, 0));
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0}));
}

TEST(LargeHost, ManyRanksStartAndShareTheirSymmetricMemory) {
  constexpr int kRanks = 127;
  GroupOptions options;
  options.slot_bytes = 16 << 10;
  run_on_large_host(
      kRanks,
      [](Communicator& group) {
        const at::Tensor data = group.symmetric_empty({1000}, at::kFloat).fill_(1);
        group.all_reduce(data)->wait();
        EXPECT_TRUE(data.eq(group.size()).all().item<bool>());
        at::Tensor token = at::full({5}, group.rank());
        const int last = (group.rank() + group.size() - 1) % group.size();
        const WorkPtr send =
            group.send(token, (group.rank() + 1) % group.size(), {.background = true});
        at::Tensor got = at::zeros({5}, at::kLong);
        group.recv(got, last)->wait();
        send->wait();
        EXPECT_TRUE(got.eq(last).all().item<bool>());
      },
      options);
}

TEST(LargeHost, AProcessHasRoomForManyGroups) {
  run_on_large_host(
      2,
      [](Communicator& world) {
        std::vector<std::unique_ptr<Communicator>> groups;
        // Groups of their own, as torch.distributed.new_group makes them.
        for (int i = 0; i < 50; ++i) {
          groups.push_back(make_shm_group(concat("g", i), world.rank(), world.size()));
        }
        for (const auto& group : groups) {
          const at::Tensor data = group->symmetric_empty({1000}, at::kFloat).fill_(1);
          group->all_reduce(data)->wait();
          EXPECT_EQ(data[0].item<float>(), 2);
        }
      },
      {});
}

TEST(LargeHost, AHeapThatIsAskedForIsTakenOrRefusedWithItsKey) {
  GroupOptions options;
  options.heap_bytes = size_t{1} << 42;  // more than the host has: address space
  run_on_large_host(
      2, [](Communicator& group) { group.barrier()->wait(); }, options);
  const auto statuses = harness::fork_processes(1, [&](int) {
    make_large_host();
    options.heap_bytes = size_t{1} << 46;
    EXPECT_ERROR(ConfigError, make_shm_group("large", 0, 2, options),
                 "parallel.heap_bytes is 70368744177664; expected at most 35184372088832 for 2");
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0}));
}

}  // namespace
}  // namespace trireme::comm
