// A file with the order of everything that a server did, from which an asynchronous run can be
// repeated bit for bit. Byte offsets: docs/design/server-protocol.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/base/file/file.h"

namespace trireme::parallel {

enum class LogKind : uint32_t { kAdvance = 1, kLeave, kPush, kPull, kAway, kClose };

struct LogRecord {
  LogKind kind = LogKind::kPush;
  uint32_t shard = 0;
  uint32_t worker = 0;
  uint32_t incarnation = 0;
  uint32_t piece = 0;
  uint32_t reserved = 0;
  int64_t step = 0;
  int64_t number = 0;  // pulls: the version of the answer; others: the event's number in its shard
  bool operator==(const LogRecord&) const = default;
};
static_assert(sizeof(LogRecord) == 40);

inline constexpr uint64_t kMaxLogBytes = uint64_t{4} << 30;

// Appends records. Each record's checksum covers it and all records before it.
class ServerLog {
 public:
  // Makes the file; its folder must exist.
  // config: a text that must be equal in the replay
  // Throws: Error if the file exists or cannot be made
  ServerLog(const std::filesystem::path& path, const std::string& config);
  // Flushes: a server may answer requests after the director has ended the run.
  ~ServerLog();
  ServerLog(const ServerLog&) = delete;
  ServerLog& operator=(const ServerLog&) = delete;

  // Throws: Error if the disk is full
  void append(const LogRecord& record);
  // Writes what was appended to the file, so that it survives this process.
  void flush();

 private:
  OutputFile file_;
  std::string buffer_;
  uint64_t checksum_ = 0;
};

struct ReadLog {
  std::vector<LogRecord> records;
  bool is_cut = false;  // the last record is incomplete because the writer was killed
};

// Throws: ConfigError, one line, with the path, and the byte if the log is damaged; also if it has
//         another config or is longer than kMaxLogBytes. Error if it cannot be read.
ReadLog read_server_log(const std::filesystem::path& path, const std::string& config);

}  // namespace trireme::parallel
