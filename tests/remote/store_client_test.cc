#include "trireme/remote/store_client.h"

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/remote/scripted_server.h"
#include "trireme/base/error.h"

namespace trireme::remote {
namespace {

TEST(ContentRange, IsReadAndRefusedAsTheStandardSays) {
  const auto range = parse_content_range("bytes 4-8/44");
  ASSERT_TRUE(range.has_value());
  EXPECT_EQ(range->begin, 4U);
  EXPECT_EQ(range->last, 8U);
  EXPECT_EQ(range->total, 44U);
  for (const char* text :
       {"", "bytes", "bytes 4-8", "bytes 4-8/*", "bytes 8-4/44", "bytes 4-44/44", "bytes -1-8/44",
        "bytes 4-8/44 ", "items 4-8/44", "bytes 4-99999999999999999999/1"}) {
    EXPECT_FALSE(parse_content_range(text).has_value()) << text;
  }
}

StoreSettings settings_with_key(const ScriptedServer& server) {
  return {
      .s3 = {.credentials = Credentials{"ID", "key", ""}, .region = "r", .endpoint = server.url()}};
}

TEST(StoreClient, SendsMethodQueryAndBody) {
  ScriptedServer server([](const std::string& request) {
    EXPECT_TRUE(request.starts_with("PUT /bucket/key?a%2Fb=%20&partNumber=1 HTTP/1.1")) << request;
    EXPECT_EQ(request_header(request, "content-length"), "5");
    // SHA-256 of "hello"
    EXPECT_EQ(request_header(request, "x-amz-content-sha256"),
              "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
    return plain_answer("200 OK");
  });
  StoreClient client(settings_with_key(server));
  const std::string body = "hello";
  const HttpAnswer answer =
      client.send("s3://bucket/key", {.method = "PUT",
                                      .query = {{"partNumber", "1"}, {"a/b", " "}},
                                      .body = std::as_bytes(std::span(body)),
                                      .patience = std::chrono::seconds(5)});
  EXPECT_EQ(answer.status, 200) << answer.failure;
}

TEST(StoreClient, ACallThatIsCancelledEndsSoon) {
  ScriptedServer server([](const std::string& request) -> std::string {
    if (request.find("/busy") != std::string::npos)
      return plain_answer("503 Slow Down", "Retry-After: 30\r\n");
    std::this_thread::sleep_for(std::chrono::seconds(3));
    return "";
  });
  for (const char* url : {"s3://bucket/busy", "s3://bucket/silent"}) {
    StoreClient client(settings_with_key(server));
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      client.cancel();
    });
    EXPECT_THROW(client.send(url, {.patience = std::chrono::seconds(100)}), CommError) << url;
    EXPECT_THROW(client.send(url, {.patience = std::chrono::seconds(100)}), CommError) << url;
    other.join();
  }
}

// Threads that have asked with the old clock and region at the same time all ask again.
TEST(StoreClient, WhatOneThreadLearnsServesAll) {
  ScriptedServer server([](const std::string& request) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const bool knows_region =
        request_header(request, "authorization").find("/eu-west-3/s3/") != std::string::npos;
    if (!knows_region) return plain_answer("400 Bad Request", "x-amz-bucket-region: eu-west-3\r\n");
    if (request_header(request, "x-amz-date").starts_with("20130524T0"))
      return plain_answer("204 No Content");
    return plain_answer("403 Forbidden", "Date: Fri, 24 May 2013 00:00:00 GMT\r\n",
                        "<Code>RequestTimeTooSkewed</Code>");
  });
  StoreClient client(settings_with_key(server));
  std::vector<int> statuses(8);
  std::vector<std::thread> threads;
  for (int& status : statuses) {
    threads.emplace_back([&] {
      status =
          client.send("s3://bucket/key", {.method = "DELETE", .patience = std::chrono::seconds(5)})
              .status;
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(statuses, std::vector<int>(8, 204));
}

}  // namespace
}  // namespace trireme::remote
