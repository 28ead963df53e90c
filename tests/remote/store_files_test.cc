#include "trireme/remote/store_files.h"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "tests/remote/bucket.h"
#include "tests/remote/scripted_server.h"
#include "trireme/base/error.h"

namespace trireme::remote {
namespace {

TEST(StoreFiles, AreReadWithAndWithoutACache) {
  const std::string object = "0123456789";
  ScriptedServer server([&](const std::string& request) {
    if (request.find("/missing") != std::string::npos) return plain_answer("404 Not Found");
    return range_answer(request, object);
  });
  const StoreSettings settings{.s3 = {.endpoint = server.url()}};
  const harness::TemporaryFolder folder;
  for (const bool has_cache : {false, true}) {
    std::optional<BlockCacheOptions> cache;
    if (has_cache) cache = {.folder = folder.path() / "cache", .max_bytes = 1 << 20};
    const StoreFiles files(settings, {}, cache);
    const int asked = server.num_requests();
    EXPECT_EQ(files.find("s3://bucket/x")->num_bytes(), 10U);
    EXPECT_EQ(files.find("s3://bucket/missing"), nullptr);
    EXPECT_EQ(server.num_requests() - asked, 2);
    EXPECT_THROW(files.open("s3://bucket/missing"), ConfigError);
    const std::unique_ptr<ByteSource> file = files.open("s3://bucket/x");
    EXPECT_EQ(file->name(), "s3://bucket/x");
    EXPECT_EQ(file->version(), "\"v1\"");
    EXPECT_EQ(file->num_bytes(), 10U);
    EXPECT_EQ(read_all(*file, 10), object);
    const int before = server.num_requests();
    EXPECT_EQ(read_all(*file, 10), object);
    EXPECT_EQ(server.num_requests() - before, has_cache ? 0 : 1);
    std::byte bytes[2];
    EXPECT_THROW(file->read(9, bytes), Error);
    EXPECT_THROW(file->read(~uint64_t{0}, bytes), Error);
  }
}

TEST(StoreFiles, WhatHasNoVersionIsNotKept) {
  ScriptedServer server([](const std::string&) {
    return plain_answer("206 Partial Content", "Content-Range: bytes 0-0/1\r\n", "x");
  });
  const harness::TemporaryFolder folder;
  const StoreFiles files(
      {.s3 = {.endpoint = server.url()}}, {},
      BlockCacheOptions{.folder = folder.path() / "cache", .max_bytes = 1 << 20});
  const std::unique_ptr<ByteSource> file = files.open("s3://bucket/x");
  EXPECT_EQ(read_all(*file, 1), "x");
  EXPECT_EQ(read_all(*file, 1), "x");
  EXPECT_EQ(server.num_requests(), 3);
}

TEST(StoreFiles, AreListedWithTheirVersions) {
  Bucket bucket;
  bucket.put("data/b.txt", "bb");
  bucket.put("data/a/x.txt", "x");
  bucket.put("data/empty", "");
  bucket.put("other", "o");
  const StoreFiles files(bucket.settings(), {}, std::nullopt);
  for (const bool has_tags : {true, false}) {
    bucket.list_tags(has_tags);
    const int before = bucket.num_requests();
    const std::vector<std::unique_ptr<ByteSource>> listed = files.list("s3://bucket/data/");
    ASSERT_EQ(listed.size(), 3U);
    EXPECT_EQ(bucket.num_requests() - before, has_tags ? 2 : 5);  // pages of two names
    EXPECT_EQ(listed[0]->name(), "s3://bucket/data/a/x.txt");
    EXPECT_EQ(read_all(*listed[0], 10), "x");
    EXPECT_EQ(listed[1]->version(), files.open("s3://bucket/data/b.txt")->version());
    EXPECT_EQ(read_all(*listed[1], 10), "bb");
    EXPECT_EQ(listed[2]->num_bytes(), 0U);
  }
  const std::unique_ptr<ByteSource> old = std::move(files.list("s3://bucket/data/b")[0]);
  bucket.put("data/b.txt", "cc");
  std::byte bytes[2];
  EXPECT_THAT(harness::message_of<ConfigError>([&] { old->read(0, bytes); }),
              testing::HasSubstr("s3://bucket/data/b.txt has changed"));
  EXPECT_TRUE(files.list("s3://bucket/nothing/").empty());
  EXPECT_THAT(harness::message_of<ConfigError>([&] { files.list("https://host/data/"); }),
              testing::HasSubstr("a web server does not tell"));
  bucket.put("data/a\nb", "x");
  EXPECT_THAT(harness::message_of<ConfigError>([&] { files.list("s3://bucket/data/"); }),
              testing::HasSubstr("its name has a control character"));
}

TEST(StoreFiles, NamesMayHaveAnyCharacter) {
  Bucket bucket;
  const std::vector<std::string> names = {
      "d e/#1?.txt", "d e/%41", "d e/100%",    "d e/a b",
      "d e/a&b<c>",  "d e/a+b", "d e/a@b=c:d", "d e/\xc3\xbc\xe6\x97\xa5"};
  for (const std::string& name : names) bucket.put(name, "in " + name);
  bucket.put("d+e/other", "");
  const StoreFiles files(bucket.settings(), {}, std::nullopt);
  for (const bool has_tags : {true, false}) {
    bucket.list_tags(has_tags);
    std::vector<std::string> listed;
    for (const std::unique_ptr<ByteSource>& file : files.list("s3://bucket/d e/")) {
      listed.push_back(file->name().substr(std::string("s3://bucket/").size()));
      EXPECT_EQ(read_all(*file, 100), "in " + listed.back());
    }
    EXPECT_EQ(listed, names);
  }
  EXPECT_EQ(files.find("s3://bucket/d e/A"), nullptr);
}

TEST(StoreFiles, ACancelledPlaceReadsWhatItHas) {
  const std::string object = "0123456789";
  std::atomic<bool> is_dead = false;
  ScriptedServer server([&](const std::string& request) {
    return is_dead ? plain_answer("503 Slow Down", "Retry-After: 30\r\n")
                   : range_answer(request, object);
  });
  const harness::TemporaryFolder folder;
  const StoreFiles files(
      {.s3 = {.endpoint = server.url()}}, {.patience = std::chrono::hours(24)},
      BlockCacheOptions{.folder = folder.path() / "cache", .max_bytes = 1 << 20});
  const std::unique_ptr<ByteSource> kept = files.open("s3://bucket/kept");
  const std::unique_ptr<ByteSource> other = files.open("s3://bucket/other");
  EXPECT_EQ(read_all(*kept, 10), object);
  is_dead = true;
  std::thread reader([&] { EXPECT_THROW(read_all(*other, 10), CommError); });
  const int before = server.num_requests();
  while (server.num_requests() == before) std::this_thread::yield();
  files.cancel();
  reader.join();
  EXPECT_THROW(read_all(*other, 10), CommError);
  EXPECT_EQ(read_all(*kept, 10), object);
}

}  // namespace
}  // namespace trireme::remote
