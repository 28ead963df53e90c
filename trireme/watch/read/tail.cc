#include "trireme/watch/read/tail.h"

#include <algorithm>
#include <utility>

#include <sys/stat.h>

#include "trireme/base/error.h"
#include "trireme/launch/journal/line_file.h"

namespace trireme::watch {
namespace {

constexpr size_t kPieceBytes = size_t{256} << 10;
// A file that was cut and has grown again differs within these bytes before the place that was
// reached: a line has the step's number, its time and its losses.
constexpr size_t kMarkBytes = 256;

}  // namespace

Tail::Tail(std::filesystem::path path, const Options& options)
    : path_(std::move(path)), options_(options) {}

void Tail::forget() {
  file_.reset();
  last_look_.reset();
  offset_ = 0;
  head_.clear();
  before_.clear();
  held_.clear();
  is_skipping_ = false;
  num_too_long_ = 0;
}

bool Tail::is_same_file(int fd, const Look& look) const {
  return file_ == look.identity && look.num_bytes >= offset_ &&
         launch::bytes_at(fd, 0, head_.size()) == head_ &&
         launch::bytes_at(fd, offset_ - before_.size(), before_.size()) == before_;
}

void Tail::take(std::string_view bytes, const std::function<void(std::string_view)>& on_line) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    const bool is_too_long = held_.size() + part.size() > options_.most_line_bytes;
    if (is_too_long && !is_skipping_) {
      is_skipping_ = true;
      ++num_too_long_;
      held_ = {};
    }
    if (end == bytes.npos) {
      if (!is_skipping_) held_ += part;
      return;
    }
    if (!is_skipping_ && held_.empty()) {
      on_line(part);
    } else if (!is_skipping_) {
      held_ += part;
      on_line(held_);
      held_.clear();
    }
    is_skipping_ = false;
    bytes.remove_prefix(end + 1);
  }
}

void Tail::remember_place(int fd) {
  head_ = launch::bytes_at(fd, 0, std::min<uint64_t>(offset_, kMarkBytes));
  const size_t num_before = std::min<uint64_t>(offset_, kMarkBytes);
  before_ = launch::bytes_at(fd, offset_ - num_before, num_before);
}

Tail::Progress Tail::update(uint64_t most_bytes,
                            const std::function<void(std::string_view)>& on_line,
                            const std::function<void()>& on_reset) {
  Progress progress;
  Descriptor file;
  try {
    if (!is_file(path_)) return progress;
    file = open_regular_file(path_);
  } catch (const Error&) {
    return progress;  // it has gone, or may not be read
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return progress;
  const Look look = {
      .identity = {.device = status.st_dev, .inode = status.st_ino},
      .num_bytes = static_cast<uint64_t>(status.st_size),
      .changed_ns = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
  changed_at_ = static_cast<double>(look.changed_ns) / 1e9;
  if (last_look_ == look) return progress;
  if (file_ && !is_same_file(file.get(), look)) {
    forget();
    on_reset();
    progress.is_reset = true;
  }
  file_ = look.identity;
  const uint64_t end = std::min(look.num_bytes, offset_ + most_bytes);
  while (offset_ < end) {
    const std::string bytes =
        launch::bytes_at(file.get(), offset_, std::min<uint64_t>(kPieceBytes, end - offset_));
    if (bytes.empty()) break;  // it was cut meanwhile; the next look sees that
    offset_ += bytes.size();
    take(bytes, on_line);
  }
  remember_place(file.get());
  progress.has_more = offset_ < look.num_bytes && offset_ == end;
  last_look_.reset();
  if (offset_ == look.num_bytes) last_look_ = look;
  return progress;
}

}  // namespace trireme::watch
