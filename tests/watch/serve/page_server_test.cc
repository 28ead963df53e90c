#include "trireme/watch/serve/page_server.h"

#include <atomic>
#include <string>
#include <thread>

#include <sys/socket.h>

#include <gtest/gtest.h>

#include "tests/comm/net/loopback_client.h"
#include "tests/watch/serve/small_run.h"
#include "trireme/base/error.h"
#include "trireme/watch/serve/assets.h"

namespace trireme::watch {
namespace {

class PageServerTest : public testing::Test {
 protected:
  void SetUp() override {
    server_ = std::make_unique<PageServer>(small_.runs(), uint16_t{0}, "secret");
    thread_ = std::thread([this] { server_->run([this] { return stop_.load(); }); });
  }
  void TearDown() override {
    stop_ = true;
    thread_.join();
  }
  // headers: each with its line end
  std::string ask(const std::string& path, const std::string& headers,
                  const std::string& host = "127.0.0.1") const {
    const Descriptor socket = comm::connect_to_loopback(server_->port(), std::chrono::seconds(20));
    const std::string request = concat("GET ", path, " HTTP/1.1\r\nHost: ", host,
                                       "\r\nConnection: close\r\n", headers, "\r\n");
    EXPECT_EQ(::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    std::string all;
    char bytes[4096];
    for (ssize_t count = 0; (count = ::recv(socket.get(), bytes, sizeof(bytes), 0)) > 0;)
      all.append(bytes, static_cast<size_t>(count));
    return all;
  }
  static bool has_status(const std::string& answer, int status) {
    return answer.starts_with(concat("HTTP/1.1 ", status, " "));
  }

  SmallRun small_;
  std::unique_ptr<PageServer> server_;
  std::thread thread_;
  std::atomic<bool> stop_ = false;
};

const std::string kBearer = "Authorization: Bearer secret\r\n";

TEST_F(PageServerTest, TheTokenMovesFromTheAddressToACookie) {
  const std::string first = ask("/?token=secret", "");
  EXPECT_TRUE(has_status(first, 303));
  const std::string cookie = concat("trireme_watch_", server_->port(), "=secret");
  EXPECT_NE(first.find("Set-Cookie: " + cookie + "; Path=/; HttpOnly; SameSite=Strict\r\n"),
            first.npos)
      << first;
  EXPECT_NE(first.find("Location: /\r\n"), first.npos);
  EXPECT_TRUE(has_status(ask("/", "Cookie: a=b; " + cookie + "\r\n"), 200));
  EXPECT_TRUE(has_status(ask("/api/runs", kBearer), 200));
}

TEST_F(PageServerTest, StrangersGetNothing) {
  EXPECT_TRUE(has_status(ask("/", ""), 401));
  EXPECT_TRUE(has_status(ask("/?token=wrong", ""), 401));
  EXPECT_TRUE(has_status(ask("/api/runs?token=secret", ""), 401));
  EXPECT_TRUE(has_status(ask("/none", ""), 401));
  EXPECT_TRUE(has_status(ask("/", "Cookie: trireme_watch_1=secret\r\n"), 401));
  EXPECT_TRUE(has_status(ask("/", kBearer, "evil.example"), 403));
}

TEST_F(PageServerTest, EveryAssetIsServedUnderThePolicy) {
  for (const Asset& asset : assets()) {
    const std::string answer = ask(concat("/", asset.name), kBearer);
    EXPECT_TRUE(has_status(answer, 200)) << asset.name;
    EXPECT_TRUE(answer.ends_with(asset.content)) << asset.name;
    EXPECT_NE(answer.find(concat("Content-Security-Policy: ", kPagePolicy, "\r\n")), answer.npos);
    EXPECT_NE(answer.find(concat("Content-Type: ", type_of_asset(asset.name), "\r\n")),
              answer.npos);
  }
  EXPECT_EQ(type_of_asset("index.html"), "text/html; charset=utf-8");
}

TEST_F(PageServerTest, ErrorsAreOneTextAndNoPathIsAFile) {
  const std::string answer = ask("/api/run?run=9", kBearer);
  EXPECT_TRUE(has_status(answer, 400));
  EXPECT_NE(answer.find("\r\n\r\n{\"error\":\"run is 9; "), answer.npos) << answer;
  for (const char* path :
       {"/../config.toml", "/config.toml", "/%2e%2e/config.toml", "//etc/passwd"})
    EXPECT_TRUE(has_status(ask(path, kBearer), 404)) << path;
  EXPECT_TRUE(has_status(ask("/metrics", kBearer), 200));
  EXPECT_TRUE(ask("/api/trace?name=trace.json", kBearer).find("traceEvents") != std::string::npos);
}

TEST_F(PageServerTest, APortInUseIsTheUsersToChange) {
  EXPECT_THROW(PageServer(small_.runs(), server_->port(), "x"), ConfigError);
}

}  // namespace
}  // namespace trireme::watch
