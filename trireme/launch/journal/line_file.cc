#include "trireme/launch/journal/line_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::launch {
namespace {

// Bytes written; fewer than asked for when errno says why.
size_t write_all(int fd, std::string_view bytes) {
  size_t done = 0;
  // A write that returns 0 leaves errno alone; an old value would be reported.
  errno = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  return done;
}

// Whether the file does not end in a newline.
bool ends_within_a_line(int fd, uint64_t num_bytes) {
  char last = '\n';
  return num_bytes > 0 && ::pread(fd, &last, 1, static_cast<off_t>(num_bytes - 1)) == 1 &&
         last != '\n';
}

}  // namespace

AppendFile::AppendFile(std::filesystem::path path) : path_(std::move(path)) {}

bool AppendFile::try_open() {
  if (file_.is_open()) return true;
  std::error_code no_folder;
  std::filesystem::create_directories(path_.parent_path(), no_folder);
  // No link: whoever may write to the folder could lead the output elsewhere.
  // Non-blocking for a FIFO in the file's place: open would wait for a reader. Other kinds are
  // refused below.
  constexpr int kFlags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;
  Descriptor file(::open(path_.c_str(), kFlags, 0666));
  // The reason for the missing folder says more than ENOENT.
  if (!file.is_open() && errno == ENOENT && no_folder) errno = no_folder.value();
  struct stat status {};
  if (!file.is_open() || ::fstat(file.get(), &status) != 0) return false;
  if (!S_ISREG(status.st_mode)) {
    errno = EINVAL;
    return false;
  }
  file_ = std::move(file);
  num_bytes_ = static_cast<uint64_t>(status.st_size);
  // A killed writer may have left half a line. The next one must not be read as its end.
  is_torn_ = ends_within_a_line(file_.get(), num_bytes_);
  return true;
}

// Nobody would find what is written to a file without a name.
bool AppendFile::is_removed() const {
  struct stat status {};
  return file_.is_open() && ::fstat(file_.get(), &status) == 0 && status.st_nlink == 0;
}

bool AppendFile::fail() {
  const int code = errno;
  ++num_lost_;
  if (!is_failing_) problem_ = concat("cannot write ", path_.string(), ": ", std::strerror(code));
  is_failing_ = true;
  return false;
}

bool AppendFile::append(std::string_view line) {
  if (is_removed()) {
    // Opened anew below, so that the next lines are found under the name.
    file_ = Descriptor();
    was_removed_ = true;
  }
  if (!try_open()) return fail();
  // One write for both: with O_APPEND another process's line cannot come between.
  std::string bytes;
  if (is_torn_) bytes = "\n";
  bytes += line;
  const size_t done = write_all(file_.get(), bytes);
  num_bytes_ += done;
  // Half a line on a full disk: the next write begins with the newline that it lacks.
  if (done > 0) is_torn_ = done < bytes.size() && bytes[done - 1] != '\n';
  if (done < bytes.size()) return fail();
  is_failing_ = false;
  return true;
}

int64_t AppendFile::take_lost() { return std::exchange(num_lost_, 0); }

std::string AppendFile::take_problem() { return std::exchange(problem_, {}); }

bool AppendFile::take_removed() { return std::exchange(was_removed_, false); }

void AppendFile::rotate() {
  // If it cannot be renamed it goes on growing, which loses nothing.
  std::filesystem::path older = path_;
  older += ".1";
  if (::rename(path_.c_str(), older.c_str()) == 0) file_ = Descriptor();
  // Zero also after a failed rename, or every line from now on would try again.
  num_bytes_ = 0;
}

// A log may be rotated while it is read. The reader keeps no file open; it finds its file again
// under either name. When it is under neither, the file was rotated twice, and what follows begins
// in PATH.1.

namespace {

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
    // Between the two looks it may have been renamed. Absence is not an error then.
    if (!std::filesystem::exists(path, ignored)) return Descriptor();
    throw;
  }
}

}  // namespace

LineReader::LineReader(std::filesystem::path path, const Options& options)
    : path_(std::move(path)), options_(options) {}

std::optional<std::string> LineReader::next(bool is_final) {
  size_t searched = begin_;
  while (true) {
    const size_t end = buffer_.find('\n', searched);
    const size_t length = std::min(end, buffer_.size()) - begin_;
    // Cut and not skipped: memory stays bounded, and the line's beginning is what people need.
    if (length > options_.max_line_bytes) {
      begin_ += options_.max_line_bytes;
      return buffer_.substr(begin_ - options_.max_line_bytes, options_.max_line_bytes);
    }
    if (end != std::string::npos) {
      begin_ = end + 1;
      return buffer_.substr(end - length, length);
    }
    // Only now, with no full line left: erasing for each line would move the buffer every time.
    buffer_.erase(0, begin_);
    begin_ = 0;
    searched = buffer_.size();
    if (refill()) continue;
    // Half a line may be under way. Only a reader that never comes back takes it as it is.
    if (!is_final || buffer_.empty()) return std::nullopt;
    return std::exchange(buffer_, {});
  }
}

// Adds what follows to the buffer. Returns false at the end of what is there.
bool LineReader::refill() {
  // One stat, for the many files that do not grow while they are followed. Of the path and not of
  // an open file: a rotation changes what the name means.
  if (place_.is_at_end_of(path_)) return false;
  const std::filesystem::path older = older_than(path_);
  if (place_.is_set()) {
    const Place place = place_of_file();
    if (place == Place::kCurrent) return read_from(path_);
    if (place == Place::kOlder && read_from(older)) return true;
    std::error_code ignored;
    if (!std::filesystem::exists(path_, ignored)) return false;
    // The end of a file that is not written any more. What follows is in PATH, or begins in PATH.1
    // if it was rotated twice.
    place_ = {};
    has_passed_older_ = place == Place::kOlder;
    // The writer of the old file has gone on elsewhere, so its last half line will not be
    // completed.
    if (!buffer_.empty()) {
      buffer_ += '\n';
      return true;
    }
  }
  if (options_.with_older && !has_passed_older_ && read_from(older)) return true;
  if (place_.offset() == 0) place_ = {};  // PATH.1 is empty
  return read_from(path_);
}

LineReader::Place LineReader::place_of_file() const {
  const auto is_it = [&](const std::filesystem::path& path) {
    const Descriptor file = open_if_there(path);
    return file.is_open() && place_.is_in(file.get());
  };
  if (is_it(path_)) return Place::kCurrent;
  return is_it(older_than(path_)) ? Place::kOlder : Place::kGone;
}

bool LineReader::read_from(const std::filesystem::path& path) {
  const Descriptor file = open_if_there(path);
  // It may have been rotated since it was found.
  if (!file.is_open() || (place_.is_set() && !place_.is_in(file.get()))) return false;
  const std::string bytes = place_.read(file.get(), options_.buffer_bytes);
  num_bytes_read_ += bytes.size();
  buffer_ += bytes;
  return !bytes.empty();
}

}  // namespace trireme::launch
