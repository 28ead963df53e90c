#include "trireme/remote/store_settings.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::remote {
namespace {

using testing::HasSubstr;
using testing::Not;

class StoreSettingsTest : public testing::Test {
 protected:
  StoreSettings read() {
    return read_store_settings([this](const char* name) -> const char* {
      const auto found = variables_.find(name);
      return found == variables_.end() ? nullptr : found->second.c_str();
    });
  }
  std::string refusal() {
    try {
      read();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }
  void write_home(const std::string& name, const std::string& text) {
    const auto path = folder_.path() / name;
    make_folders(path.parent_path());
    write_file_atomically(path, text);
    variables_["HOME"] = folder_.path().string();
  }

  harness::TemporaryFolder folder_;
  std::map<std::string, std::string> variables_;
};

TEST_F(StoreSettingsTest, WithoutAnythingRequestsAreNotSigned) {
  const StoreSettings settings = read();
  EXPECT_FALSE(settings.s3.credentials.has_value());
  EXPECT_FALSE(settings.gs.credentials.has_value());
  EXPECT_EQ(settings.s3.region, "us-east-1");
  EXPECT_EQ(settings.s3.endpoint, "");
  EXPECT_EQ(settings.gs.endpoint, "https://storage.googleapis.com");
}

TEST_F(StoreSettingsTest, TheEnvironmentComesBeforeFiles) {
  write_home(
      ".aws/credentials",
      "# mine\n[default]\naws_access_key_id = FILE\naws_secret_access_key=of file\n"
      "[other]\r\naws_access_key_id = OTHER\r\naws_secret_access_key = secret=with=equals\r\n"
      "aws_session_token = token\r\n");
  write_home(".aws/config",
             "[default]\nregion = eu-central-1\n[profile other]\nregion = ap-1\n"
             "endpoint_url = http://127.0.0.1:1\n");
  variables_["AWS_PROFILE"] = "other";
  StoreSettings settings = read();
  ASSERT_TRUE(settings.s3.credentials.has_value());
  EXPECT_EQ(settings.s3.credentials->access_key, "OTHER");
  EXPECT_EQ(settings.s3.credentials->secret_key, "secret=with=equals");
  EXPECT_EQ(settings.s3.credentials->session_token, "token");
  EXPECT_EQ(settings.s3.region, "ap-1");
  EXPECT_EQ(settings.s3.endpoint, "http://127.0.0.1:1");
  variables_["AWS_ACCESS_KEY_ID"] = "ENV";
  variables_["AWS_SECRET_ACCESS_KEY"] = "secret";
  variables_["AWS_REGION"] = "us-west-2";
  variables_["AWS_ENDPOINT_URL"] = "https://minio.example";
  settings = read();
  EXPECT_EQ(settings.s3.credentials->access_key, "ENV");
  EXPECT_EQ(settings.s3.credentials->session_token, "");
  EXPECT_EQ(settings.s3.region, "us-west-2");
  EXPECT_EQ(settings.s3.endpoint, "https://minio.example");
}

TEST_F(StoreSettingsTest, GoogleKeysComeFromTheEnvironmentOrBoto) {
  write_home(".boto", "[Credentials]\ngs_access_key_id = GOOG\ngs_secret_access_key = s\n");
  EXPECT_EQ(read().gs.credentials->access_key, "GOOG");
  variables_["GS_ACCESS_KEY_ID"] = "OTHER";
  variables_["GS_SECRET_ACCESS_KEY"] = "s";
  variables_["STORAGE_EMULATOR_HOST"] = "127.0.0.1:9";
  EXPECT_EQ(read().gs.credentials->access_key, "OTHER");
  EXPECT_EQ(read().gs.endpoint, "http://127.0.0.1:9");
}

TEST_F(StoreSettingsTest, WhatIsWrongIsSaidWithoutKeys) {
  variables_["AWS_SECRET_ACCESS_KEY"] = "hidden";
  EXPECT_THAT(refusal(), HasSubstr("access key id"));
  EXPECT_THAT(refusal(), Not(HasSubstr("hidden")));
  variables_["AWS_ACCESS_KEY_ID"] = "hidden\nX-Header: 1";
  EXPECT_THAT(refusal(), HasSubstr("unexpected characters"));
  EXPECT_THAT(refusal(), Not(HasSubstr("hidden")));
  variables_ = {{"AWS_PROFILE", "nobody"}};
  EXPECT_THAT(refusal(), HasSubstr("AWS_PROFILE is \"nobody\""));
  variables_ = {{"AWS_ENDPOINT_URL", "minio:9000"}};
  EXPECT_THAT(refusal(), HasSubstr("expected a URL such as"));
  variables_ = {{"AWS_ENDPOINT_URL", std::string(100'000, 'a')}};
  EXPECT_LE(refusal().size(), 200);
}

}  // namespace
}  // namespace trireme::remote
