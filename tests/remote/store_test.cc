#include "trireme/remote/store.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/remote/scripted_server.h"
#include "trireme/base/error.h"

namespace trireme::remote {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kSecret = "kept/to+itself";

StoreSettings settings_of(const ScriptedServer& server) {
  StoreAccess access{.credentials = Credentials{"ID", kSecret, ""},
                     .region = "us-east-1",
                     .endpoint = server.url()};
  return {.s3 = access, .gs = access};
}

StoreOptions patient(int64_t ms) {
  return {.patience = milliseconds(ms),
          .first_patience = milliseconds(ms),
          .first_pause = milliseconds(2)};
}

std::string text_of(Store& store, const std::string& url, const ObjectVersion& version,
                    uint64_t offset, size_t size) {
  std::string text(size, '?');
  store.read(url, version, offset, std::as_writable_bytes(std::span(text)));
  return text;
}

template <typename Error>
std::string failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no failure";
}

const std::string kObject = "The quick brown fox jumps over the lazy dog.";

// A server for s3://bucket/key, whatever it is asked for.
class StoreReads : public testing::Test {
 protected:
  static constexpr const char* kKey = "s3://bucket/key";
};

TEST_F(StoreReads, FindsAndReads) {
  ScriptedServer server([](const std::string& request) {
    EXPECT_TRUE(request.starts_with("GET /bucket/key HTTP/1.1")) << request;
    EXPECT_THAT(request_header(request, "authorization"), HasSubstr("Credential=ID/"));
    EXPECT_THAT(request, Not(HasSubstr(kSecret)));
    return range_answer(request, kObject);
  });
  Store store(settings_of(server));
  const auto version = store.find(kKey);
  ASSERT_TRUE(version.has_value());
  EXPECT_EQ(*version, (ObjectVersion{"\"v1\"", kObject.size()}));
  EXPECT_EQ(text_of(store, kKey, *version, 0, kObject.size()), kObject);
  EXPECT_EQ(text_of(store, kKey, *version, 4, 5), "quick");
  EXPECT_EQ(text_of(store, kKey, *version, kObject.size() - 1, 1), ".");
  EXPECT_THAT(failure_of<ConfigError>([&] { text_of(store, kKey, *version, 40, 10); }),
              HasSubstr("it ends before byte 50; it had 44 bytes"));
}

TEST_F(StoreReads, NamesArePercentEncoded) {
  ScriptedServer server([](const std::string& request) {
    EXPECT_TRUE(request.starts_with("GET /bucket/a/%C3%BC%2Bb%3D../c HTTP/1.1")) << request;
    return range_answer(request, kObject);
  });
  Store store(settings_of(server));
  EXPECT_TRUE(store.find("s3://bucket/a/\xc3\xbc+b=../c"));
}

TEST_F(StoreReads, AWebServerIsAskedForWhatAUrlMayHave) {
  ScriptedServer server([](const std::string& request) {
    EXPECT_TRUE(request.starts_with("GET /a%20b/%C3%BC%20+c HTTP/1.1")) << request;
    return range_answer(request, kObject);
  });
  Store store(settings_of(server));
  EXPECT_TRUE(store.find(server.url() + "/a b/\xc3\xbc%20+c"));
}

TEST_F(StoreReads, AnEmptyObjectHasNoBytes) {
  ScriptedServer server([](const std::string& request) { return range_answer(request, ""); });
  Store store(settings_of(server));
  EXPECT_EQ(store.find(kKey)->num_bytes, 0U);
}

TEST_F(StoreReads, PublicDataIsNotSignedAndWebServersGetNoKeys) {
  ScriptedServer server([](const std::string& request) {
    EXPECT_EQ(request_header(request, "authorization"), "");
    return range_answer(request, kObject);
  });
  StoreSettings settings = settings_of(server);
  Store signed_store(settings);
  EXPECT_TRUE(signed_store.find(server.url() + "/x"));
  settings.s3.credentials.reset();
  Store store(settings);
  EXPECT_TRUE(store.find(kKey));
}

TEST_F(StoreReads, AMissingObjectIsFoundOutAtOnce) {
  ScriptedServer server([](const std::string&) { return plain_answer("404 Not Found"); });
  Store store(settings_of(server));
  EXPECT_FALSE(store.find(kKey).has_value());
  EXPECT_EQ(server.num_requests(), 1);
}

TEST_F(StoreReads, ARefusalNamesTheStoresWordAndNoKey) {
  ScriptedServer server([](const std::string&) {
    return plain_answer("403 Forbidden", "",
                        "<Error><Code>AccessDenied</Code>\nkept/to+itself</Error>");
  });
  Store store(settings_of(server));
  const std::string failure = failure_of<ConfigError>([&] { store.find(kKey); });
  EXPECT_THAT(
      failure,
      HasSubstr("cannot read s3://bucket/key: the store refuses (status 403 AccessDenied)"));
  EXPECT_THAT(failure, Not(HasSubstr("kept")));
  EXPECT_THAT(failure, Not(HasSubstr("\n")));
  EXPECT_EQ(server.num_requests(), 1);
}

TEST_F(StoreReads, AWordOfTheStoreThatIsNoneIsNotShown) {
  ScriptedServer server([](const std::string&) {
    return plain_answer("403 Forbidden", "", "<Code>\x1b[31m evil</Code>");
  });
  Store store(settings_of(server));
  EXPECT_THAT(failure_of<ConfigError>([&] { store.find(kKey); }), HasSubstr("(status 403)"));
}

TEST_F(StoreReads, TriesAgainAfterErrorsThatPass) {
  std::atomic<int> num_asked{0};
  ScriptedServer server([&](const std::string& request) -> std::string {
    switch (num_asked++) {
      case 0: return plain_answer("503 Slow Down");
      case 1: return plain_answer("500 Internal Server Error");
      case 2: return "";  // closes without a word
      case 3: {           // breaks off
        const std::string whole = range_answer(request, kObject);
        return whole.substr(0, whole.size() - 2);
      }
      case 4: return plain_answer("429 Too Many Requests", "Retry-After: 0\r\n");
      case 5:
        return plain_answer("206 Partial Content",
                            "Content-Range: bytes 0-4/44\r\nETag: \"v1\"\r\n", "abc");
      default: return range_answer(request, kObject);
    }
  });
  Store store(settings_of(server), patient(20'000));
  EXPECT_EQ(text_of(store, kKey, {"\"v1\"", kObject.size()}, 4, 5), "quick");
  EXPECT_EQ(server.num_requests(), 7);
}

TEST_F(StoreReads, GivesUpWhenNothingAnswers) {
  ScriptedServer server([](const std::string&) { return plain_answer("503 Slow Down"); });
  Store store(settings_of(server), patient(300));
  EXPECT_THAT(failure_of<CommError>([&] { store.find(kKey); }),
              HasSubstr("no answer from the store in 0 s, at last status 503"));
  std::string nobody;
  {
    const ScriptedServer gone([](const std::string&) { return ""; });
    nobody = gone.url() + "/x";
  }
  EXPECT_THAT(failure_of<CommError>([&] { store.find(nobody); }),
              HasSubstr("no answer from the store"));
}

TEST_F(StoreReads, ServersThatDoNotSendPartsAreRefused) {
  ScriptedServer server([](const std::string&) { return plain_answer("200 OK", "", kObject); });
  Store store(settings_of(server));
  EXPECT_THAT(failure_of<ConfigError>([&] { store.find(kKey); }),
              HasSubstr("sends whole files only"));
}

TEST_F(StoreReads, OtherBytesThanAskedForAreRefused) {
  ScriptedServer server([](const std::string&) {
    return plain_answer("206 Partial Content", "Content-Range: bytes 7-11/44\r\nETag: \"v1\"\r\n",
                        "brown");
  });
  Store store(settings_of(server), patient(20'000));
  EXPECT_THAT(failure_of<ConfigError>([&] {
                text_of(store, kKey, {"\"v1\"", 44}, 4, 5);
              }),
              HasSubstr("asked for bytes from 4 on, the store sent 5 bytes from 7 on"));
}

TEST_F(StoreReads, AnAnswerWithoutEndIsNotReadOn) {
  ScriptedServer server([](const std::string&) {
    return plain_answer("206 Partial Content", "Content-Range: bytes 4-8/44\r\nETag: \"v1\"\r\n",
                        std::string(1 << 20, 'x'));
  });
  Store store(settings_of(server), patient(20'000));
  EXPECT_THAT(failure_of<ConfigError>([&] {
                text_of(store, kKey, {"\"v1\"", 44}, 4, 5);
              }),
              HasSubstr("the store sent"));
}

TEST_F(StoreReads, AChangedOrRemovedObjectIsNoticed) {
  std::atomic<int> now{0};
  ScriptedServer server([&](const std::string& request) {
    if (now == 2) return plain_answer("404 Not Found");
    return range_answer(request, kObject, now == 0 ? "\"v1\"" : "\"v2\"");
  });
  Store store(settings_of(server));
  const ObjectVersion version = store.find(kKey).value();
  now = 1;
  EXPECT_THAT(failure_of<ConfigError>([&] { text_of(store, kKey, version, 0, 3); }),
              HasSubstr("s3://bucket/key has changed since it was opened"));
  now = 2;
  EXPECT_THAT(failure_of<ConfigError>([&] { text_of(store, kKey, version, 0, 3); }),
              HasSubstr("is gone since it was opened"));
}

TEST_F(StoreReads, AServerThatIgnoresIfMatchIsCompared) {
  ScriptedServer server([](const std::string& request) {
    const std::string tag = request_header(request, "if-match").empty()
                                ? "\"v1\""
                                : request_header(request, "if-match");
    std::string answer = range_answer(request, kObject, tag);
    answer.replace(answer.find(tag), tag.size(), "\"v9\"");
    return answer;
  });
  Store store(settings_of(server));
  EXPECT_THAT(failure_of<ConfigError>([&] {
                text_of(store, kKey, {"\"v1\"", 44}, 0, 3);
              }),
              HasSubstr("has changed"));
}

TEST_F(StoreReads, AClockThatIsOffIsSetByTheStores) {
  ScriptedServer server([](const std::string& request) {
    const bool is_theirs = request_header(request, "x-amz-date").starts_with("20130524T0000");
    if (is_theirs) return range_answer(request, kObject);
    return plain_answer("403 Forbidden", "Date: Fri, 24 May 2013 00:00:00 GMT\r\n",
                        "<Code>RequestTimeTooSkewed</Code>");
  });
  Store store(settings_of(server));
  EXPECT_TRUE(store.find(kKey));
  EXPECT_EQ(server.num_requests(), 2);
  EXPECT_TRUE(store.find(kKey));
  EXPECT_EQ(server.num_requests(), 3);
}

TEST_F(StoreReads, AClockThatNobodyAcceptsEndsInOneLine) {
  ScriptedServer server([](const std::string&) {
    return plain_answer("403 Forbidden", "Date: Fri, 24 May 2013 00:00:00 GMT\r\n",
                        "<Code>RequestTimeTooSkewed</Code>");
  });
  Store store(settings_of(server));
  EXPECT_THAT(failure_of<ConfigError>([&] { store.find(kKey); }),
              HasSubstr("403 RequestTimeTooSkewed"));
  EXPECT_EQ(server.num_requests(), 2);
}

TEST_F(StoreReads, TheRegionThatTheStoreNamesIsUsed) {
  ScriptedServer server([](const std::string& request) {
    if (request_header(request, "authorization").find("/eu-west-3/s3/") != std::string::npos) {
      return range_answer(request, kObject);
    }
    return plain_answer("400 Bad Request", "x-amz-bucket-region: eu-west-3\r\n",
                        "<Code>AuthorizationHeaderMalformed</Code>");
  });
  Store store(settings_of(server));
  EXPECT_TRUE(store.find(kKey));
}

TEST_F(StoreReads, ThreadsReadAtOneTime) {
  ScriptedServer server([](const std::string& request) { return range_answer(request, kObject); });
  Store store(settings_of(server));
  std::vector<std::thread> threads;
  std::atomic<int> num_right{0};
  for (size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 10; ++i) {
        num_right += text_of(store, kKey, {"\"v1\"", 44}, t + i, 7) == kObject.substr(t + i, 7);
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(num_right, 80);
}

}  // namespace
}  // namespace trireme::remote
