// Strangers at the job's store: whatever they do, the ranks meet, and their addresses are told.
#include "trireme/comm/store/store_server.h"

#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/comm/rendezvous/sockets.h"
#include "trireme/comm/net/store_wire.h"
#include "trireme/comm/store/store_client.h"

namespace trireme::comm {
namespace {

const std::string kSecret = "three banks of oars";

// A store of two ranks at 127.0.0.1.
class Server {
 public:
  explicit Server(StoreServerOptions options = {}) {
    options.token = kSecret;
    options.job = "galley";
    options.size = 2;
    options.on_refused = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
    Port port;
    address_ = port.address();
    port.release();
    server_ = std::make_unique<StoreServer>(listen_on(resolve(address_), address_), options);
  }
  const TcpAddress& address() const { return address_; }
  StoreClientOptions rank(int rank) const {
    return {.address = address_, .token = kSecret, .job = "galley", .rank = rank, .size = 2};
  }
  // What this rank and another write and read.
  void expect_works() const {
    StoreClient first(rank(0));
    StoreClient second(rank(1));
    first.set("oars", std::string("170"));
    EXPECT_EQ(second.get_to_str("oars"), "170");
  }
  void expect_refused(const std::string& reason) const {
    const std::string expected = "1 from 127.0.0.1 (" + reason + ")";
    // Told by the server's thread, after the stranger has seen its end.
    while (num_lines() == 0) std::this_thread::yield();
    EXPECT_PRED2(contains, server_->refusals(), expected);
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(lines_, std::vector<std::string>{"refused a connection from 127.0.0.1: " + reason});
  }
  std::string refusals() const { return server_->refusals(); }

 private:
  size_t num_lines() const {
    const std::lock_guard lock(mutex_);
    return lines_.size();
  }

  TcpAddress address_;
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
  std::unique_ptr<StoreServer> server_;
};

wire::Greeting greeting_from(const Descriptor& socket) {
  wire::Greeting greeting{};
  EXPECT_TRUE(recv_all(socket.get(), &greeting, sizeof(greeting), in_seconds(20)));
  return greeting;
}

// What the server says to a hello whose proof is made with `token`.
wire::Answer introduce(const Descriptor& socket, const std::string& token, uint32_t rank = 1,
                       const std::string& job = "galley", uint32_t size = 2) {
  const wire::Greeting greeting = greeting_from(socket);
  wire::Hello hello;
  hello.rank = rank;
  hello.size = size;
  hello.job = sha256(job);
  hello.proof = wire::client_proof(token, greeting, hello);
  send_all(socket.get(), &hello, sizeof(hello), in_seconds(20));
  wire::Answer answer{};
  EXPECT_TRUE(recv_all(socket.get(), &answer, sizeof(answer), in_seconds(20)));
  return answer;
}

TEST(StoreServer, ServesTheRanksOfItsJob) {
  const Server server;
  server.expect_works();
  EXPECT_EQ(server.refusals(), "");
}

TEST(StoreServer, WithoutTheTokenNobodyJoins) {
  const Server server;
  for (const std::string token : {"", "three banks of oar", "three banks of oars "}) {
    StoreClientOptions options = server.rank(1);
    options.token = token;
    EXPECT_ERROR(ConfigError, StoreClient(options),
                 concat("127.0.0.1:", server.address().port, " refuses rank 1"));
  }
  EXPECT_EQ(server.refusals(), "3 connections were refused: 3 from 127.0.0.1 (wrong token)");
  server.expect_works();
}

TEST(StoreServer, TellsAStrangerNothingThatDependsOnTheToken) {
  const Server server;
  const Descriptor socket = stranger(server.address());
  const wire::Answer answer = introduce(socket, "a guess");
  EXPECT_EQ(answer.verdict, wire::Verdict::kWrongToken);
  EXPECT_EQ(answer.proof, Sha256{});
  EXPECT_EQ(read_to_end(socket), "") << "the connection ends";
  server.expect_refused("wrong token");
}

TEST(StoreServer, AProofThatWasHeardOnceOpensNothing) {
  const Server server;
  const Descriptor first = stranger(server.address());
  const Descriptor second = stranger(server.address());
  const wire::Greeting greeting = greeting_from(first);
  EXPECT_NE(greeting.nonce, greeting_from(second).nonce);
  wire::Hello hello;
  hello.size = 2;
  hello.job = sha256("galley");
  hello.proof = wire::client_proof(kSecret, greeting, hello);
  wire::Answer answer{};
  send_all(second.get(), &hello, sizeof(hello), in_seconds(20));
  ASSERT_TRUE(recv_all(second.get(), &answer, sizeof(answer), in_seconds(20)));
  EXPECT_EQ(answer.verdict, wire::Verdict::kWrongToken);
  send_all(first.get(), &hello, sizeof(hello), in_seconds(20));
  ASSERT_TRUE(recv_all(first.get(), &answer, sizeof(answer), in_seconds(20)));
  EXPECT_EQ(answer.verdict, wire::Verdict::kWelcome);
  EXPECT_EQ(answer.proof, wire::server_proof(kSecret, greeting, hello));
}

TEST(StoreServer, ARankOfAnotherJobIsToldSo) {
  const Server server;
  EXPECT_EQ(introduce(stranger(server.address()), kSecret, 1, "bireme").verdict,
            wire::Verdict::kOtherJob);
  EXPECT_EQ(introduce(stranger(server.address()), kSecret, 1, "galley", 3).verdict,
            wire::Verdict::kOtherSize);
  EXPECT_EQ(introduce(stranger(server.address()), kSecret, 2).verdict, wire::Verdict::kOtherSize);
  const StoreClient joined(server.rank(1));
  EXPECT_EQ(introduce(stranger(server.address()), kSecret).verdict, wire::Verdict::kRankTaken);
  // Each time as an error of the rank's own.
  StoreClientOptions other = server.rank(1);
  other.job = "bireme";
  EXPECT_ERROR(ConfigError, StoreClient(other), "is another job's; set MASTER_PORT");
  other = server.rank(1);
  other.size = 3;
  EXPECT_ERROR(ConfigError, StoreClient(other), "is of a job of another size; expected one of 3");
}

TEST(StoreServer, ARankIsFreeAgainWhenItsProcessHasGone) {
  const Server server;
  {
    const Descriptor first = stranger(server.address());
    ASSERT_EQ(introduce(first, kSecret).verdict, wire::Verdict::kWelcome);
  }
  // Its end is noticed by another thread.
  while (introduce(stranger(server.address()), kSecret).verdict != wire::Verdict::kWelcome) {
    std::this_thread::yield();
  }
}

TEST(StoreServer, GarbageEndsTheConnectionAtItsFirstByte) {
  const Server server;
  const Descriptor socket = stranger(server.address());
  send_all(socket.get(), "GET", 3, in_seconds(20));
  EXPECT_EQ(read_to_end(socket).size(), sizeof(wire::Greeting));
  server.expect_refused("is not a Trireme rank");
  server.expect_works();
}

TEST(StoreServer, WhoSaysNothingIsCutOff) {
  const Server server({.patience = std::chrono::milliseconds(100)});
  const Descriptor silent = stranger(server.address());
  const Descriptor halfway = stranger(server.address());
  send_all(halfway.get(), wire::kMagic.data(), wire::kMagic.size(), in_seconds(20));
  EXPECT_EQ(read_to_end(silent).size(), sizeof(wire::Greeting));
  EXPECT_EQ(read_to_end(halfway).size(), sizeof(wire::Greeting));
  EXPECT_EQ(server.refusals(),
            "2 connections were refused: 2 from 127.0.0.1 (did not say in time who it is)");
  server.expect_works();
}

TEST(StoreServer, WhoHangsUpIsCounted) {
  const Server server;
  { const Descriptor socket = stranger(server.address()); }
  server.expect_refused("left without saying who it is");
}

TEST(StoreServer, AFloodOfSilentConnectionsIsBoundedAndLetsRanksIn) {
  const Server server({.patience = std::chrono::minutes(10), .max_strangers = 8});
  const auto num_descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto before = num_descriptors();
  std::deque<Descriptor> flood;
  for (int i = 0; i < 200; ++i) {
    flood.push_back(stranger(server.address()));
    if (i % 20 == 0) server.expect_works();
  }
  server.expect_works();
  // Both ends are in this process; of the server's there are eight at most.
  EXPECT_LE(num_descriptors() - before, 200 + 8 + 2);
  EXPECT_PRED2(contains, server.refusals(), "too many connections at once");
}

TEST(StoreServer, AHostileRankIsCutOffAndTakesNoMemory) {
  const Server server;
  const auto resident = [] {
    std::ifstream file("/proc/self/statm");
    int64_t total = 0, pages = 0;
    file >> total >> pages;
    return pages * 4096;
  };
  const auto before = resident();
  for (const uint32_t length : {0u, 0xffffffffu, uint32_t{wire::kMaxFrameBytes} + 1}) {
    const Descriptor socket = stranger(server.address());
    ASSERT_EQ(introduce(socket, kSecret).verdict, wire::Verdict::kWelcome);
    send_all(socket.get(), &length, sizeof(length), in_seconds(20));
    EXPECT_EQ(read_to_end(socket), "");
  }
  // A length that is allowed takes what comes, not what was said.
  std::vector<Descriptor> open;
  for (uint32_t i = 0; i < 30; ++i) {
    open.push_back(stranger(server.address()));
    // Of one process, as far as the server can tell.
    ASSERT_EQ(introduce(open.back(), kSecret).verdict, wire::Verdict::kWelcome);
    const uint32_t length = wire::kMaxFrameBytes;
    send_all(open.back().get(), &length, sizeof(length), in_seconds(20));
  }
  open.clear();
  EXPECT_LT(resident() - before, 64 << 20) << "of 480 MiB that were announced";
  EXPECT_PRED2(contains, server.refusals(), "3 from 127.0.0.1 (sent what no rank sends)");
}

TEST(StoreServer, TwoRequestsAtOnceAreNoRanks) {
  const Server server;
  const Descriptor socket = stranger(server.address());
  ASSERT_EQ(introduce(socket, kSecret).verdict, wire::Verdict::kWelcome);
  wire::FrameWriter wait(static_cast<uint8_t>(wire::Request::kWait));
  wire::Bytes frame = wait.number(60'000).text("never").finish();
  send_all(socket.get(), frame.data(), frame.size(), in_seconds(20));
  send_all(socket.get(), frame.data(), frame.size(), in_seconds(20));
  EXPECT_EQ(read_to_end(socket), "");
  server.expect_refused("sent what no rank sends");
}

TEST(StoreServer, NoBytesOfAnyoneHarmIt) {
  const Server server;
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const Descriptor socket = stranger(server.address());
    if (round % 2 == 0) {
      ASSERT_EQ(introduce(socket, kSecret).verdict, wire::Verdict::kWelcome);
    }
    std::string garbage(random() % 400, '\0');
    for (char& c : garbage) c = static_cast<char>(random());
    // Some begin as a request of their length.
    const auto length = static_cast<uint32_t>(garbage.size() > 4 ? garbage.size() - 4 : 1);
    if (garbage.size() > 5) std::memcpy(garbage.data(), &length, sizeof(length));
    if (garbage.size() > 5) garbage[4] = static_cast<char>(1 + random() % 9);
    send_all(socket.get(), garbage.data(), garbage.size(), in_seconds(20));
  }
  server.expect_works();
}

TEST(StoreServer, EndsWhateverConnectionsThereAre) {
  auto server = std::make_unique<Server>();
  const Descriptor silent = stranger(server->address());
  StoreClient rank(server->rank(0));
  auto waiting = std::async(std::launch::async, [&] { rank.get("never"); });
  server.reset();
  EXPECT_THROW(waiting.get(), std::exception);
  read_to_end(silent);
}

}  // namespace
}  // namespace trireme::comm
