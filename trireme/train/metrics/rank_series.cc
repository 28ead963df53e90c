#include "trireme/train/metrics/rank_series.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::train {

SeriesReader::SeriesReader(std::filesystem::path folder) : path_(std::move(folder) / kSeriesName) {}

// Whether there was something to forget.
bool SeriesReader::forget() {
  const bool has_read = offset_ > 0;
  identity_.reset();
  offset_ = 0;
  last_step_ = num_dropped_ = 0;
  has_more_ = false;
  return has_read;
}

bool SeriesReader::update(const OnBlock& on_block, const OnWaits& on_waits) {
  has_more_ = false;
  try {
    // The identity first: if another file takes the place meanwhile, the next call sees it.
    const auto identity = identity_of(path_);
    if (!identity) return forget();
    const InputFile file(path_);
    if ((identity_ && identity != identity_) || file.num_bytes() < offset_) return forget();
    identity_ = identity;
    BlockScanner scanner(file, offset_);
    const uint64_t begin = offset_;
    const int64_t dropped_before = num_dropped_;
    int64_t num_repeated = 0;
    const auto keep_place = [&] {
      offset_ = scanner.offset();
      num_dropped_ = dropped_before + scanner.num_dropped() + num_repeated;
    };
    while (auto block = scanner.next()) {
      if (auto* steps = std::get_if<SeriesBlock>(&block->content)) {
        if (steps->steps.front() <= last_step_) {
          ++num_repeated;
        } else {
          last_step_ = steps->steps.back();
          on_block(std::move(*steps));
        }
      } else if (const auto* waits = std::get_if<WaitBlock>(&block->content)) {
        on_waits(waits->records);
      }
      keep_place();
      if (offset_ - begin >= kMostReadAtOnce) {
        has_more_ = true;
        return false;
      }
    }
    keep_place();
  } catch (const Error&) {
    // Another kind of file, unreadable, or cut while it was read: what was read counts until the
    // next call finds out more.
  }
  return false;
}

void SeriesReader::read_newest(uint64_t num_bytes, const OnBlock& on_block) const {
  try {
    if (!is_file(path_)) return;
    const InputFile file(path_);
    // The scanner skips to the first block that begins behind its offset.
    BlockScanner scanner(file, file.num_bytes() - std::min(file.num_bytes(), num_bytes));
    while (auto block = scanner.next()) {
      if (auto* steps = std::get_if<SeriesBlock>(&block->content)) on_block(std::move(*steps));
    }
  } catch (const Error&) {
    // As in update().
  }
}

}  // namespace trireme::train
