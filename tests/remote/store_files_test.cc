#include "trireme/remote/store_files.h"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
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
    EXPECT_TRUE(files.has("s3://bucket/x"));
    EXPECT_FALSE(files.has("s3://bucket/missing"));
    EXPECT_THROW(files.open("s3://bucket/missing"), ConfigError);
    const std::unique_ptr<ByteSource> file = files.open("s3://bucket/x");
    EXPECT_EQ(file->name(), "s3://bucket/x");
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
