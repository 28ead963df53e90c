#include "trireme/parallel/server/log/server_log.h"

#include <fstream>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/parallel/server/replica.h"

namespace trireme::parallel {
namespace {

std::vector<LogRecord> some_records(int64_t count) {
  std::vector<LogRecord> records;
  for (int64_t i = 0; i < count; ++i) {
    records.push_back({.kind = static_cast<LogKind>(1 + i % 4),
                       .shard = 2,
                       .worker = static_cast<uint32_t>(i % 3),
                       .incarnation = 1,
                       .piece = static_cast<uint32_t>(i),
                       .step = i,
                       .number = -i});
  }
  return records;
}

void write_log(const std::filesystem::path& path, const std::vector<LogRecord>& records) {
  ServerLog log(path, "config");
  for (const LogRecord& record : records) log.append(record);
  log.flush();
}

std::string bytes_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

TEST(ServerLog, ReadsWhatItWrote) {
  const harness::TemporaryFolder folder;
  for (const int64_t count : {0, 1, 5'000}) {
    const auto path = folder / std::to_string(count);
    write_log(path, some_records(count));
    EXPECT_EQ(std::filesystem::file_size(path), 40U + 48U * static_cast<size_t>(count));
    const ReadLog log = read_server_log(path, "config");
    EXPECT_EQ(log.records, some_records(count));
    EXPECT_FALSE(log.is_cut);
  }
}

TEST(ServerLog, KeepsAnExistingFile) {
  const harness::TemporaryFolder folder;
  write_log(folder / "log", some_records(1));
  EXPECT_THROW(ServerLog(folder / "log", "config"), Error);
  EXPECT_THROW(ServerLog(folder / "none" / "log", "config"), Error);
}

TEST(ServerLog, AKilledWritersLogEndsBeforeTheIncompleteRecord) {
  const harness::TemporaryFolder folder;
  const auto path = folder / "log";
  write_log(path, some_records(6));
  const std::string whole = bytes_of_file(path);
  for (size_t size = 40; size < whole.size(); ++size) {
    put(path, whole.substr(0, size));
    const ReadLog log = read_server_log(path, "config");
    EXPECT_EQ(log.records.size(), (size - 40) / 48);
    EXPECT_EQ(log.is_cut, (size - 40) % 48 != 0);
  }
  for (size_t size = 0; size < 40; ++size) {
    put(path, whole.substr(0, size));
    EXPECT_THROW(read_server_log(path, "config"), ConfigError);
  }
}

TEST(ServerLog, FindsEveryDamagedByte) {
  const harness::TemporaryFolder folder;
  const auto path = folder / "log";
  write_log(path, some_records(3));
  const std::string whole = bytes_of_file(path);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    put(path, damaged);
    try {
      read_server_log(path, "config");
      FAIL() << "byte " << at;
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(ServerLog, RefusesRecordsInAnotherOrderAndOtherConfigs) {
  const harness::TemporaryFolder folder;
  const auto path = folder / "log";
  write_log(path, some_records(3));
  EXPECT_THROW(read_server_log(path, "other"), ConfigError);
  const std::string whole = bytes_of_file(path);
  put(path, whole.substr(0, 40) + whole.substr(88, 48) + whole.substr(40, 48));
  EXPECT_THROW(read_server_log(path, "config"), ConfigError);
  EXPECT_THROW(read_server_log(folder.path(), "config"), Error);
}

TEST(ServerLog, WhatWasAppendedIsThereWhenItIsGone) {
  const harness::TemporaryFolder folder;
  {
    ServerLog log(folder / "log", "config");
    for (const LogRecord& record : some_records(3)) log.append(record);
  }
  EXPECT_EQ(read_server_log(folder / "log", "config").records, some_records(3));
}

Request request_of(const LogRecord& record, PeerId peer) {
  Request request{.peer = peer, .frame = {}};
  request.frame.header.worker = record.worker;
  request.frame.header.piece = record.piece;
  request.frame.header.step = record.step;
  return request;
}

// A worker sends again what nobody has acknowledged when a view changes. In a replay the first one
// may still wait for its turn.
TEST(ReplayOrder, ARequestThatIsSentAgainIsOne) {
  const harness::TemporaryFolder folder;
  for (const LogKind kind : {LogKind::kPush, LogKind::kPull}) {
    const auto path = folder / std::to_string(static_cast<int>(kind));
    const LogRecord first{.kind = kind, .worker = 0, .piece = 3, .step = 1},
        second{.kind = kind, .worker = 1, .piece = 3, .step = 1};
    write_log(path, {first, second});
    ReplayOrder order(path, "config");
    order.add(kind, request_of(second, 5));
    EXPECT_FALSE(order.take());
    order.add(kind, request_of(second, 6));
    order.add(kind, request_of(first, 7));
    EXPECT_EQ(order.take().value().peer, 7);
    EXPECT_EQ(order.take().value().peer, 6) << "on its newest connection";
    EXPECT_EQ(order.next(), nullptr);
    EXPECT_FALSE(order.take_surplus());
    order.add(kind, request_of({.kind = kind, .worker = 1, .piece = 3, .step = 2}, 6));
    EXPECT_TRUE(order.take_surplus());
  }
}

}  // namespace
}  // namespace trireme::parallel
