#include "trireme/remote/block_cache.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/file/digest.h"
#include "trireme/base/file/file.h"

namespace trireme::remote {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBlockEnding = ".block";
constexpr const char* kTemporaryEnding = ".new";
constexpr size_t kChecksumBytes = 16;
constexpr uint64_t kLocks = 64;
constexpr auto kLockPatience = std::chrono::seconds(5);

// A part of all processes' blocks, in which one at a time fetches. Held as long as it lives.
class FetchLock {
 public:
  FetchLock(const fs::path& path)
      : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    const auto start = std::chrono::steady_clock::now();
    // The holder may be stopped, or wait for a slow store. Then this one fetches the block too.
    while (file_.is_open() && ::flock(file_.get(), LOCK_EX | LOCK_NB) != 0 &&
           std::chrono::steady_clock::now() - start < kLockPatience) {
      has_waited_ = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  bool has_waited() const { return has_waited_; }

 private:
  Descriptor file_;
  bool has_waited_ = false;
};

std::string digits_of(std::string_view text) {
  return to_text(digest_of(std::as_bytes(std::span(text.data(), text.size()))));
}

}  // namespace

BlockCache::BlockCache(BlockCacheOptions options) : options_(std::move(options)) {
  const fs::path& folder = options_.folder;
  std::error_code failure;
  const bool was_there = fs::is_directory(folder, failure);
  fs::create_directories(folder, failure);
  if (!failure && !was_there) fs::permissions(folder, fs::perms::owner_all, failure);
  TRIREME_CHECK(!failure && ::access(folder.c_str(), R_OK | W_OK | X_OK) == 0, "data.cache is ",
                folder.string(), ", which cannot be written to",
                failure ? concat(" (", failure.message(), ")") : "",
                "; expected a folder on a local disk");
  sweep();
  uint64_t own = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, failure)) {
    std::error_code gone;
    const uintmax_t size = entry.file_size(gone);
    if (!gone) own += size;
  }
  const fs::space_info space = fs::space(folder, failure);
  TRIREME_CHECK(failure || space.available + own >= options_.max_bytes, "data.cache_bytes is ",
                options_.max_bytes, " and the disk of ", folder.string(), " has room for ",
                space.available + own, "; lower it, or put data.cache on another disk");
}

fs::path BlockCache::path_of(const std::string& key, uint64_t block) const {
  return options_.folder /
         (digits_of(concat(key, "\n", options_.block_bytes, "\n", block)) + kBlockEnding);
}

bool BlockCache::load(const fs::path& path, std::span<std::byte> block) const {
  try {
    const InputFile file(path);
    if (file.num_bytes() != block.size() + kChecksumBytes) return false;
    std::byte digits[kChecksumBytes];
    file.read(0, block);
    file.read(block.size(), digits);
    const std::string expected = checksum(block);
    if (std::memcmp(digits, expected.data(), kChecksumBytes) != 0) return false;
  } catch (const Error&) {
    return false;  // it is not there, or was removed meanwhile
  }
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used now
  return true;
}

void BlockCache::save(const fs::path& path, std::span<const std::byte> block) {
  if (monotonic_ns() < no_writes_before_) return;
  const fs::path temporary =
      options_.folder / concat(::getpid(), "-", num_temporary_++, kTemporaryEnding);
  try {
    OutputFile file(temporary);
    file.write(block.data(), block.size());
    file.write(checksum(block));
    file.close();
    fs::rename(temporary, path);
  } catch (const std::exception&) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    constexpr int64_t kMinute = 60'000'000'000;
    no_writes_before_ = monotonic_ns() + kMinute;
    return;
  }
  written_bytes_ += block.size() + kChecksumBytes;
  if (written_bytes_ > options_.max_bytes / 32) sweep();
}

void BlockCache::sweep() {
  struct Entry {
    timespec used{};
    uint64_t num_bytes = 0;
    fs::path path;
  };
  written_bytes_ = 0;
  std::vector<Entry> entries;
  uint64_t sum = 0;
  std::error_code failure;
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  for (const fs::directory_entry& each : fs::directory_iterator(options_.folder, failure)) {
    const fs::path ending = each.path().extension();
    const bool is_temporary = ending == kTemporaryEnding;
    struct stat status {};
    if ((ending != kBlockEnding && !is_temporary) || ::stat(each.path().c_str(), &status) != 0) {
      continue;
    }
    constexpr time_t kHour = 3600;
    if (is_temporary && now - status.st_mtim.tv_sec > kHour) {  // of a process that was killed
      std::error_code ignored;
      fs::remove(each.path(), ignored);
      continue;
    }
    const auto size = static_cast<uint64_t>(status.st_size);
    sum += size;
    if (!is_temporary) entries.push_back({status.st_mtim, size, each.path()});
  }
  // Leaves room for what each process writes until its next sweep.
  const uint64_t most = options_.max_bytes - options_.max_bytes / 8;
  if (sum <= most) return;
  std::ranges::sort(entries, {}, [](const Entry& entry) {
    return std::pair(entry.used.tv_sec, entry.used.tv_nsec);
  });
  for (const Entry& entry : entries) {
    if (sum <= most - most / 8) break;
    std::error_code ignored;
    fs::remove(entry.path, ignored);
    sum -= entry.num_bytes;
  }
}

void BlockCache::read(const std::string& key, uint64_t num_bytes, uint64_t offset,
                      std::span<std::byte> out, const Fetch& fetch) {
  const uint64_t size = options_.block_bytes;
  std::vector<std::byte> block;
  while (!out.empty()) {
    const uint64_t index = offset / size, begin = index * size;
    if (begin >= num_bytes) return fetch(offset, out);  // which says that there is no more
    block.resize(std::min(size, num_bytes - begin));
    const fs::path path = path_of(key, index);
    if (!load(path, block)) {
      const FetchLock lock(options_.folder /
                           concat("lock-", std::hash<std::string>()(path.string()) % kLocks));
      if (!lock.has_waited() || !load(path, block)) {
        fetch(begin, block);
        save(path, block);
      }
    }
    const uint64_t skip = offset - begin;
    const size_t count =
        std::min<uint64_t>(out.size(), block.size() - std::min<uint64_t>(skip, block.size()));
    if (count == 0) return fetch(offset, out);
    std::memcpy(out.data(), block.data() + skip, count);
    out = out.subspan(count);
    offset += count;
  }
}

}  // namespace trireme::remote
