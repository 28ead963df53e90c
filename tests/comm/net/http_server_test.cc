#include "trireme/comm/net/http_server.h"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <gtest/gtest.h>

#include "tests/comm/net/loopback_client.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/comm/net/tcp_socket.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;

class HttpServerTest : public testing::Test {
 protected:
  void serve(HttpOptions options) {
    server_ = std::make_unique<HttpServer>(
        std::move(options),
        std::vector<HttpRoute>{
            {"GET", "/hello", [](const HttpRequest&) { return HttpResponse{.body = "hello"}; }},
            {"POST", "/echo",
             [](const HttpRequest& request) { return HttpResponse{.body = request.body}; }},
            {"POST", "/fail", [](const HttpRequest& request) -> HttpResponse {
               if (request.body == "yours") throw ConfigError("it is yours");
               throw std::runtime_error("it is ours");
             }}});
    thread_ = std::thread([this] {
      server_->run([this] {
        ++num_looks_;
        return stop_.load();
      });
    });
  }
  void TearDown() override {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  Descriptor connect() const {
    return connect_to_loopback(server_->port(), std::chrono::seconds(20));
  }
  static void send(const Descriptor& socket, std::string_view bytes) {
    ASSERT_TRUE(send_all(socket.get(), bytes.data(), bytes.size(),
                         std::chrono::steady_clock::now() + milliseconds(20000)));
  }
  // All until the server closes.
  static std::string receive(const Descriptor& socket) {
    std::string all;
    char bytes[4096];
    for (ssize_t count = 0; (count = ::recv(socket.get(), bytes, sizeof(bytes), 0)) > 0;)
      all.append(bytes, static_cast<size_t>(count));
    return all;
  }
  std::string ask(const std::string& request) const {
    const Descriptor socket = connect();
    send(socket, request);
    return receive(socket);
  }

  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> num_looks_ = 0;  // of the server, whether it has to stop
};

constexpr const char* kHead = "Host: 127.0.0.1\r\nConnection: close\r\n";

int status_of(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 ") ? std::stoi(answer.substr(9, 3)) : 0;
}

TEST_F(HttpServerTest, RoutesAnswerTheirMethods) {
  serve({});
  EXPECT_TRUE(ask(concat("GET /hello HTTP/1.1\r\n", kHead, "\r\n")).ends_with("\r\n\r\nhello"));
  const std::string head = ask(concat("HEAD /hello HTTP/1.1\r\n", kHead, "\r\n"));
  EXPECT_NE(head.find("Content-Length: 5"), head.npos);
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
  EXPECT_TRUE(ask(concat("POST /echo HTTP/1.1\r\n", kHead, "Content-Length: 3\r\n\r\nabc"))
                  .ends_with("\r\n\r\nabc"));
  EXPECT_EQ(status_of(ask(concat("GET /none HTTP/1.1\r\n", kHead, "\r\n"))), 404);
  const std::string wrong = ask(concat("PUT /hello HTTP/1.1\r\n", kHead, "\r\n"));
  EXPECT_EQ(status_of(wrong), 405);
  EXPECT_NE(wrong.find("Allow: GET\r\n"), wrong.npos);
}

TEST_F(HttpServerTest, StrangersAreRefused) {
  serve({.token = "secret"});
  const auto status = [&](const std::string& headers) {
    return status_of(ask(concat("GET /hello HTTP/1.1\r\nConnection: close\r\n", headers, "\r\n")));
  };
  EXPECT_EQ(status("Host: localhost:7\r\nAuthorization: Bearer secret\r\n"), 200);
  EXPECT_EQ(status("Host: [::1]:7\r\nAuthorization: Bearer secret\r\n"), 200);
  EXPECT_EQ(status("Host: localhost\r\n"), 401);
  EXPECT_EQ(status("Host: localhost\r\nAuthorization: Bearer secre\r\n"), 401);
  EXPECT_EQ(status("Host: localhost\r\nAuthorization: Bearer secrets\r\n"), 401);
  for (const char* host : {"evil.example", "127.0.0.1.evil.example", "[::1", "[::1]x", ""}) {
    EXPECT_EQ(status(concat("Host: ", host, "\r\nAuthorization: Bearer secret\r\n")), 403) << host;
  }
  EXPECT_EQ(status("Authorization: Bearer secret\r\n"), 403);
}

TEST_F(HttpServerTest, AServersOwnRuleStandsInForTheTokenAndItsHeadersComeWithEveryAnswer) {
  serve({.token = "unused",
         .admit = [](const HttpRequest& request) -> std::optional<HttpResponse> {
           if (request.query.contains("in")) return std::nullopt;
           return http_error(401, "stay out");
         },
         .headers = {{"X-Rule", "yes"}}});
  for (const auto& [path, status] :
       {std::pair("/hello?in=1", 200), {"/hello", 401}, {"/none", 401}, {"/none?in=1", 404}}) {
    const std::string answer = ask(concat("GET ", path, " HTTP/1.1\r\n", kHead, "\r\n"));
    EXPECT_EQ(status_of(answer), status) << path;
    EXPECT_NE(answer.find("X-Rule: yes\r\n"), answer.npos) << path;
  }
  EXPECT_EQ(status_of(ask("GET /hello?in=1 HTTP/1.1\r\nHost: evil.example\r\n"
                          "Connection: close\r\n\r\n")),
            403);
}

TEST_F(HttpServerTest, ErrorsOfAHandlerAreAnswers) {
  serve({});
  const auto answer = [&](const std::string& body) {
    return ask(concat("POST /fail HTTP/1.1\r\n", kHead, "Content-Length: ", body.size(), "\r\n\r\n",
                      body));
  };
  EXPECT_EQ(status_of(answer("yours")), 400);
  EXPECT_NE(answer("yours").find("it is yours"), std::string::npos);
  EXPECT_EQ(status_of(answer("ours")), 500);
}

TEST_F(HttpServerTest, RequestsOfOneConnectionAreAnsweredInTurnHoweverTheyAreCut) {
  serve({});
  std::string requests;
  for (int i = 0; i < 3; ++i) {
    requests += concat("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n",
                       i == 2 ? "Connection: close\r\n" : "", "\r\n#", i);
  }
  for (const size_t piece : {size_t{1}, size_t{50}, requests.size()}) {
    const Descriptor socket = connect();
    for (size_t at = 0; at < requests.size(); at += piece) send(socket, requests.substr(at, piece));
    const std::string answers = receive(socket);
    const size_t first = answers.find("#0"), second = answers.find("#1"),
                 third = answers.find("#2");
    EXPECT_TRUE(first < second && second < third && third != answers.npos) << answers;
  }
}

TEST_F(HttpServerTest, ALargeAnswerArrivesAndABodyBeyondTheLimitIsRefused) {
  serve({.limits = {.body_bytes = 8 << 20}});
  const std::string body(8 << 20, 'x');
  const std::string answer = ask(
      concat("POST /echo HTTP/1.1\r\n", kHead, "Content-Length: ", body.size(), "\r\n\r\n", body));
  EXPECT_TRUE(answer.ends_with(body));
  const Descriptor socket = connect();
  send(socket, concat("POST /echo HTTP/1.1\r\n", kHead, "Content-Length: ", (8 << 20) + 1,
                      "\r\n\r\n", std::string(1 << 20, 'x')));
  EXPECT_EQ(status_of(receive(socket)), 413);
}

TEST_F(HttpServerTest, ABodyIsAskedFor) {
  serve({});
  const Descriptor socket = connect();
  send(socket, concat("POST /echo HTTP/1.1\r\n", kHead,
                      "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"));
  const std::string_view permission = "HTTP/1.1 100 Continue\r\n\r\n";
  std::string got(permission.size(), '\0');
  ASSERT_TRUE(recv_all(socket.get(), got.data(), got.size(),
                       std::chrono::steady_clock::now() + milliseconds(20000)));
  EXPECT_EQ(got, permission);
  send(socket, "ok");
  EXPECT_TRUE(receive(socket).ends_with("\r\n\r\nok"));
}

// A slow stranger neither stays nor keeps others waiting.
TEST_F(HttpServerTest, RequestsThatNeverEndAreDropped) {
  serve({.most_connections = 2, .patience = milliseconds(200)});
  const Descriptor slow = connect(), silent = connect();
  send(slow, "GET /hel");
  EXPECT_EQ(receive(slow), "");
  EXPECT_EQ(receive(silent), "");
  EXPECT_EQ(status_of(ask(concat("GET /hello HTTP/1.1\r\n", kHead, "\r\n"))), 200);
}

TEST_F(HttpServerTest, ConnectionsThatWaitForTheirNextRequestMakeRoom) {
  serve({.most_connections = 1, .patience = milliseconds(20000)});
  const Descriptor first = connect();
  send(first, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
  char bytes[12];
  ASSERT_EQ(::recv(first.get(), bytes, sizeof(bytes), MSG_WAITALL), 12);
  EXPECT_EQ(status_of(ask(concat("GET /hello HTTP/1.1\r\n", kHead, "\r\n"))), 200);
}

TEST_F(HttpServerTest, ARequestThatStandsStillMakesRoom) {
  serve({.most_connections = 1, .patience = milliseconds(600'000)});
  const Descriptor slow = connect();
  send(slow, "GET /hel");
  EXPECT_EQ(status_of(ask(concat("GET /hello HTTP/1.1\r\n", kHead, "\r\n"))), 200);
  EXPECT_EQ(receive(slow), "");
}

TEST_F(HttpServerTest, StrangersAreRefusedBeforeTheirBodyHasCome) {
  serve({.token = "secret", .patience = milliseconds(600'000)});
  const std::string head = "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n";
  for (const char* expects : {"", "Expect: 100-continue\r\n"}) {
    const Descriptor socket = connect();
    send(socket, concat(head, expects, "\r\n"));
    const std::string answer = receive(socket);
    EXPECT_EQ(status_of(answer), 401);
    EXPECT_EQ(answer.find("100 Continue"), answer.npos);
  }
  const Descriptor known = connect();
  send(known, concat(head, "Connection: close\r\nAuthorization: Bearer secret\r\n\r\n"));
  send(known, "body here");
  EXPECT_TRUE(receive(known).ends_with("\r\n\r\nbody here"));
}

TEST_F(HttpServerTest, WithoutDescriptorsItRestsAndGoesOnLater) {
  serve({});
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const Descriptor socket = connect();
  const Descriptor waiting(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const rlimit none{.rlim_cur = 3, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(server_->port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int connected =
      ::connect(waiting.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  std::this_thread::sleep_for(milliseconds(1000));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_EQ(connected, 0);
  // Ten looks; a loop without a rest makes a hundred thousand.
  EXPECT_LT(num_looks_, 1000);
  send(waiting, concat("GET /hello HTTP/1.1\r\n", kHead, "\r\n"));
  EXPECT_EQ(status_of(receive(waiting)), 200);
}

TEST_F(HttpServerTest, APortInUseIsRefused) {
  serve({});
  EXPECT_THROW(HttpServer({.port = server_->port()}, {}), ConfigError);
}

}  // namespace
}  // namespace trireme::comm
