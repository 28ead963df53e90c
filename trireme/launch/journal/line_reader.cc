#include "trireme/launch/journal/line_reader.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::launch::inline internal {
namespace {

constexpr size_t kHeadBytes = 64;

std::filesystem::path older_than(const std::filesystem::path& path) {
  std::filesystem::path older = path;
  older += ".1";
  return older;
}

// Closed when there is no such file, perhaps because it is being rotated.
// Throws: Error when there is one that cannot be read
Descriptor open_if_there(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return Descriptor();
  try {
    return open_regular_file(path);
  } catch (const Error&) {
    if (!std::filesystem::exists(path, ignored)) return Descriptor();
    throw;
  }
}

std::string bytes_at(int fd, uint64_t offset, size_t num_bytes) {
  std::string bytes(num_bytes, '\0');
  ssize_t count = 0;
  do {
    count = ::pread(fd, bytes.data(), num_bytes, static_cast<off_t>(offset));
  } while (count < 0 && errno == EINTR);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(0, count)));
  return bytes;
}

}  // namespace

LineReader::LineReader(std::filesystem::path path, const Options& options)
    : path_(std::move(path)), options_(options) {}

std::optional<std::string> LineReader::next(bool is_final) {
  size_t searched = begin_;
  while (true) {
    const size_t end = buffer_.find('\n', searched);
    const size_t length = std::min(end, buffer_.size()) - begin_;
    if (length > options_.max_line_bytes) {
      begin_ += options_.max_line_bytes;
      return buffer_.substr(begin_ - options_.max_line_bytes, options_.max_line_bytes);
    }
    if (end != std::string::npos) {
      begin_ = end + 1;
      return buffer_.substr(end - length, length);
    }
    buffer_.erase(0, begin_);
    begin_ = 0;
    searched = buffer_.size();
    if (refill()) continue;
    if (!is_final || buffer_.empty()) return std::nullopt;
    return std::exchange(buffer_, {});
  }
}

// Adds what follows to the buffer. Returns false at the end of what is there.
bool LineReader::refill() {
  if (has_nothing_new()) return false;
  const std::filesystem::path older = older_than(path_);
  if (file_) {
    const Place place = place_of_file();
    if (place == Place::kCurrent) return read_from(path_);
    if (place == Place::kOlder && read_from(older)) return true;
    std::error_code ignored;
    if (!std::filesystem::exists(path_, ignored)) return false;
    // The end of a file that is not written any more. What follows is in PATH, or begins in PATH.1
    // if it was rotated twice.
    file_.reset();
    head_.clear();
    offset_ = 0;
    has_passed_older_ = place == Place::kOlder;
    if (!buffer_.empty()) {
      buffer_ += '\n';
      return true;
    }
  }
  return (options_.with_older && !has_passed_older_ && read_from(older)) || read_from(path_);
}

// Costs one stat, for the many files that do not grow while they are followed.
bool LineReader::has_nothing_new() const {
  struct stat status {};
  return file_ && ::stat(path_.c_str(), &status) == 0 &&
         file_ == FileIdentity{status.st_dev, status.st_ino} &&
         static_cast<uint64_t>(status.st_size) == offset_;
}

LineReader::Place LineReader::place_of_file() const {
  const auto is_it = [&](const std::filesystem::path& path) {
    const Descriptor file = open_if_there(path);
    return file.is_open() && identity_of(file.get()) == file_ &&
           bytes_at(file.get(), 0, kHeadBytes).starts_with(head_);
  };
  if (is_it(path_)) return Place::kCurrent;
  return is_it(older_than(path_)) ? Place::kOlder : Place::kGone;
}

bool LineReader::read_from(const std::filesystem::path& path) {
  const Descriptor file = open_if_there(path);
  if (!file.is_open()) return false;
  const std::string bytes = bytes_at(file.get(), offset_, options_.buffer_bytes);
  file_ = identity_of(file.get());
  head_ = bytes_at(file.get(), 0, kHeadBytes);
  offset_ += bytes.size();
  num_bytes_read_ += bytes.size();
  buffer_ += bytes;
  return !bytes.empty();
}

}  // namespace trireme::launch::inline internal
