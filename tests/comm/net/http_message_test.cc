#include "trireme/comm/net/http_message.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

constexpr std::string_view kPost =
    "POST /v1/completions?a=1&b=%41+c HTTP/1.1\r\nHost: 127.0.0.1:80\r\n"
    "Content-Length: 5\r\nX-Thing:  two words \r\n\r\nhello";

TEST(HttpMessage, ARequestIsWholeOnceItsLastByteIsThere) {
  for (size_t size = 0; size < kPost.size(); ++size) {
    const HttpParse parse = parse_http(kPost.substr(0, size));
    EXPECT_FALSE(parse.request || parse.refusal) << size;
  }
  const HttpParse parse = parse_http(std::string(kPost) + "GET / HTTP/1.1\r\n");
  ASSERT_TRUE(parse.request);
  EXPECT_EQ(parse.num_bytes, kPost.size());
  const HttpRequest& request = *parse.request;
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/v1/completions");
  EXPECT_EQ(request.query, (std::map<std::string, std::string>{{"a", "1"}, {"b", "A c"}}));
  EXPECT_EQ(request.header("x-thing"), "two words");
  EXPECT_EQ(request.header("none"), "");
  EXPECT_EQ(request.body, "hello");
  EXPECT_TRUE(request.keeps_alive);
}

TEST(HttpMessage, RepeatedParametersKeepTheirOrderAndCookiesTheirNames) {
  const HttpRequest request = parse_http(
                                  "GET /a?name=x&run=0&name=%2Fy HTTP/1.1\r\n"
                                  "Cookie: a=b; token=se=cret ;tokens=no; empty=\r\n\r\n")
                                  .request.value();
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(request.parameters, (Pairs{{"name", "x"}, {"run", "0"}, {"name", "/y"}}));
  EXPECT_EQ(request.cookie("token"), "se=cret");
  EXPECT_EQ(request.cookie("a"), "b");
  EXPECT_EQ(request.cookie("empty"), "");
  EXPECT_EQ(request.cookie("oken"), "");
  EXPECT_EQ(parse_http("GET / HTTP/1.1\r\n\r\n").request.value().cookie("a"), "");
}

TEST(HttpMessage, ConnectionsStayAsTheVersionAndTheHeaderSay) {
  const auto keeps = [](const std::string& head) {
    return parse_http(head + "\r\n\r\n").request.value().keeps_alive;
  };
  EXPECT_TRUE(keeps("GET / HTTP/1.1"));
  EXPECT_FALSE(keeps("GET / HTTP/1.0"));
  EXPECT_FALSE(keeps("GET / HTTP/1.1\r\nConnection: Close"));
}

TEST(HttpMessage, WhatCouldBeReadInTwoWaysIsRefused) {
  const std::vector<std::pair<int, std::string>> cases = {
      {400, "GET /"},
      {400, "GET / HTTP/2"},
      {400, "GE T / HTTP/1.1"},
      {400, "GET x HTTP/1.1"},
      {400, "GET /\x80 HTTP/1.1"},
      {400, "GET /?a=%4 HTTP/1.1"},
      {400, "GET /?a=%zz HTTP/1.1"},
      {400, "GET / HTTP/1.1\r\nno colon"},
      {400, "GET / HTTP/1.1\r\na b: c"},
      {400, "GET / HTTP/1.1\r\na: \x01"},
      {400, "GET / HTTP/1.1\r\n a: folded"},
      {400, "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2"},
      {400, "POST / HTTP/1.1\r\nContent-Length: -1"},
      {400, "POST / HTTP/1.1\r\nContent-Length: 1x"},
      {400, "POST / HTTP/1.1\r\nContent-Length: +1"},
      {413, "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999"},
      {413, "POST / HTTP/1.1\r\nContent-Length: 1048577"},
      {501, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked"}};
  for (const auto& [status, head] : cases) {
    const HttpParse parse = parse_http(head + "\r\n\r\n");
    ASSERT_TRUE(parse.refusal) << head;
    EXPECT_EQ(parse.refusal->status, status) << head;
  }
  std::string many = "GET / HTTP/1.1";
  for (int i = 0; i < 65; ++i) many += concat("\r\nh", i, ": 1");
  EXPECT_EQ(parse_http(many + "\r\n\r\n").refusal.value().status, 431);
  EXPECT_EQ(parse_http(std::string(9000, 'a')).refusal.value().status, 431);
  EXPECT_FALSE(parse_http(std::string(8000, 'a')).refusal);
}

TEST(HttpMessage, ABodyMayWaitForPermission) {
  const std::string head = "POST / HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
  EXPECT_TRUE(parse_http(head).expects_continue);
  EXPECT_EQ(parse_http(head).head.value().header("content-length"), "3");
  EXPECT_FALSE(parse_http(head + "abc").head);
  EXPECT_FALSE(parse_http(head + "a").expects_continue);
  EXPECT_TRUE(parse_http(head + "abc").request);
}

TEST(HttpMessage, AnswersSayHowLongTheyAre) {
  const std::string bytes =
      to_bytes({.type = "text/plain", .body = "hi", .headers = {{"Allow", "GET"}}}, true);
  EXPECT_TRUE(bytes.starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_NE(bytes.find("Content-Length: 2\r\n"), bytes.npos);
  EXPECT_NE(bytes.find("Allow: GET\r\n"), bytes.npos);
  EXPECT_TRUE(bytes.ends_with("\r\n\r\nhi"));
  EXPECT_TRUE(to_bytes({.body = "hi"}, false, /*without_body=*/true).ends_with("\r\n\r\n"));
  const HttpResponse error = http_error(400, "a \"quoted\" line\xff");
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(nlohmann::json::parse(error.body).at("error").at("code"), 400);
}

TEST(HttpMessage, PiecesFollowAHeadWithoutALength) {
  const HttpResponse response{.type = "text/plain", .headers = {{"Allow", "GET"}}};
  const std::string head = to_head(response, /*keeps_alive=*/true, /*is_chunked=*/true);
  EXPECT_NE(head.find("\r\nTransfer-Encoding: chunked\r\n"), head.npos);
  EXPECT_NE(head.find("\r\nAllow: GET\r\n"), head.npos);
  EXPECT_EQ(head.find("Content-Length"), head.npos);
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
  EXPECT_EQ(to_head(response, false, /*is_chunked=*/false).find("Transfer-Encoding"), head.npos);
  EXPECT_EQ(to_chunk("ab"), "2\r\nab\r\n");
  EXPECT_EQ(to_chunk(std::string(255, 'x')).substr(0, 5), "ff\r\nx");
  EXPECT_THROW(to_chunk(""), InternalError);
}

TEST(HttpMessage, ChunksAreForTheVersionThatHasThem) {
  EXPECT_TRUE(parse_http("GET / HTTP/1.1\r\n\r\n").request->takes_chunks);
  EXPECT_FALSE(parse_http("GET / HTTP/1.0\r\n\r\n").request->takes_chunks);
}

}  // namespace
}  // namespace trireme::comm
