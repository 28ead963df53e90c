#include "trireme/remote/url.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::remote {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ObjectUrl, HasSchemeHostAndPath) {
  const ObjectUrl s3 = parse_url("s3://my-bucket/folder/python");
  EXPECT_EQ(s3.scheme, "s3");
  EXPECT_EQ(s3.host, "my-bucket");
  EXPECT_EQ(s3.path, "folder/python");
  EXPECT_TRUE(s3.is_bucket());
  const ObjectUrl web = parse_url("https://data.example.org:8443/a/b.bin");
  EXPECT_EQ(web.host, "data.example.org:8443");
  EXPECT_EQ(web.path, "a/b.bin");
  EXPECT_FALSE(web.is_bucket());
  EXPECT_EQ(parse_url("http://[::1]:9/x").host, "[::1]:9");
}

std::string refusal_of(const std::string& url) {
  try {
    parse_url(url);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ObjectUrl, OthersAreRefusedInOneLine) {
  EXPECT_THAT(refusal_of("ftp://host/x"), HasSubstr("begins with ftp://"));
  EXPECT_THAT(refusal_of("data/python"), HasSubstr("is no URL"));
  EXPECT_THAT(refusal_of("s3://Bucket_/x"), HasSubstr("is no bucket"));
  EXPECT_THAT(refusal_of("s3:///x"), HasSubstr("is no bucket"));
  EXPECT_THAT(refusal_of("s3://bucket"), HasSubstr("names no object"));
  EXPECT_THAT(refusal_of("s3://bucket/"), HasSubstr("names no object"));
  EXPECT_THAT(refusal_of("https:///x"), HasSubstr("is no host"));
  EXPECT_THAT(refusal_of("https://ho\\st/x"), HasSubstr("is no host"));
  EXPECT_THAT(refusal_of("s3://bucket/a\tb"), HasSubstr("control characters"));
  EXPECT_THAT(refusal_of("s3://bucket/a\nb"), Not(HasSubstr("\n")));
  EXPECT_THAT(refusal_of("s3://bucket/" + std::string(5000, 'a')), HasSubstr("5012 characters"));
}

TEST(ObjectUrl, ARefusalRepeatsNoSecret) {
  for (const char* url :
       {"https://user:secret@host/x", "https://us:se/cret@host/x", "https://host/x?token=secret",
        "https://host/x#secret", "s3://KEY:secret@bucket/x", "gs://KEY:se/cret@bucket/x"}) {
    EXPECT_THAT(refusal_of(url), HasSubstr("keys come from")) << url;
    EXPECT_THAT(refusal_of(url), Not(HasSubstr("secret@"))) << url;
    EXPECT_THAT(refusal_of(url), Not(HasSubstr("secret\""))) << url;
    EXPECT_THAT(refusal_of(url), Not(HasSubstr("token"))) << url;
  }
}

TEST(ObjectUrl, EachCharacterOfAKeyStandsForItself) {
  const std::string key = "a b/50%20+c?d#e@f=\xc3\xbc";
  EXPECT_EQ(parse_url("s3://bucket/" + key).path, key);
  EXPECT_EQ(encoded_path(parse_url("s3://bucket/" + key)),
            "a%20b/50%2520%2Bc%3Fd%23e%40f%3D%C3%BC");
  EXPECT_EQ(encoded_path(parse_url("gs://bucket/" + key)),
            encoded_path(parse_url("s3://bucket/" + key)));
}

TEST(ObjectUrl, APathOfAWebServerIsEncodedWhereItIsNot) {
  const auto encoded = [](const std::string& path) {
    return encoded_path(parse_url("https://host/" + path));
  };
  EXPECT_EQ(encoded("a%20b/c%2fd"), "a%20b/c%2fd");
  EXPECT_EQ(encoded("a b\xc3\xbc|\"<"), "a%20b%C3%BC%7C%22%3C");
  EXPECT_EQ(encoded("a+b=c,d;e&f:(g)!*$'~"), "a+b=c,d;e&f:(g)!*$'~");
  EXPECT_EQ(encoded("100%/5%a/%4"), "100%25/5%25a/%254");
}

TEST(PercentEncoding, KeepsOnlyUnreservedCharactersAndSlashes) {
  EXPECT_EQ(percent_encoded("a/B-9_.~"), "a/B-9_.~");
  EXPECT_EQ(percent_encoded("a b+c=\xc3\xbc%"), "a%20b%2Bc%3D%C3%BC%25");
}

TEST(ServerUrl, IsAPlaceOnTheWebAndNothingSecret) {
  const auto refusal = [](const std::string& url) {
    try {
      check_server_url(url);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  for (const char* url :
       {"http://127.0.0.1:5000", "https://ml.example.org/tracking/", "http://[::1]:9"})
    EXPECT_EQ(refusal(url), "accepted") << url;
  for (const char* url : {"", "127.0.0.1:5000", "s3://bucket/x", "file:///etc", "http://",
                          "http:///x", "http://ho st", "http://host/a\nb"})
    EXPECT_THAT(refusal(url), HasSubstr("is no address of a server")) << url;
  EXPECT_THAT(refusal("http://me:secret@host"), HasSubstr("come from the environment"));
  EXPECT_THAT(refusal("http://me:secret@host"), Not(HasSubstr("secret@")));
  EXPECT_THAT(refusal("http://" + std::string(5000, 'a')), HasSubstr("5007 characters"));
}

}  // namespace
}  // namespace trireme::remote
