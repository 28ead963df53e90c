#include "trireme/parallel/server/log/server_log.h"

#include <array>
#include <cstring>
#include <exception>
#include <span>

#include "trireme/base/error.h"
#include "trireme/base/file/digest.h"

namespace trireme::parallel {
namespace {

constexpr std::array<char, 16> kLogMagic = {'t', 'r', 'i', 'r', 'e', 'm', 'e', '-',
                                            's', 'v', 'l', 'o', 'g', ' ', '1', '\n'};
struct LogHeader {
  std::array<char, 16> magic = kLogMagic;
  Digest config;  // of the config's text
  uint64_t checksum = 0;
};
static_assert(sizeof(LogHeader) == 40);

struct StoredRecord {
  LogRecord record;
  uint64_t checksum = 0;
};
static_assert(sizeof(StoredRecord) == 48);
constexpr size_t kFlushBytes = 64 << 10;

uint64_t checksum_of(uint64_t before, const void* data, size_t num_bytes) {
  std::array<std::byte, 64> bytes;
  std::memcpy(bytes.data(), &before, sizeof(before));
  std::memcpy(bytes.data() + sizeof(before), data, num_bytes);
  // A chain of checksums: a record that is missing or moved changes all after it.
  return digest_of(std::span(bytes).first(sizeof(before) + num_bytes)).low;
}

Digest digest_of_text(const std::string& text) { return digest_of(std::as_bytes(std::span(text))); }

LogHeader header_of(const std::string& config) {
  LogHeader header;
  header.config = digest_of_text(config);
  header.checksum = checksum_of(0, &header, offsetof(LogHeader, checksum));
  return header;
}

OutputFile new_file(const std::filesystem::path& path) {
  // Never over an old log: it may be what a replay needs.
  if (std::filesystem::exists(path)) throw Error(concat(path.string(), " already exists"));
  return OutputFile(path);
}

}  // namespace

ServerLog::ServerLog(const std::filesystem::path& path, const std::string& config)
    : file_(new_file(path)) {
  const LogHeader header = header_of(config);
  checksum_ = header.checksum;
  buffer_.append(reinterpret_cast<const char*>(&header), sizeof(header));
  flush();
}

ServerLog::~ServerLog() {
  try {
    flush();
  } catch (const std::exception&) {
    // A replay says where the log ends.
  }
}

void ServerLog::append(const LogRecord& record) {
  checksum_ = checksum_of(checksum_, &record, sizeof(record));
  const StoredRecord stored{record, checksum_};
  buffer_.append(reinterpret_cast<const char*>(&stored), sizeof(stored));
  if (buffer_.size() >= kFlushBytes) flush();
}

void ServerLog::flush() {
  if (buffer_.empty()) return;
  file_.write(buffer_);
  buffer_.clear();
}

ReadLog read_server_log(const std::filesystem::path& path, const std::string& config) {
  const MappedFile file(path, kMaxLogBytes);
  std::span<const std::byte> bytes = file.bytes();
  LogHeader header;
  TRIREME_CHECK(bytes.size() >= sizeof(header), path.string(), " has ", bytes.size(),
                " bytes; a server's log has at least ", sizeof(header));
  std::memcpy(&header, bytes.data(), sizeof(header));
  TRIREME_CHECK(header.magic == kLogMagic, path.string(),
                " is not a log of a parameter server of this version of Trireme");
  const uint64_t check = checksum_of(0, &header, offsetof(LogHeader, checksum));
  TRIREME_CHECK(header.checksum == check, path.string(), " is damaged within its first ",
                sizeof(header), " bytes");
  TRIREME_CHECK(header.config == digest_of_text(config), path.string(),
                " was written by a run with another config; replay it with that config");
  ReadLog log;
  uint64_t checksum = header.checksum;
  size_t at = sizeof(header);
  for (; bytes.size() - at >= sizeof(StoredRecord); at += sizeof(StoredRecord)) {
    StoredRecord stored;
    std::memcpy(&stored, bytes.data() + at, sizeof(stored));
    checksum = checksum_of(checksum, &stored.record, sizeof(stored.record));
    const auto kind = static_cast<uint32_t>(stored.record.kind);
    TRIREME_CHECK(
        stored.checksum == checksum && kind >= 1 && kind <= static_cast<uint32_t>(LogKind::kClose),
        path.string(), " is damaged at byte ", at, "; use the log of another run");
    log.records.push_back(stored.record);
  }
  // A process that was killed leaves half a record, which is no damage.
  log.is_cut = at < bytes.size();
  return log;
}

}  // namespace trireme::parallel
