#include "trireme/comm/net/http_connection.h"

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;
using Then = HttpPiece::Then;

// Gives these pieces, and says when it ends.
class GivenPieces : public HttpPieces {
 public:
  GivenPieces(std::deque<HttpPiece> pieces, bool& is_gone)
      : pieces_(std::move(pieces)), is_gone_(is_gone) {}
  ~GivenPieces() override { is_gone_ = true; }
  HttpPiece next() override {
    if (pieces_.empty()) throw ConfigError("there are no more");
    HttpPiece piece = std::move(pieces_.front());
    pieces_.pop_front();
    return piece;
  }

 private:
  std::deque<HttpPiece> pieces_;
  bool& is_gone_;
};

class HttpConnectionTest : public testing::Test {
 protected:
  void SetUp() override {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    client_ = Descriptor(pair[0]);
    connection_ = std::make_unique<HttpConnection>(Descriptor(pair[1]),
                                                   HttpConnection::Options{.patience = patience_});
    server_.answer = [this](const HttpRequest& request) {
      HttpResponse response{.type = "text/plain", .is_sent_whole = request.path == "/whole"};
      if (request.path == "/plain") {
        response.body = "plain";
      } else {
        response.pieces = std::make_shared<GivenPieces>(pieces_, is_gone_);
      }
      return response;
    };
  }
  void ask(const std::string& path, const std::string& version = "1.1") {
    const std::string request = concat("GET ", path, " HTTP/", version, "\r\n\r\n");
    ASSERT_EQ(::send(client_.get(), request.data(), request.size(), MSG_NOSIGNAL),
              std::ssize(request));
  }
  // What the client gets while the connection is served some times.
  std::string serve(int times = 20) {
    std::string got;
    for (int i = 0; i < times && !connection_->is_done(); ++i) {
      connection_->serve(server_);
      got += take();
    }
    return got;
  }
  std::string take() {
    std::string got;
    char bytes[4096];
    for (ssize_t count = 0; (count = ::recv(client_.get(), bytes, sizeof(bytes), 0)) > 0;)
      got.append(bytes, static_cast<size_t>(count));
    return got;
  }
  static std::string body(const std::string& answer) {
    return answer.substr(answer.find("\r\n\r\n") + 4);
  }

  milliseconds patience_{20000};
  Descriptor client_;
  std::unique_ptr<HttpConnection> connection_;
  HttpConnection::Server server_;
  std::deque<HttpPiece> pieces_ = {
      {.bytes = "abc"}, {}, {.then = Then::kLater}, {.bytes = "0123456789abcdefg"}};
  bool is_gone_ = false;
};

TEST_F(HttpConnectionTest, PiecesAreChunksAndTheConnectionGoesOn) {
  pieces_.push_back({.bytes = "z", .then = Then::kEnd});
  ask("/pieces");
  const std::string answer = serve();
  EXPECT_NE(answer.find("Transfer-Encoding: chunked\r\n"), answer.npos);
  EXPECT_EQ(answer.find("Content-Length"), answer.npos);
  EXPECT_EQ(body(answer), "3\r\nabc\r\n11\r\n0123456789abcdefg\r\n1\r\nz\r\n0\r\n\r\n");
  EXPECT_TRUE(is_gone_);
  ask("/plain");
  EXPECT_EQ(body(serve()), "plain");
}

TEST_F(HttpConnectionTest, PiecesThatEndWithNothingEndTheBody) {
  pieces_ = {{.then = Then::kEnd}};
  ask("/pieces");
  EXPECT_EQ(body(serve()), "0\r\n\r\n");
}

TEST_F(HttpConnectionTest, ARequestBehindTheOneThatIsAnsweredInPiecesIsAnsweredNext) {
  pieces_.push_back({.then = Then::kEnd});
  ask("/pieces");
  ask("/plain");
  const std::string answers = serve();
  EXPECT_LT(answers.find("0\r\n\r\n"), answers.find("Content-Length: 5"));
  EXPECT_TRUE(answers.ends_with("plain"));
}

TEST_F(HttpConnectionTest, AnOldClientGetsPlainPiecesAndTheEndOfTheConnection) {
  pieces_.push_back({.then = Then::kEnd});
  ask("/pieces", "1.0");
  const std::string answer = serve();
  EXPECT_EQ(answer.find("Transfer-Encoding"), answer.npos);
  EXPECT_NE(answer.find("Connection: close\r\n"), answer.npos);
  EXPECT_EQ(body(answer), "abc0123456789abcdefg");
  char byte = 0;
  EXPECT_EQ(::recv(client_.get(), &byte, 1, 0), 0);
}

TEST_F(HttpConnectionTest, PiecesThatAreSentWholeHaveTheirLength) {
  pieces_.push_back({.then = Then::kEnd});
  ask("/whole");
  const std::string answer = serve();
  EXPECT_NE(answer.find("Content-Length: 20\r\n"), answer.npos);
  EXPECT_EQ(body(answer), "abc0123456789abcdefg");
}

TEST_F(HttpConnectionTest, AnErrorIsTheAnswerOrCutsTheBody) {
  ask("/whole");
  EXPECT_TRUE(serve().starts_with("HTTP/1.1 400 "));
  ask("/pieces");
  const std::string answer = serve();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 "));
  EXPECT_EQ(answer.find("\r\n0\r\n"), answer.npos);
  EXPECT_TRUE(connection_->is_done());
}

TEST_F(HttpConnectionTest, APieceThatComesLaterLeavesTheConnectionWithoutWork) {
  pieces_ = {{}, {.then = Then::kLater}, {.then = Then::kEnd}};
  ask("/pieces");
  connection_->serve(server_);
  EXPECT_TRUE(connection_->has_work());
  connection_->serve(server_);
  EXPECT_FALSE(connection_->has_work());
  EXPECT_FALSE(connection_->is_between_requests());
  EXPECT_EQ(connection_->events() & POLLIN, 0);  // what the client sends meanwhile stays there
  connection_->serve(server_);
  EXPECT_TRUE(connection_->is_between_requests());
}

TEST_F(HttpConnectionTest, AClientThatGoesAwayEndsThePieces) {
  ask("/pieces");
  connection_->serve(server_);
  connection_->note_hang_up();
  EXPECT_TRUE(connection_->is_done());
  connection_.reset();
  EXPECT_TRUE(is_gone_);
}

// Endless pieces of 1 KiB.
class EndlessPieces : public HttpPieces {
 public:
  explicit EndlessPieces(size_t& count) : count_(count) {}
  HttpPiece next() override {
    ++count_;
    return {.bytes = std::string(1024, 'x')};
  }

 private:
  size_t& count_;
};

TEST_F(HttpConnectionTest, WithBytesToReceiveItIsNeitherSilentNorBetweenRequests) {
  const auto makes_room = [&] {
    EXPECT_EQ(connection_->is_silent(milliseconds(0)), connection_->is_between_requests());
    return connection_->is_between_requests();
  };
  EXPECT_FALSE(makes_room());  // nobody has looked
  connection_->serve(server_);
  EXPECT_TRUE(makes_room());
  connection_->note_bytes();
  EXPECT_FALSE(makes_room());
  connection_->serve(server_);
  EXPECT_TRUE(makes_room());
}

TEST_F(HttpConnectionTest, AClientThatDoesNotReadBoundsThePiecesAndIsDropped) {
  size_t count = 0;
  patience_ = milliseconds(50);
  SetUp();
  server_.answer = [&](const HttpRequest&) {
    return HttpResponse{.pieces = std::make_shared<EndlessPieces>(count)};
  };
  ask("/endless");
  while (!connection_->is_done()) {
    connection_->serve(server_);
    // Here 64 KiB, and in the kernel up to twice 64 KiB and what the client's side takes.
    ASSERT_LT(count, 2048u);
    if (!connection_->has_work()) std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_GE(count, 64u);
}

}  // namespace
}  // namespace trireme::comm
