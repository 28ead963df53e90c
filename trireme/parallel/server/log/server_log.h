// The order of everything that a server did, in a file: with it an asynchronous run is repeated bit
// for bit. docs/parameter-servers.md has the byte offsets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/base/file/file.h"

namespace trireme::parallel::inline internal {

enum class LogKind : uint32_t { kAdvance = 1, kLeave, kPush, kPull };

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

// Appends records. Each has a checksum that covers it and all before it.
class ServerLog {
 public:
  // Makes the file; its folder must exist. `config`: a text that the replay must have too.
  // Throws: Error when it exists or cannot be made
  ServerLog(const std::filesystem::path& path, const std::string& config);

  // Throws: Error when the disk is full
  void append(const LogRecord& record);
  // Hands what was appended to the system, so that this process's death does not lose it.
  void flush();

 private:
  OutputFile file_;
  std::string buffer_;
  uint64_t checksum_ = 0;
};

struct ReadLog {
  std::vector<LogRecord> records;
  bool is_cut = false;  // the last record is incomplete, because the writer was killed
};

// Throws: ConfigError, one line, with the path and the byte where it is damaged, or when it is of
//         another config or longer than kMaxLogBytes; Error when it cannot be read
ReadLog read_server_log(const std::filesystem::path& path, const std::string& config);

}  // namespace trireme::parallel::inline internal
