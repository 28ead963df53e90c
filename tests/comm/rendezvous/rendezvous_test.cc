#include "trireme/comm/rendezvous/rendezvous.h"

#include <fstream>
#include <future>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tests/comm/errors.h"
#include "tests/comm/rendezvous/sockets.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/comm/c10d/gloo_group.h"
#include "trireme/comm/c10d/nccl_group.h"
#include "trireme/comm/device/cuda_ipc_group.h"

namespace trireme::comm {
namespace {

WorldInfo world_info_of(int rank, int size, const std::string& store) {
  return {.rank = rank,
          .size = size,
          .local_rank = rank,
          .local_size = size,
          .job = "test-" + std::to_string(getppid()),
          .store = store,
          .is_one_host = false};
}

// Every rank of a world over `store` and `transport`, as a process, adds ones.
void expect_world(const std::string& store, const std::string& transport,
                  const std::string& runs_on) {
  const auto statuses = harness::fork_processes(3, [&](int rank) {
    const auto world = connect_world(world_info_of(rank, 3, store), transport);
    EXPECT_EQ(world->rank(), rank);
    EXPECT_EQ(transport_of(*world), runs_on);
    at::Tensor data = at::ones({4});
    world->all_reduce(data)->wait();
    EXPECT_EQ(data[3].item<float>(), 3);
    world->barrier()->wait();
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0, 0, 0}));
}

TEST(Rendezvous, OffersTransportsOfGpusWhereTheBuildHasThem) {
  const std::tuple<std::string, bool, std::string> transports[] = {
      {"nccl", has_nccl(), "this build has no NCCL"},
      {"cuda-ipc", has_cuda_ipc(), "this build's libtorch has no CUDA"}};
  for (const auto& [transport, is_there, refusal] : transports) {
    const harness::TemporaryFolder folder;
    std::string error;
    try {
      connect_world(world_info_of(0, 1, "file:" + (folder / "store").string()), transport);
    } catch (const std::exception& caught) {  // CUDA's own, on a machine without a GPU
      error = caught.what();
    }
    EXPECT_EQ(contains(error, refusal), !is_there) << error;
  }
}

TEST(Rendezvous, ConnectsAWorldOfOneHostWithoutAStore) {
  const WorldInfo info{0, 1, 0, 1, harness::unique_job()};
  EXPECT_EQ(connect_world(info, "auto")->size(), 1);
  EXPECT_EQ(transport_of(*connect_world(info, "shm")), "shared memory");
}

TEST(Rendezvous, ConnectsOverATcpStore) {
  for (const std::string transport : {"auto", "shm", "hierarchical"}) {
    Port port;
    const std::string store = concat("tcp://127.0.0.1:", port.number());
    port.release();
    expect_world(store, transport, "shared memory");
  }
}

TEST(Rendezvous, ConnectsOverAFileStore) {
  const harness::TemporaryFolder folder;
  expect_world("file:" + (folder / "store").string(), "auto", "shared memory");
}

TEST(Rendezvous, RefusesUnknownTransportsAndWorldsThatCannotMeet) {
  const WorldInfo info{0, 1, 0, 1, "galley"};
  EXPECT_ERROR(ConfigError, connect_world(info, "pigeon"), "transport \"pigeon\" is unknown");
  EXPECT_ERROR(ConfigError, connect_world(info, "gloo"), "no store to meet over; set MASTER_ADDR");
  const WorldInfo spread{0, 4, 0, 2, "galley"};
  EXPECT_ERROR(ConfigError, connect_world(spread, "auto"), "has 4 ranks, of which 2 on this host");
  EXPECT_ERROR(ConfigError, Rendezvous(world_info_of(0, 1, "tcp://127.0.0.1:port")).store(),
               "expected tcp://HOST:PORT");
}

TEST(Rendezvous, AgreesOnANameThatIsNoOtherJobs) {
  const harness::TemporaryFolder folder;
  const std::string store = "file:" + (folder / "store").string();
  const auto job_of = [&](int round) {
    const harness::TemporaryFolder names;
    const auto write = [&](int rank) {
      Rendezvous rendezvous(world_info_of(rank, 2, store));
      const std::string job = rendezvous.job("auto");
      EXPECT_EQ(rendezvous.job("gloo"), job) << "once and for all";
      std::ofstream(names / std::to_string(rank)) << job;
      rendezvous.connect("auto")->barrier()->wait();
    };
    EXPECT_EQ(harness::fork_processes(2, write), (std::vector<harness::ExitStatus>{0, 0})) << round;
    EXPECT_EQ(read_file(names / "0"), read_file(names / "1"));
    return read_file(names / "0");
  };
  const std::string first = job_of(0);
  EXPECT_GE(first.size(), 32u);
  EXPECT_NE(job_of(1), first) << "through the same file";
  // mpirun's ranks meet without a store, and those of one launch under its name.
  EXPECT_EQ(Rendezvous(world_info_of(0, 2, store)).job("mpi"), world_info_of(0, 2, store).job);
  EXPECT_EQ(Rendezvous({0, 1, 0, 1, "galley"}).job("auto"), "galley");
}

TEST(Rendezvous, ConnectsOneWorldAfterTheOther) {
  Port port;
  const std::string store = concat("tcp://127.0.0.1:", port.number());
  port.release();
  EXPECT_EQ(harness::fork_processes(3,
                                    [&](int rank) {
                                      Rendezvous rendezvous(world_info_of(rank, 3, store));
                                      for (int round = 0; round < 4; ++round) {
                                        const auto world = rendezvous.connect("auto");
                                        at::Tensor data = at::ones({4});
                                        world->all_reduce(data)->wait();
                                        EXPECT_EQ(data[3].item<float>(), 3);
                                      }
                                    }),
            (std::vector<harness::ExitStatus>{0, 0, 0}));
}

TEST(Rendezvous, RanksThatNeverComeAreNamed) {
  const harness::TemporaryFolder folder;
  GroupOptions options;
  options.timeout = std::chrono::milliseconds(200);
  EXPECT_ERROR(
      CommError,
      connect_world(world_info_of(1, 3, "file:" + (folder / "store").string()), "auto", options),
      "rank 1 of 3: these ranks did not come within 0.2 s: 0 2");
}

TEST(Rendezvous, WhoWasRefusedIsInTheErrorOfRanksThatNeverCame) {
  Port port;
  const TcpAddress address = port.address();
  const auto info = world_info_of(0, 2, concat("tcp://127.0.0.1:", port.number()));
  port.release();
  std::promise<std::string> told;
  Rendezvous rendezvous(info,
                        {.on_refused = [&](const std::string& line) { told.set_value(line); }});
  rendezvous.store();
  const Descriptor socket = stranger(address);
  send_all(socket.get(), "GET / HTTP/1.1\r\n\r\n", 18, in_seconds(20));
  EXPECT_EQ(told.get_future().get(), "refused a connection from 127.0.0.1: is not a Trireme rank");
  GroupOptions options;
  options.timeout = std::chrono::milliseconds(300);
  EXPECT_ERROR(CommError, rendezvous.connect("auto", options),
               "rank 0 of 2: these ranks did not come within 0.3 s: 1; 1 connection was refused: 1 "
               "from 127.0.0.1 (is not a Trireme rank)");
}

#ifdef TRIREME_HAVE_GLOO
TEST(Rendezvous, ConnectsOverGlooByName) {
  const harness::TemporaryFolder folder;
  expect_world("file:" + (folder / "store").string(), "gloo", "gloo over lo (127.0.0.1)");
}

TEST(Rendezvous, AnInterfaceThatDoesNotExistIsTheSameConfigErrorOnAllRanks) {
  const harness::TemporaryFolder folder;
  const auto statuses = harness::fork_processes(2, [&](int rank) {
    WorldInfo info = world_info_of(rank, 2, "file:" + (folder / "store").string());
    if (rank == 1) info.interface = "oar0";
    EXPECT_ERROR(ConfigError, connect_world(info, "gloo"),
                 "rank 1: GLOO_SOCKET_IFNAME is \"oar0\"");
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0, 0}));
}
#endif

}  // namespace
}  // namespace trireme::comm
