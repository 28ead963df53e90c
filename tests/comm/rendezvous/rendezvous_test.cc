#include "trireme/comm/rendezvous/rendezvous.h"

#include <cerrno>
#include <cstring>

#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tests/comm/errors.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/comm/c10d/gloo_group.h"
#include "trireme/comm/c10d/nccl_group.h"

namespace trireme::comm {
namespace {

// A port of this host that nobody listens on, held until the end of the scope or until listen().
class Port {
 public:
  Port() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = INADDR_ANY;
    socklen_t length = sizeof(address);
    if (bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
        getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      throw Error(std::strerror(errno));
    }
    number_ = ntohs(address.sin_port);
  }
  ~Port() { release(); }
  void listen() { ::listen(fd_, 1); }
  void release() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  int number() const { return number_; }

 private:
  int fd_;
  int number_ = 0;
};

WorldInfo info_of(int rank, int size, const std::string& store) {
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
    const auto world = connect_world(info_of(rank, 3, store), transport);
    EXPECT_EQ(world->rank(), rank);
    EXPECT_EQ(transport_of(*world), runs_on);
    at::Tensor data = at::ones({4});
    world->all_reduce(data)->wait();
    EXPECT_EQ(data[3].item<float>(), 3);
    world->barrier()->wait();
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0, 0, 0}));
}

TEST(Rendezvous, OffersNcclWhereTheBuildHasIt) {
  const harness::TemporaryFolder folder;
  std::string error;
  try {
    connect_world(info_of(0, 1, "file:" + (folder / "store").string()), "nccl");
  } catch (const std::exception& caught) {  // NCCL's own, on a machine without a GPU
    error = caught.what();
  }
  EXPECT_EQ(contains(error, "this build has no NCCL"), !has_nccl()) << error;
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
  EXPECT_ERROR(ConfigError, connect_store(info_of(0, 1, "tcp://127.0.0.1:port")),
               "expected tcp://HOST:PORT");
}

TEST(Rendezvous, APortInUseIsAConfigErrorOfOneLine) {
  Port port;
  port.listen();
  const auto info = info_of(0, 1, concat("tcp://127.0.0.1:", port.number()));
  EXPECT_ERROR(ConfigError, connect_store(info),
               concat("port ", port.number(), " of this host is in use"));
}

TEST(Rendezvous, RanksThatNeverComeAreNamed) {
  const harness::TemporaryFolder folder;
  GroupOptions options;
  options.timeout = std::chrono::milliseconds(200);
  EXPECT_ERROR(CommError,
               connect_world(info_of(1, 3, "file:" + (folder / "store").string()), "auto", options),
               "rank 1 of 3: these ranks did not come within 0.2 s: 0 2");
}

TEST(Rendezvous, ALauncherMayServeTheStore) {
  Port port;
  auto info = info_of(0, 2, concat("tcp://127.0.0.1:", port.number()));
  port.release();
  const auto server = connect_store(info);
  info.launcher_serves_store = true;  // rank 0 is a client now
  const auto client = connect_store(info);
  client->set("oars", std::string("three banks"));
  EXPECT_EQ(server->get_to_str("oars"), "three banks");
}

#ifdef TRIREME_HAVE_GLOO
TEST(Rendezvous, ConnectsOverGlooByName) {
  const harness::TemporaryFolder folder;
  expect_world("file:" + (folder / "store").string(), "gloo", "gloo over lo (127.0.0.1)");
}

TEST(Rendezvous, AnInterfaceThatDoesNotExistIsTheSameConfigErrorOnAllRanks) {
  const harness::TemporaryFolder folder;
  const auto statuses = harness::fork_processes(2, [&](int rank) {
    WorldInfo info = info_of(rank, 2, "file:" + (folder / "store").string());
    if (rank == 1) info.interface = "oar0";
    EXPECT_ERROR(ConfigError, connect_world(info, "gloo"),
                 "rank 1: GLOO_SOCKET_IFNAME is \"oar0\"");
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0, 0}));
}
#endif

}  // namespace
}  // namespace trireme::comm
