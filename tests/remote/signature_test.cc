#include "trireme/remote/signature.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "trireme/remote/url.h"

namespace trireme::remote {
namespace {

std::string value(const std::vector<Header>& headers, const std::string& name) {
  const auto found = std::ranges::find(headers, name, &Header::first);
  return found == headers.end() ? "" : found->second;
}

// The example "GET Object" of "Authenticating Requests: Using the Authorization Header", Amazon S3
// API reference; its keys are no one's.
const Credentials kExample{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
constexpr int64_t kExampleTime = 1369353600;  // 2013-05-24 00:00:00 UTC

TEST(Signature, IsThatOfThePublishedExample) {
  const std::vector<Header> headers = sign({.host = "examplebucket.s3.amazonaws.com",
                                            .path = "/test.txt",
                                            .headers = {{"range", "bytes=0-9"}}},
                                           kExample, "us-east-1", kExampleTime);
  EXPECT_EQ(value(headers, "x-amz-date"), "20130524T000000Z");
  EXPECT_EQ(value(headers, "x-amz-content-sha256"),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(value(headers, "authorization"),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

// The example "PUT Object" there, whose name has a character that is encoded.
TEST(Signature, IsThatOfThePublishedExampleWithAnEncodedName) {
  const std::string text = "Welcome to Amazon S3.";
  const std::vector<Header> headers =
      sign({.method = "PUT",
            .host = "examplebucket.s3.amazonaws.com",
            .path = "/" + encoded_path(parse_url("s3://examplebucket/test$file.text")),
            .headers = {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                        {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
            .body = std::as_bytes(std::span(text))},
           kExample, "us-east-1", kExampleTime);
  EXPECT_EQ(value(headers, "authorization"),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
            "SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class,"
            "Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

TEST(Signature, SignsTheSessionTokenAndChangesWithEveryPart) {
  const SignedRequest request{.host = "h", .path = "/k", .headers = {{"range", "bytes=0-0"}}};
  const auto of = [](const SignedRequest& what, const Credentials& keys, const char* region,
                     int64_t time) {
    return value(sign(what, keys, region, time), "authorization");
  };
  const std::string first = of(request, kExample, "r", 0);
  Credentials with_token = kExample;
  with_token.session_token = "token";
  EXPECT_EQ(value(sign(request, with_token, "r", 0), "x-amz-security-token"), "token");
  EXPECT_NE(of(request, with_token, "r", 0).find("x-amz-security-token,Signature"),
            std::string::npos);
  SignedRequest other = request;
  other.path = "/l";
  EXPECT_NE(of(other, kExample, "r", 0), first);
  EXPECT_NE(of(request, kExample, "s", 0), first);
  EXPECT_NE(of(request, kExample, "r", 1), first);
  EXPECT_EQ(first.find("wJalr"), std::string::npos);
}

}  // namespace
}  // namespace trireme::remote
