#include "trireme/remote/http_client.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/remote/scripted_server.h"

namespace trireme::remote {
namespace {

TEST(HttpClient, GivesStatusHeadersAndBody) {
  ScriptedServer server([](const std::string& request) {
    EXPECT_EQ(request_header(request, "x-mine"), "1");
    return plain_answer("200 OK", "ETag:   \"x\"  \r\nX-Other: \r\n", "hello");
  });
  HttpClient client;
  std::string body(8, '?');
  const HttpAnswer answer = client.send({.url = server.url() + "/a/../b",
                                         .headers = {{"x-mine", "1"}},
                                         .out = std::as_writable_bytes(std::span(body))});
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("etag"), "\"x\"");
  EXPECT_EQ(answer.headers.at("x-other"), "");
  EXPECT_EQ(answer.num_bytes, 5U);
  EXPECT_EQ(body, "hello???");
  EXPECT_FALSE(answer.is_too_long);
}

TEST(HttpClient, TextsOfErrorsAndTooLongBodiesAreBounded) {
  ScriptedServer server([](const std::string& request) {
    const bool is_error = request.find("/error") != std::string::npos;
    return plain_answer(is_error ? "500 Oops" : "200 OK", "", std::string(1 << 20, 'x'));
  });
  HttpClient client;
  std::string body(100, '?');
  const auto out = std::as_writable_bytes(std::span(body));
  const HttpAnswer error = client.send({.url = server.url() + "/error", .out = out});
  EXPECT_EQ(error.status, 500);
  EXPECT_EQ(error.text.size(), 16384U);
  EXPECT_EQ(body, std::string(100, '?'));
  EXPECT_TRUE(client.send({.url = server.url() + "/long", .out = out}).is_too_long);
}

TEST(HttpClient, HeadersAreBounded) {
  ScriptedServer server([](const std::string&) {
    std::string headers;
    for (int i = 0; i < 1000; ++i) headers += "X-" + std::to_string(i) + ": 1\r\n";
    return plain_answer("200 OK", headers);
  });
  HttpClient client;
  EXPECT_EQ(client.send({.url = server.url() + "/"}).headers.size(), 100U);
}

TEST(HttpClient, OnlyWebServersAreAskedAndRedirectsAreNotFollowedToOthers) {
  ScriptedServer server([](const std::string&) {
    return plain_answer("302 Found", "Location: file:///etc/passwd\r\n");
  });
  HttpClient client;
  EXPECT_EQ(client.send({.url = "file:///etc/passwd"}).status, 0);
  const HttpAnswer stays = client.send({.url = server.url() + "/"});
  EXPECT_EQ(stays.status, 302);
  std::string body(100, '?');
  const HttpAnswer follows = client.send({.url = server.url() + "/",
                                          .out = std::as_writable_bytes(std::span(body)),
                                          .follow_redirects = true});
  EXPECT_EQ(follows.status, 0);
  EXPECT_NE(follows.failure, "");
  EXPECT_EQ(body, std::string(100, '?'));
}

TEST(HttpClient, SilenceEndsAfterPatience) {
  ScriptedServer server([](const std::string&) -> std::string {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return "";
  });
  HttpClient client;
  const HttpAnswer answer =
      client.send({.url = server.url() + "/", .patience = std::chrono::milliseconds(100)});
  EXPECT_EQ(answer.status, 0);
  EXPECT_NE(answer.failure, "");
}

TEST(HttpDate, IsReadInTheFormOfTheStandardAndNoOther) {
  EXPECT_EQ(parse_http_date("Fri, 24 May 2013 00:00:00 GMT"), 1369353600);
  EXPECT_EQ(parse_http_date("yesterday"), std::nullopt);
  EXPECT_EQ(parse_http_date(""), std::nullopt);
}

}  // namespace
}  // namespace trireme::remote
