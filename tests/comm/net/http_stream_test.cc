// Answers in pieces over the server's sockets, to clients of every kind.
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>

#include <gtest/gtest.h>

#include "tests/comm/net/loopback_client.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/comm/net/http_server.h"
#include "trireme/comm/net/tcp_socket.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;

// Counts, a number a piece; without end when `last` is 0.
class Numbers : public HttpPieces {
 public:
  Numbers(int last, std::atomic<int>& alive) : last_(last), alive_(alive) { ++alive_; }
  ~Numbers() override { --alive_; }
  HttpPiece next() override {
    if (++number_ % 5 == 0 && last_ > 0 && !std::exchange(has_waited_, true)) {
      --number_;
      return {.then = HttpPiece::Then::kLater};
    }
    has_waited_ = false;
    return {.bytes = concat(number_, "\n", std::string(last_ == 0 ? 1000 : 0, 'x')),
            .then = number_ == last_ ? HttpPiece::Then::kEnd : HttpPiece::Then::kMore};
  }

 private:
  int last_;
  std::atomic<int>& alive_;
  int number_ = 0;
  bool has_waited_ = false;
};

class HttpStreamTest : public testing::Test {
 protected:
  void serve(HttpOptions options) {
    const auto numbers = [this](int last) {
      return [this, last](const HttpRequest&) {
        return HttpResponse{.type = "text/plain",
                            .pieces = std::make_shared<Numbers>(last, alive_)};
      };
    };
    server_ = std::make_unique<HttpServer>(
        std::move(options), std::vector<HttpRoute>{{"GET", "/some", numbers(12)},
                                                   {"GET", "/endless", numbers(0)},
                                                   {"GET", "/hello", [](const HttpRequest&) {
                                                      return HttpResponse{.body = "hello"};
                                                    }}});
    thread_ = std::thread([this] { server_->run([this] { return stop_.load(); }); });
  }
  void TearDown() override {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    EXPECT_EQ(alive_, 0);  // the end of run() ends all pieces
  }

  Descriptor connect() const {
    return connect_to_loopback(server_->port(), std::chrono::seconds(60));
  }
  static void send(const Descriptor& socket, const std::string& path, const char* more = "") {
    const std::string bytes =
        concat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n", more, "\r\n");
    ASSERT_TRUE(send_all(socket.get(), bytes.data(), bytes.size(),
                         std::chrono::steady_clock::now() + milliseconds(20000)));
  }
  // All until the server closes, or `count` bytes.
  static std::string receive(const Descriptor& socket, size_t count = SIZE_MAX) {
    std::string all;
    char bytes[4096];
    while (all.size() < count) {
      const ssize_t got =
          ::recv(socket.get(), bytes, std::min(sizeof(bytes), count - all.size()), 0);
      if (got <= 0) break;
      all.append(bytes, static_cast<size_t>(got));
    }
    return all;
  }
  static std::string unchunked(const std::string& answer) {
    std::string body;
    size_t at = answer.find("\r\n\r\n") + 4;
    for (;;) {
      const size_t size = std::stoul(answer.substr(at), nullptr, 16);
      at = answer.find("\r\n", at) + 2;
      if (size == 0) return body;
      body += answer.substr(at, size);
      at += size + 2;
    }
  }
  void wait_for(int alive) const {
    while (alive_ != alive) std::this_thread::sleep_for(milliseconds(1));
  }

  std::atomic<int> alive_ = 0;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  std::atomic<bool> stop_ = false;
};

constexpr const char* kClose = "Connection: close\r\n";

TEST_F(HttpStreamTest, ManyClientsGetTheirPiecesBesideStreamsWithoutEnd) {
  serve({.most_connections = 40});
  const Descriptor endless = connect();
  send(endless, "/endless");
  std::vector<Descriptor> clients;
  for (int i = 0; i < 30; ++i) {
    clients.push_back(connect());
    send(clients.back(), "/some", kClose);
  }
  std::string expected;
  for (int i = 1; i <= 12; ++i) expected += concat(i, "\n");
  for (const Descriptor& client : clients) EXPECT_EQ(unchunked(receive(client)), expected);
  EXPECT_EQ(receive(endless, 100000).size(), 100000u);
  const Descriptor other = connect();
  send(other, "/hello", kClose);
  EXPECT_TRUE(receive(other).ends_with("hello"));
}

TEST_F(HttpStreamTest, ClientsThatGoAwayEndTheirPieces) {
  serve({.patience = milliseconds(60000)});
  Descriptor closed = connect(), half = connect(), reset = connect();
  for (const Descriptor* client : {&closed, &half, &reset}) {
    send(*client, "/endless");
    EXPECT_EQ(receive(*client, 2000).size(), 2000u);
  }
  wait_for(3);
  closed.close();
  wait_for(2);
  ::shutdown(half.get(), SHUT_WR);
  wait_for(1);
  const linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(reset.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  reset.close();
  wait_for(0);
}

// One that takes nothing is dropped, although another keeps the server busy.
TEST_F(HttpStreamTest, AClientThatDoesNotReadIsDropped) {
  serve({.patience = milliseconds(100)});
  const Descriptor reader = connect(), silent = connect();
  send(silent, "/endless");
  send(reader, "/endless");
  wait_for(2);
  size_t count = 0;
  while (alive_ == 2) count += receive(reader, 10000).size();
  EXPECT_EQ(receive(reader, 10000).size(), 10000u);
  EXPECT_EQ(alive_, 1);
  EXPECT_GT(count, 0u);
}

// A request that never ends does not stay because streams keep the server busy.
TEST_F(HttpStreamTest, AHalfRequestIsDroppedWhileAStreamRuns) {
  serve({.patience = milliseconds(200)});
  const Descriptor half = connect();
  ASSERT_EQ(::send(half.get(), "GET /so", 7, MSG_NOSIGNAL), 7);
  Descriptor reader = connect();
  send(reader, "/endless");
  std::atomic<bool> is_dropped = false;
  std::thread waiter([&] {
    EXPECT_EQ(receive(half), "");
    is_dropped = true;
  });
  while (!is_dropped) EXPECT_EQ(receive(reader, 10000).size(), 10000u);
  waiter.join();
}

TEST_F(HttpStreamTest, ARequestBehindAStreamWaitsForItsEnd) {
  serve({});
  const Descriptor client = connect();
  send(client, "/some");
  send(client, "/hello", kClose);
  const std::string answers = receive(client);
  EXPECT_LT(answers.find("0\r\n\r\n"), answers.find("hello"));
  EXPECT_TRUE(answers.ends_with("hello"));
}

TEST_F(HttpStreamTest, HeadAsksForNoPieces) {
  serve({});
  const Descriptor client = connect();
  const std::string request = concat("HEAD /some HTTP/1.1\r\nHost: localhost\r\n", kClose, "\r\n");
  ASSERT_EQ(::send(client.get(), request.data(), request.size(), MSG_NOSIGNAL),
            std::ssize(request));
  const std::string answer = receive(client);
  EXPECT_NE(answer.find("Transfer-Encoding: chunked"), answer.npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\n"));
}

}  // namespace
}  // namespace trireme::comm
