// Worlds over two real network namespaces. Label netns: root and iproute2 are needed.
#include "tests/comm/two_hosts.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/comm/transport_suite.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/comm/rendezvous/rendezvous.h"
#include "trireme/comm/shared/shm_group.h"

namespace trireme::comm {
namespace {

const std::vector<harness::ExitStatus> kBothFine = {0, 0};

WorldInfo info_of(int rank, int size, const std::string& store) {
  return {.rank = rank,
          .size = size,
          .local_rank = 0,  // nothing is decided by these two
          .local_size = size,
          .job = "two-hosts",
          .store = store,
          .is_one_host = false};
}

void check_everything(Communicator& world) {
  check_reductions(world);
  check_unsupported_pairs(world);
  check_moves(world);
  check_strided_tensors(world);
  check_point_to_point(world);
  check_any_source(world);
  check_background(world);
  check_split(world);
  check_abort(world);
  check_symmetric_memory(world);
  check_borrow(world);
  world.barrier()->wait();
}

TEST(TwoHosts, AutoIsHierarchicalOverTheNetworkBetweenThem) {
  const TwoHosts hosts;
  const std::string store = "tcp://" + hosts.address(0) + ":29500";
  EXPECT_EQ(hosts.run({2, 2},
                      [&](int rank) {
                        const auto world = connect_world(info_of(rank, 4, store), "auto");
                        EXPECT_EQ(
                            transport_of(*world),
                            concat("hierarchical(shared memory, gloo over ", TwoHosts::kInterface,
                                   " (", hosts.address(rank / 2), "))"));
                        check_everything(*world);
                      }),
            kBothFine);
}

TEST(TwoHosts, UnevenHostsDoEverythingToo) {
  const TwoHosts hosts;
  const std::string store = "tcp://" + hosts.address(0) + ":29500";
  EXPECT_EQ(hosts.run({1, 2},
                      [&](int rank) {
                        check_everything(*connect_world(info_of(rank, 3, store), "hierarchical"));
                      }),
            kBothFine);
}

TEST(TwoHosts, GlooConnectsThemByNameAndOverANamedInterface) {
  const TwoHosts hosts;
  const harness::TemporaryFolder folder;
  EXPECT_EQ(hosts.run({1, 1},
                      [&](int rank) {
                        WorldInfo info = info_of(rank, 2, "file:" + (folder / "store").string());
                        info.interface = TwoHosts::kInterface;
                        const auto world = connect_world(info, "gloo");
                        EXPECT_EQ(transport_of(*world), concat("gloo over ", TwoHosts::kInterface,
                                                               " (", hosts.address(rank), ")"));
                        check_everything(*world);
                      }),
            kBothFine);
}

TEST(TwoHosts, WhatCannotConnectThemIsTheSameConfigErrorOnAllRanks) {
  const TwoHosts hosts;
  const harness::TemporaryFolder folder;
  EXPECT_EQ(
      hosts.run({1, 2},
                [&](int rank) {
                  const auto info = [&](const std::string& name) {
                    return info_of(rank, 3, "file:" + (folder / name).string());
                  };
                  EXPECT_ERROR(ConfigError, connect_world(info("a"), "shm"),
                               "transport \"shm\" connects the ranks of one host, and these are "
                               "on 2; expected auto, hierarchical or gloo");
                  EXPECT_ERROR(ConfigError, connect_world(info("b"), "auto"),
                               "which names no network; set GLOO_SOCKET_IFNAME");
                  WorldInfo over_loopback = info("c");
                  over_loopback.interface = "lo";
                  EXPECT_ERROR(ConfigError, connect_world(over_loopback, "auto"),
                               "rank 0 would use interface lo (127.0.0.1), which the other hosts "
                               "do not reach");
                }),
      kBothFine);
}

// Each host's /dev/shm is a tmpfs of its own, so it can be filled without harm to anyone.
TEST(TwoHosts, AFullSharedMemoryIsAConfigErrorThatSaysHowMuchIsNeeded) {
  const TwoHosts hosts;
  EXPECT_EQ(hosts.run({1, 1},
                      [&](int) {
                        std::ofstream hog("/dev/shm/hog", std::ios::binary);
                        const std::string megabyte(1 << 20, 'x');
                        while (hog.write(megabyte.data(), 1 << 20).flush()) {
                        }
                        EXPECT_ERROR(ConfigError, make_shm_group("crew", 0, 1),
                                     "/dev/shm is too small: this group needs ");
                        hog.close();
                        std::filesystem::resize_file("/dev/shm/hog", 200 << 20);
                        const auto group = make_shm_group("crew", 0, 1);
                        EXPECT_ERROR(ConfigError, group->symmetric_empty({100 << 20}, at::kByte),
                                     "/dev/shm is too small");
                        // What does not fit is refused; what does still works.
                        at::Tensor data = group->symmetric_empty({1 << 20}, at::kByte);
                        data.fill_(1);
                        group->all_reduce(data)->wait();
                      }),
            kBothFine);
}

// Every rank but `victim` gets a CommError after `disaster` struck between two all-reduces.
void expect_loss(const TwoHosts& hosts, int victim, const std::function<void()>& disaster,
                 std::chrono::milliseconds timeout) {
  const std::string store = "tcp://" + hosts.address(0) + ":29500";
  EXPECT_EQ(hosts.run({2, 2},
                      [&](int rank) {
                        const auto world = connect_world(info_of(rank, 4, store), "auto");
                        at::Tensor data = at::ones({100000});
                        world->all_reduce(data)->wait();
                        if (rank == victim) disaster();
                        EXPECT_ERROR(CommError, world->all_reduce(data, {.timeout = timeout}),
                                     "#2 of group world (rank ");
                      }),
            kBothFine);
}

TEST(TwoHosts, AKilledRankIsACommErrorOnBothHosts) {
  const TwoHosts hosts;
  expect_loss(
      hosts, 3, [] { raise(SIGKILL); }, std::chrono::minutes(5));
}

TEST(TwoHosts, ACutCableIsACommErrorAtTheTimeout) {
  const TwoHosts hosts;
  expect_loss(
      hosts, 0,
      [] {
        const std::string cut = concat("ip link set ", TwoHosts::kInterface, " down");
        ASSERT_EQ(std::system(cut.c_str()), 0);
      },
      std::chrono::milliseconds(1500));
}

}  // namespace
}  // namespace trireme::comm
