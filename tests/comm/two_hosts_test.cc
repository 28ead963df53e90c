// Worlds over two real network namespaces. Label netns: root and iproute2 are needed.
#include "tests/comm/two_hosts.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tests/comm/errors.h"
#include "tests/comm/recording_suite.h"
#include "tests/comm/rendezvous/sockets.h"
#include "tests/comm/transport_suite.h"
#include "tests/comm/two_jobs.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/comm/recorder/recorder.h"
#include "trireme/comm/rendezvous/rendezvous.h"
#include "trireme/comm/shared/shm_group.h"

namespace trireme::comm {
namespace {

const std::vector<harness::ExitStatus> kBothFine = {0, 0};

// Their stores are reached over a network.
const bool has_token = setenv("TRIREME_TOKEN", "three banks of oars", 1) == 0;

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
  check_refused_calls(world);
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
  check_recording(world);
  check_recorded_failures(world);
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

// As two containers with --ipc=host and a network each: the same address, another store.
TEST(TwoHosts, JobsWithOneAddressInTwoNetworksNeverShareMemory) {
  const TwoHosts hosts(TwoHosts::Memory::kShared);
  for (const StartOrder& order : every_start_order()) {
    Turns turns;
    EXPECT_EQ(hosts.run({2, 2},
                        [&](int process) {
                          const int job = process / 2;
                          turns.wait(order, process, std::chrono::milliseconds(10));
                          expect_own_job(info_of(process % 2, 2, "tcp://127.0.0.1:29500"), job);
                        }),
              kBothFine)
        << "order " << order[0] << order[1] << order[2] << order[3];
  }
}

// The local addresses of this network namespace's listening TCP sockets, as the kernel prints them.
std::vector<std::string> listening_addresses() {
  std::vector<std::string> addresses;
  for (const char* path : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
      char address[33], state[3];
      if (std::sscanf(line.c_str(), " %*d: %32[0-9A-F]:%*x %*32[0-9A-F]:%*x %2s", address, state) ==
              2 &&
          std::string(state) == "0A") {
        addresses.push_back(address);
      }
    }
  }
  return addresses;
}

TEST(TwoHosts, StoreAndGlooListenOnTheInterfaceAskedForAlone) {
  const TwoHosts hosts;
  const std::string store = "tcp://" + hosts.address(0) + ":29500";
  EXPECT_EQ(hosts.run({1, 1},
                      [&](int rank) {
                        Rendezvous rendezvous(info_of(rank, 2, store));
                        const auto world = rendezvous.connect("gloo");
                        const std::string mine = concat("0", rank + 1, "4DE70A");  // 10.231.77.x
                        const auto addresses = listening_addresses();
                        EXPECT_GE(addresses.size(), rank == 0 ? 2u : 1u) << "the store, and Gloo";
                        for (const std::string& each : addresses) EXPECT_EQ(each, mine);
                        world->barrier()->wait();
                      }),
            kBothFine);
}

TEST(TwoHosts, AStoreOnLoopbackIsOutOfReachOfTheOtherHost) {
  const TwoHosts hosts;
  const harness::TemporaryFolder folder;
  const auto wait_for = [&](const char* name) {
    while (!std::filesystem::exists(folder / name)) usleep(1000);
  };
  EXPECT_EQ(
      hosts.run({1, 1},
                [&](int rank) {
                  if (rank == 0) {
                    const auto store = Rendezvous(info_of(0, 1, "tcp://127.0.0.1:29500")).store();
                    std::ofstream(folder / "listening");
                    wait_for("tried");
                    return;
                  }
                  wait_for("listening");
                  std::string problem;
                  const TcpAddress address{hosts.address(0), 29500};
                  EXPECT_FALSE(connect_to(resolve(address), in_seconds(20), problem).is_open());
                  EXPECT_EQ(problem, "Connection refused");
                  std::ofstream(folder / "tried");
                }),
      kBothFine);
}

TEST(TwoHosts, ARankOfAnotherHostWithoutTheTokenDoesNotJoin) {
  const TwoHosts hosts;
  const std::string store = "tcp://" + hosts.address(0) + ":29500";
  const auto rank_zero = [&] {
    std::promise<std::string> told;
    Rendezvous rendezvous(info_of(0, 2, store),
                          {.on_refused = [&](const std::string& line) { told.set_value(line); }});
    rendezvous.store();
    const std::string refused = hosts.address(1) + ": wrong token";
    EXPECT_EQ(told.get_future().get(), "refused a connection from " + refused);
    GroupOptions options;
    options.timeout = std::chrono::milliseconds(300);
    EXPECT_ERROR(
        CommError, rendezvous.connect("auto", options),
        concat("these ranks did not come within 0.3 s: 1; 1 connection was refused: 1 from ",
               hosts.address(1), " (wrong token)"));
  };
  const auto rank_one = [&] {
    setenv("TRIREME_TOKEN", "two banks of oars", 1);
    EXPECT_ERROR(ConfigError, connect_world(info_of(1, 2, store), "auto"),
                 "refuses rank 1: its token is a different one");
    unsetenv("TRIREME_TOKEN");
    EXPECT_ERROR(ConfigError, connect_world(info_of(1, 2, store), "auto"),
                 "this job has no token to keep strangers out");
  };
  EXPECT_EQ(hosts.run({1, 1}, [&](int rank) { rank == 0 ? rank_zero() : rank_one(); }), kBothFine);
}

// What its calls do within and across hosts is part of them, and told of once.
TEST(TwoHosts, CallsOfTheWholeAreRecordedAndNotThoseOfItsParts) {
  const TwoHosts hosts;
  const std::string store = "tcp://" + hosts.address(0) + ":29500";
  EXPECT_EQ(
      hosts.run({2, 2},
                [&](int rank) {
                  const auto recorder =
                      std::make_shared<Recorder>(RecorderOptions{.rank = rank, .world_size = 4});
                  const auto world =
                      connect_world(info_of(rank, 4, store), "auto", {.recorder = recorder});
                  world->all_reduce(at::ones({3}))->wait();
                  world->split(rank / 2, 0, "host")->barrier()->wait();
                  const Ring ring = recorder->snapshot();
                  std::vector<std::string> calls;
                  for (const Record& record : ring.records) {
                    calls.push_back(ring.groups.at(record.group).name + " " + record.operation);
                  }
                  EXPECT_EQ(calls, (std::vector<std::string>{"world join", "world all_reduce",
                                                             "world all_gather", "host join",
                                                             "host barrier"}));
                  EXPECT_EQ(ring.groups.size(), 2u);
                  EXPECT_EQ(ring.groups.back().world_ranks,
                            (std::vector<int>{rank / 2 * 2, rank / 2 * 2 + 1}));
                  world->barrier()->wait();
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
                               "cannot reach");
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
