#include "trireme/parallel/server/link/hub.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "tests/harness/draw.h"
#include "trireme/base/error.h"
#include "trireme/comm/net/tcp_socket.h"
#include "trireme/parallel/server/link/connection.h"

namespace trireme::parallel {
namespace {

// Notes what happens.
class Notes final : public HubEvents {
 public:
  void on_open(PeerId peer, Role role, uint32_t number) override {
    note([&] { opened.push_back({peer, role, number}); });
  }
  void on_frame(PeerId peer, Frame frame) override {
    note([&] { frames.push_back(std::move(frame)); });
    if (answer) answer(peer);
  }
  void on_closed(PeerId, const std::string& reason) override {
    note([&] { closed.push_back(reason); });
  }
  void on_tick() override {}
  void on_failed(std::exception_ptr error) override {
    note([&] { failed = std::move(error); });
  }
  void wait_for(const std::function<bool()>& is_true) {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(condition.wait_for(lock, std::chrono::seconds(20), is_true));
  }

  struct Opened {
    PeerId peer;
    Role role;
    uint32_t number;
  };
  std::vector<Opened> opened;
  std::vector<Frame> frames;
  std::vector<std::string> closed;
  std::exception_ptr failed;
  std::function<void(PeerId)> answer;
  std::mutex mutex;

 private:
  void note(const std::function<void()>& what) {
    const std::lock_guard lock(mutex);
    what();
    condition.notify_all();
  }
  std::condition_variable condition;
};

HubOptions options(Role role, const std::string& secret = "s", const std::string& config = "c") {
  return {.role = role, .secret = secret, .config = config};
}

Frame frame_of(uint32_t piece, int64_t bytes) {
  Frame frame;
  frame.header = {.kind = FrameKind::kPull, .piece = piece};
  if (bytes > 0) frame.payload = at::full({bytes}, static_cast<int64_t>(piece % 251), at::kByte);
  return frame;
}

TEST(Hub, BothSidesLearnWhoTheOtherIs) {
  Notes server_notes, client_notes;
  Hub server(options(Role::kServer), server_notes), client(options(Role::kWorker), client_notes);
  const std::string address = server.listen("127.0.0.1");
  server.start();
  client.start();
  client.post([&] { client.connect(address, 42); });
  server_notes.wait_for([&] { return !server_notes.opened.empty(); });
  client_notes.wait_for([&] { return !client_notes.opened.empty(); });
  EXPECT_EQ(server_notes.opened[0].role, Role::kWorker);
  EXPECT_EQ(server_notes.opened[0].number, 42U);
  client.stop();
  server_notes.wait_for([&] { return !server_notes.closed.empty(); });
}

TEST(Hub, FramesArriveWholeAndAreCounted) {
  Notes server_notes, client_notes;
  Hub server(options(Role::kServer), server_notes), client(options(Role::kWorker), client_notes);
  const std::string address = server.listen("127.0.0.1");
  server.start();
  client.start();
  const std::vector<int64_t> sizes{0, 1, 63, 64, 65, 100'000, int64_t{9} << 20, 0, 5};
  int64_t bytes = 0;
  client.post([&] {
    const PeerId peer = client.connect(address, 0);
    for (size_t i = 0; i < sizes.size(); ++i) {
      client.send(peer, frame_of(static_cast<uint32_t>(i), sizes[i]));
    }
  });
  server_notes.wait_for([&] { return server_notes.frames.size() == sizes.size(); });
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Frame& frame = server_notes.frames[i];
    EXPECT_EQ(frame.header.piece, i);
    ASSERT_EQ(frame.header.payload_bytes, sizes[i]);
    if (sizes[i] > 0) EXPECT_TRUE(at::all(frame.payload == static_cast<int64_t>(i)).item<bool>());
    bytes += 64 + sizes[i];
  }
  client.stop();
  server.stop();
  EXPECT_EQ(server.counts().received_bytes, bytes);
}

TEST(Hub, UrgentFramesPassThoseThatWait) {
  Notes server_notes, client_notes;
  Hub server(options(Role::kServer), server_notes), client(options(Role::kWorker), client_notes);
  const std::string address = server.listen("127.0.0.1");
  server.start();
  client.start();
  constexpr uint32_t kPushes = 24;
  client.post([&] {
    const PeerId peer = client.connect(address, 0);
    for (uint32_t i = 0; i < kPushes; ++i) client.send(peer, frame_of(i, 4 << 20), 1 + i);
    client.send(peer, frame_of(1000, 4 << 20), 0);  // last in, first out
  });
  server_notes.wait_for([&] { return server_notes.frames.size() == kPushes + 1; });
  EXPECT_EQ(server_notes.frames[0].header.piece, 1000U);
  for (uint32_t i = 0; i < kPushes; ++i) EXPECT_EQ(server_notes.frames[1 + i].header.piece, i);
}

TEST(Hub, AnUrgentFrameOvertakesWhatIsBeingSent) {
  Notes server_notes, client_notes;
  Hub server(options(Role::kServer), server_notes), client(options(Role::kWorker), client_notes);
  const std::string address = server.listen("127.0.0.1");
  std::atomic<bool> is_first = true;
  server_notes.answer = [&](PeerId) {
    if (!is_first.exchange(false)) return;
    client.post([&] { client.send(client_notes.opened[0].peer, frame_of(1000, 0), 0); });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the client's queue stands still
  };
  server.start();
  client.start();
  client.post([&] {
    const PeerId peer = client.connect(address, 0);
    for (uint32_t i = 0; i < 40; ++i) client.send(peer, frame_of(i, 4 << 20), 1 + i);
  });
  server_notes.wait_for([&] { return server_notes.frames.size() == 41; });
  EXPECT_NE(server_notes.frames.back().header.piece, 1000U);
}

std::string refusal(const HubOptions& server_options, const HubOptions& client_options) {
  Notes server_notes, client_notes;
  Hub server(server_options, server_notes), client(client_options, client_notes);
  const std::string address = server.listen("127.0.0.1");
  server.start();
  client.start();
  client.post([&] { client.connect(address, 0); });
  client_notes.wait_for([&] { return !client_notes.closed.empty(); });
  EXPECT_TRUE(server_notes.opened.empty());
  return client_notes.closed.empty() ? "" : client_notes.closed[0];
}

TEST(Hub, RefusesAnotherSecretAndAnotherConfig) {
  const HubOptions server = options(Role::kServer);
  EXPECT_NE(refusal(server, options(Role::kWorker, "other")).find("another secret"),
            std::string::npos);
  EXPECT_NE(refusal(server, options(Role::kWorker, "s", "other")).find("another config"),
            std::string::npos);
  EXPECT_NE(refusal(server, options(static_cast<Role>(9))).find("refuses"), std::string::npos);
}

TEST(Hub, AnAddressWhereNobodyListensIsClosedAtOnce) {
  Notes notes;
  Hub client(options(Role::kWorker), notes);
  client.start();
  client.post([&] {
    client.connect("tcp://127.0.0.1:1", 0);
    client.connect("no address", 0);
  });
  notes.wait_for([&] { return notes.closed.size() == 2; });
}

Descriptor plain_socket(const std::string& address) {
  std::string problem;
  return comm::connect_to(comm::resolve(comm::parse_tcp_address(address)),
                          std::chrono::steady_clock::now() + std::chrono::seconds(5), problem);
}

TEST(Hub, StrangersAreCutOffAndHoldNobodyUp) {
  Notes server_notes, client_notes;
  HubOptions impatient = options(Role::kServer);
  impatient.patience = std::chrono::seconds(2);
  Hub server(impatient, server_notes), client(options(Role::kWorker), client_notes);
  const std::string address = server.listen("127.0.0.1");
  server.start();
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(plain_socket(address));
  const std::string noise = "GET / HTTP/1.1\r\n\r\n";
  for (int i = 0; i < 50; ++i) {
    static_cast<void>(::send(strangers[i].get(), noise.data(), noise.size(), MSG_NOSIGNAL));
  }
  client.start();
  client.post([&] { client.connect(address, 0); });
  client_notes.wait_for(
      [&] { return !client_notes.opened.empty() || !client_notes.closed.empty(); });
  EXPECT_FALSE(client_notes.opened.empty());
  EXPECT_NE(server.refusals(), "");
}

// A peer that knows the secret, and then sends what it likes.
TEST(Hub, HostileFramesEndTheirConnectionOnly) {
  Notes server_notes;
  Hub server(options(Role::kServer), server_notes);
  const std::string address = server.listen("127.0.0.1");
  server.start();
  harness::Draw draw(11);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (int round = 0; round < 60; ++round) {
    Descriptor socket = plain_socket(address);
    comm::wire::Greeting greeting;
    ASSERT_TRUE(comm::recv_all(socket.get(), &greeting, sizeof(greeting), deadline));
    comm::wire::Hello hello;
    hello.magic = kServerMagic;
    hello.size = static_cast<uint32_t>(Role::kWorker);
    hello.job = sha256("c");
    hello.proof = comm::wire::client_proof("s", greeting, hello);
    ASSERT_TRUE(comm::send_all(socket.get(), &hello, sizeof(hello), deadline));
    comm::wire::Answer answer;
    ASSERT_TRUE(comm::recv_all(socket.get(), &answer, sizeof(answer), deadline));
    ASSERT_EQ(answer.verdict, comm::wire::Verdict::kWelcome);
    FrameHeader header{.payload_bytes = 8, .kind = FrameKind::kPull};
    std::vector<uint8_t> bytes(sizeof(header) + 8);
    std::memcpy(bytes.data(), &header, sizeof(header));
    for (int i = 0; i < 4; ++i)
      bytes[draw.below(bytes.size())] = static_cast<uint8_t>(draw.below(256));
    comm::send_all(socket.get(), bytes.data(), draw.below(bytes.size()) + 1, deadline);
  }
  Notes client_notes;
  Hub client(options(Role::kWorker), client_notes);
  client.start();
  client.post([&] { client.connect(address, 0); });
  client_notes.wait_for([&] { return !client_notes.opened.empty(); });
  EXPECT_EQ(server_notes.failed, nullptr);
}

TEST(Hub, ASilentPeerCountsAsDead) {
  Notes server_notes;
  HubOptions server_options = options(Role::kServer);
  server_options.silence = std::chrono::milliseconds(100);
  Notes client_notes;
  Hub server(server_options, server_notes), client(options(Role::kWorker), client_notes);
  const std::string address = server.listen("127.0.0.1");
  server.start();
  client.start();
  client.post([&] { client.connect(address, 0); });  // it says nothing for a second
  server_notes.wait_for([&] { return !server_notes.closed.empty(); });
  EXPECT_NE(server_notes.closed[0].find("silent"), std::string::npos);
}

// A server may be busy for seconds before it reads what a new peer has sent.
TEST(Hub, APeerThatItConnectsToHasTheTimeOfAKnownOne) {
  Notes notes;
  HubOptions client_options = options(Role::kWorker);
  client_options.patience = std::chrono::milliseconds(1);
  client_options.silence = std::chrono::milliseconds(100);
  Hub client(client_options, notes);
  comm::TcpAddress address{"127.0.0.1", 0};
  const std::vector<Descriptor> listeners = comm::listen_on(comm::resolve(address), address);
  sockaddr_in bound{};
  socklen_t length = sizeof(bound);
  ASSERT_EQ(getsockname(listeners.at(0).get(), reinterpret_cast<sockaddr*>(&bound), &length), 0);
  client.start();
  client.post(
      [&] { client.connect("tcp://127.0.0.1:" + std::to_string(ntohs(bound.sin_port)), 0); });
  notes.wait_for([&] { return !notes.closed.empty(); });
  EXPECT_NE(notes.closed.at(0).find("silent for 0.1 s"), std::string::npos) << notes.closed.at(0);
}

TEST(Hub, ItsOwnAbsenceIsNoPeersSilence) {
  Notes server_notes, busy_notes, idle_notes;
  HubOptions server_options = options(Role::kServer);
  server_options.silence = std::chrono::milliseconds(1500);
  Hub server(server_options, server_notes);
  Hub busy(options(Role::kWorker), busy_notes), idle(options(Role::kWorker), idle_notes);
  const std::string address = server.listen("127.0.0.1");
  std::atomic<bool> is_first = true;
  server_notes.answer = [&](PeerId) {
    if (is_first.exchange(false)) std::this_thread::sleep_for(std::chrono::seconds(2));
  };
  server.start();
  idle.start();
  idle.post([&] { idle.connect(address, 0); });
  idle_notes.wait_for([&] { return !idle_notes.opened.empty(); });
  busy.start();
  busy.post([&] { busy.send(busy.connect(address, 1), frame_of(1, 0)); });
  server_notes.wait_for([&] { return server_notes.frames.size() == 1; });
  idle.post([&] { idle.send(idle_notes.opened.at(0).peer, frame_of(2, 0)); });
  server_notes.wait_for([&] { return server_notes.frames.size() == 2; });
  const std::lock_guard lock(server_notes.mutex);
  EXPECT_TRUE(server_notes.closed.empty());
}

}  // namespace
}  // namespace trireme::parallel
