#include "trireme/train/metrics/series_writer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <system_error>
#include <utility>
#include <variant>

#include "trireme/base/error.h"

namespace trireme::train {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

// The file is written anew once so many full steps are more than need be there, and not at each.
constexpr int64_t kStepsBetweenThinnings = 1024;
// Nor before it has grown by this share, or a long run would copy a large file again and again.
constexpr uint64_t kGrowth = 8;
constexpr int kMostDoublings = 10;

// The steps before the newest kFullSteps that make whole groups; 0: none.
int64_t last_to_thin(int64_t last_step) {
  return std::max<int64_t>(0, last_step - kFullSteps) / kThinnedSteps * kThinnedSteps;
}

fs::path next_of(const fs::path& path) { return path.string() + ".next"; }

bool is_full(const SeriesBlock& block) {
  const size_t bytes = (block.values.size() + block.row_size()) * sizeof(float);
  return block.steps.size() == kBlockSteps || bytes > kMostValueBytes;
}

// Some steps' values as one row of the smallest, the mean and the largest.
class Group {
 public:
  explicit Group(size_t size)
      : smallest_(size, kUnknown), largest_(size, kUnknown), sums_(size), counts_(size) {}

  void add(std::span<const float> row) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (std::isnan(row[i])) continue;
      smallest_[i] = std::fmin(smallest_[i], row[i]);  // of a number and NaN: the number
      largest_[i] = std::fmax(largest_[i], row[i]);
      sums_[i] += row[i];
      ++counts_[i];
    }
  }

  std::vector<float> row() const {
    std::vector<float> row = smallest_;
    for (size_t i = 0; i < sums_.size(); ++i) {
      row.push_back(counts_[i] > 0 ? static_cast<float>(sums_[i] / counts_[i]) : kUnknown);
    }
    row.insert(row.end(), largest_.begin(), largest_.end());
    return row;
  }

 private:
  static constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

  std::vector<float> smallest_;
  std::vector<float> largest_;
  std::vector<double> sums_;
  std::vector<int> counts_;
};

// Writes blocks again, up to a step, the older ones thinned and small ones joined.
class Rewriter {
 public:
  Rewriter(OutputFile& file, int64_t last_step, int64_t last_thinned)
      : file_(file), last_step_(last_step), last_thinned_(last_thinned) {}

  void take(const SeriesBlock& block) {
    const size_t size = block.row_size();
    for (size_t i = 0; i < block.steps.size(); ++i) {
      const int64_t step = block.steps[i];
      const int64_t last = block.is_thinned ? end_of_group(step) : step;
      if (step <= newest_ || last > last_step_) continue;
      newest_ = step;
      const auto row = std::span(block.values).subspan(i * size, size);
      const bool is_thinned_now = !block.is_thinned && step <= last_thinned_;
      if (group_ && !(is_thinned_now && continues(block, step))) end_group();
      if (!is_thinned_now) {
        write_row(block, step, row);
      } else {
        if (!group_) begin_group(block, step);
        group_->add(row);
      }
    }
  }

  void take(const WaitBlock& block) {
    WaitBlock kept;
    std::ranges::copy_if(block.records, std::back_inserter(kept.records),
                         [&](const WaitRecord& wait) { return wait.step <= last_step_; });
    if (!kept.records.empty()) write(to_bytes(kept));
  }

  void finish() {
    if (group_) end_group();
    flush();
  }

  uint64_t num_bytes() const { return num_bytes_; }
  int64_t newest() const { return newest_; }
  int64_t first_full() const { return first_full_; }

 private:
  bool continues(const SeriesBlock& block, int64_t step) const {
    return end_of_group(step) == end_of_group(group_step_) && block.shape == like_group_.shape &&
           block.epoch == like_group_.epoch;
  }
  void begin_group(const SeriesBlock& block, int64_t step) {
    group_.emplace(block.row_size());
    group_step_ = step;
    like_group_ = {.shape = block.shape, .epoch = block.epoch, .is_thinned = true};
  }
  void end_group() {
    write_row(like_group_, group_step_, group_->row());
    group_.reset();
  }
  void write_row(const SeriesBlock& like, int64_t step, std::span<const float> row) {
    const bool fits = like.shape == open_.shape && like.epoch == open_.epoch &&
                      like.is_thinned == open_.is_thinned && !is_full(open_);
    if (!fits) {
      flush();
      open_ = {.shape = like.shape, .epoch = like.epoch, .is_thinned = like.is_thinned};
    }
    if (!like.is_thinned && first_full_ == 0) first_full_ = step;
    open_.steps.push_back(step);
    open_.values.insert(open_.values.end(), row.begin(), row.end());
  }
  void flush() {
    if (!open_.steps.empty()) write(to_bytes(open_));
    open_.steps.clear();
    open_.values.clear();
  }
  void write(const std::string& bytes) {
    file_.write(bytes);
    num_bytes_ += bytes.size();
  }

  OutputFile& file_;
  const int64_t last_step_;
  const int64_t last_thinned_;
  int64_t newest_ = 0;
  int64_t first_full_ = 0;
  uint64_t num_bytes_ = 0;
  SeriesBlock open_;
  SeriesBlock like_group_;
  int64_t group_step_ = 0;
  std::optional<Group> group_;
};

}  // namespace

// Nothing here may end the run, and what cannot be written is lost.
template <typename Work>
void SeriesWriter::attempt(const Work& work) {
  try {
    work();
    if (num_failures_ == 0) has_failed_ = false;  // a rewrite that rests has not succeeded
  } catch (const Error& error) {
    if (!std::exchange(has_failed_, true)) problem_ = error.what();
    // What is there of a block would hide those that follow it.
    std::error_code ignored;
    fs::remove(next_of(path_), ignored);
    if (identity_ && identity_of(path_) == identity_) fs::resize_file(path_, num_bytes_, ignored);
  }
}

SeriesWriter::SeriesWriter(SeriesOptions options)
    : options_(std::move(options)),
      path_(options_.run_folder / kSeriesFolder / kSeriesName),
      run_identity_(identity_of(options_.run_folder)),
      last_step_(options_.last_step),
      begun_(Clock::now()) {
  attempt([&] { compact(options_.last_step); });
}

SeriesWriter::~SeriesWriter() { flush(); }

void SeriesWriter::open() {
  std::error_code reported;  // by what opens the file
  fs::create_directories(path_.parent_path(), reported);
  file_.emplace(path_, /*append=*/true);
  identity_ = identity_of(path_);
}

// Puts a file in the place of the one there: the steps up to last_step, those before the newest
// kFullSteps thinned. Leaves the oldest blocks out if the file has grown above most_bytes.
void SeriesWriter::compact(int64_t last_step) {
  ++num_failures_;  // until it has succeeded
  num_rests_ = 0;
  std::error_code failure;  // of the folder, which the file then reports
  fs::create_directories(path_.parent_path(), failure);
  const fs::path next = next_of(path_);
  OutputFile file(next);
  Rewriter rewriter(file, last_step, last_to_thin(last_step));
  if (is_file(path_)) {
    const InputFile old(path_);
    uint64_t to_drop = old.num_bytes() - std::min(old.num_bytes(), options_.most_bytes);
    BlockScanner scanner(old, 0);
    while (const auto block = scanner.next()) {
      if (to_drop > 0) {
        to_drop -= std::min(to_drop, block->num_bytes);
        continue;
      }
      std::visit([&](const auto& content) { rewriter.take(content); }, block->content);
    }
  }
  rewriter.finish();
  file.sync();  // else a power loss could leave the new name without its bytes
  file.close();
  fs::rename(next, path_, failure);
  if (failure) throw Error(concat("cannot write ", path_.string(), ": ", failure.message()));
  num_bytes_ = compacted_bytes_ = rewriter.num_bytes();
  first_full_step_ = rewriter.first_full();
  num_failures_ = 0;
  open();
}

// Whether the file is still this writer's. Makes a removed one again, unless the run's folder is
// gone too.
bool SeriesWriter::is_in_place() {
  const auto found = identity_of(path_);
  if (found == identity_ && file_) return true;
  if (found && identity_) is_over_ = true;  // a later epoch's
  if (is_over_ || identity_of(options_.run_folder) != run_identity_) return false;
  if (!file_) {  // the first try has failed
    compact(options_.last_step);
    return true;
  }
  open();
  num_bytes_ = compacted_bytes_ = 0;
  first_full_step_ = 0;
  return true;
}

// Whether the file should be thinned or shortened.
bool SeriesWriter::is_due() const {
  const bool is_long =
      first_full_step_ > 0 && last_step_ - first_full_step_ >= kFullSteps + kStepsBetweenThinnings;
  const bool has_grown = num_bytes_ - compacted_bytes_ >= compacted_bytes_ / kGrowth;
  return (is_long && has_grown) || num_bytes_ > options_.most_bytes / 8 * 9;
}

// Whether to leave a compact() out. One that fails has copied as much as the disk had room for, so
// the tries become rarer.
bool SeriesWriter::rests() {
  const int num_wanted = (1 << std::min(num_failures_, kMostDoublings)) - 2;
  return num_rests_++ < num_wanted;
}

void SeriesWriter::write(const std::string& bytes) {
  file_->write(bytes);
  num_bytes_ += bytes.size();
}

void SeriesWriter::add(int64_t step, const SeriesShape& shape, std::span<const float> values) {
  const size_t size = static_cast<size_t>(shape.num_ranks) * shape.columns.size();
  TRIREME_ASSERT(values.size() == size, "a row of ", values.size(), " values for ", size);
  if (step <= last_step_ || size == 0 || size * sizeof(float) > kMostRowBytes || is_over_) return;
  if (shape != open_block_.shape || is_full(open_block_)) {
    flush();
    open_block_ = {.shape = shape, .epoch = options_.epoch};
  }
  last_step_ = step;
  open_block_.steps.push_back(step);
  open_block_.values.insert(open_block_.values.end(), values.begin(), values.end());
  if (Clock::now() - begun_ >= options_.patience) flush();
}

void SeriesWriter::add(std::vector<WaitRecord> waits) {
  std::ranges::move(waits, std::back_inserter(waits_));
  if (waits_.size() >= kMostWaits) flush();
}

void SeriesWriter::flush() {
  begun_ = Clock::now();
  if (file_ || !rests()) {
    attempt([&] {
      if ((open_block_.steps.empty() && waits_.empty()) || is_over_ || !is_in_place()) return;
      if (!open_block_.steps.empty()) {
        write(to_bytes(open_block_));
        if (first_full_step_ == 0) first_full_step_ = open_block_.steps.front();
      }
      for (size_t at = 0; at < waits_.size(); at += kMostWaits) {
        const auto part =
            std::span(waits_).subspan(at, std::min<size_t>(kMostWaits, waits_.size() - at));
        write(to_bytes(WaitBlock{.records = {part.begin(), part.end()}}));
      }
      if (is_due() && !rests()) compact(last_step_);
    });
  }
  open_block_.steps.clear();
  open_block_.values.clear();
  waits_.clear();
}

std::optional<std::string> SeriesWriter::take_problem() { return std::exchange(problem_, {}); }

}  // namespace trireme::train
