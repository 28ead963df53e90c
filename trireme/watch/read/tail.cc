#include "trireme/watch/read/tail.h"

#include <algorithm>
#include <utility>

#include <sys/stat.h>

#include "trireme/base/error.h"

namespace trireme::watch {
namespace {

constexpr size_t kPieceBytes = size_t{256} << 10;

}  // namespace

Tail::Tail(std::filesystem::path path, const Options& options)
    : path_(std::move(path)), options_(options) {}

void Tail::forget() {
  last_look_.reset();
  place_ = {};
  held_.clear();
  is_skipping_ = false;
  num_too_long_ = 0;
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
  if (place_.is_set() && !place_.is_in(file.get())) {
    forget();
    on_reset();
    progress.is_reset = true;
  }
  const uint64_t end = std::min(look.num_bytes, place_.offset() + most_bytes);
  while (place_.offset() < end) {
    const std::string bytes =
        place_.read(file.get(), std::min<uint64_t>(kPieceBytes, end - place_.offset()));
    if (bytes.empty()) break;  // it was cut meanwhile; the next look sees that
    take(bytes, on_line);
  }
  progress.has_more = place_.offset() < look.num_bytes && place_.offset() == end;
  last_look_.reset();
  if (place_.offset() == look.num_bytes) last_look_ = look;
  return progress;
}

}  // namespace trireme::watch
