#include "trireme/parallel/server/director.h"

#include <atomic>
#include <exception>
#include <thread>

#include <gtest/gtest.h>

#include "tests/parallel/server/cluster.h"
#include "trireme/base/error.h"
#include "trireme/parallel/server/link/hub.h"
#include "trireme/parallel/server/run_identity.h"

namespace trireme::parallel::server_test {
namespace {

TEST(Director, CountsWhoComesAndGoes) {
  Cluster cluster({.servers = 2, .workers = 2, .copies = 2, .staleness = 3});
  cluster.run_workers([&](uint32_t worker, ServerClient& client) {
    if (worker == 0) {
      const DirectorCounts counts = cluster.director().counts();
      EXPECT_EQ(counts.servers, 2);
      EXPECT_TRUE(counts.is_whole);
    }
    train(client, worker, cluster.empty_weights(), 1, 2);
  });
  Cluster::eventually([&] { return cluster.director().counts().workers == 0; }, "both leave");
  EXPECT_EQ(cluster.director().counts().workers_lost, 0);
  cluster.remove_server(0);
  Cluster::eventually([&] { return cluster.director().counts().servers_lost == 1; },
                      "a server is lost");
  EXPECT_FALSE(cluster.director().counts().is_whole);
  cluster.add_server();
  Cluster::eventually([&] { return cluster.director().counts().is_whole; }, "a spare is filled");
}

TEST(Director, SaysWhoHasNotCome) {
  Cluster cluster({.servers = 1, .workers = 2, .timeout = std::chrono::milliseconds(300)});
  try {
    cluster.connect(0);
    FAIL() << "began without worker 1";
  } catch (const CommError& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
  try {
    cluster.server(0).wait_for(std::chrono::seconds(20));
    FAIL() << "served without worker 1";
  } catch (const CommError& error) {
    EXPECT_NE(std::string(error.what()).find("of 2 workers"), std::string::npos) << error.what();
  }
}

// Registers an address that no view can hold.
class BadServer final : public HubEvents {
 public:
  BadServer(const ServerRun& run, const std::string& director)
      : hub_(hub_options(run, Role::kServer), *this) {
    hub_.start();
    hub_.post([this, director] { hub_.connect(director, 0); });
  }
  ~BadServer() override { hub_.stop(); }

  void on_open(PeerId peer, Role, uint32_t) override {
    hub_.send(peer, {{.kind = FrameKind::kRegister}, bytes_of("tcp://\xff\xfe")});
  }
  void on_frame(PeerId, Frame) override {}
  void on_closed(PeerId, const std::string&) override { is_closed = true; }
  void on_tick() override {}
  void on_failed(std::exception_ptr) override {}

  std::atomic<bool> is_closed = false;

 private:
  Hub hub_;
};

TEST(Director, DropsAServerWithoutAnAddressAndGoesOn) {
  Cluster cluster({.servers = 1, .workers = 1});
  const BadServer bad(cluster.run(), cluster.director().address());
  Cluster::eventually([&] { return bad.is_closed.load(); }, "the director drops it");
  cluster.run_workers([&](uint32_t worker, ServerClient& client) {
    train(client, worker, cluster.empty_weights(), 1, 2);
  });
}

TEST(Director, RefusesCopiesWithoutServers) {
  ServerRun run;
  run.copies = 2;
  EXPECT_THROW(Director(run, {}), ConfigError);
  run.copies = 1;
  EXPECT_THROW(Director(run, {.workers = 0}), ConfigError);
  EXPECT_THROW(Director(run, {.host = "192.0.2.1"}), ConfigError);
}

}  // namespace
}  // namespace trireme::parallel::server_test
