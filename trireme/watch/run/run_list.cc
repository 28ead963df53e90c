#include "trireme/watch/run/run_list.h"

#include <algorithm>
#include <map>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::watch {
namespace {

using std::filesystem::path;

constexpr size_t kMostEntries = 20'000;  // of all folders that a search looks into
constexpr int kDepth = 2;
constexpr std::chrono::seconds kSearchInterval{5};
constexpr int kSearchPause = 10;  // times as long as the search took, at least

void add_runs(const path& folder, int depth, size_t& num_entries, std::vector<path>& found) {
  if (is_run(folder)) {
    found.push_back(folder);
    return;
  }
  if (depth == 0) return;
  std::vector<path> inner;
  std::error_code problem;
  for (std::filesystem::directory_iterator each(folder, problem), end;
       !problem && each != end && num_entries < kMostEntries;
       each.increment(problem), ++num_entries) {
    std::error_code ignored;
    if (each->is_directory(ignored) && !each->path().filename().string().starts_with('.'))
      inner.push_back(each->path());
  }
  std::ranges::sort(inner);
  for (const path& each : inner) add_runs(each, depth - 1, num_entries, found);
}

path plain(const path& folder) {
  const path normal = std::filesystem::absolute(folder).lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

}  // namespace

bool is_run(const path& folder) {
  std::error_code ignored;
  return is_file(folder / "config.toml") || is_file(folder / "metrics.jsonl") ||
         is_file(folder / "events.jsonl") ||
         std::filesystem::is_directory(folder / "recorder", ignored);
}

RunList::RunList(const std::vector<path>& folders) : folders_(folders) {
  for (const path& folder : folders_) {
    std::error_code problem;
    TRIREME_CHECK(std::filesystem::is_directory(folder, problem), folder.string(),
                  " is not a folder; expected the output.folder of a run, or a folder of runs");
  }
  find_runs();
  TRIREME_CHECK(
      !runs_.empty(), folders_.empty() ? "" : folders_.front().string(),
      " has no run; expected a folder with config.toml or metrics.jsonl, or one with such "
      "folders in it");
}

void RunList::find_runs() {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<path> found;
  size_t num_entries = 0;
  for (const path& folder : folders_) add_runs(folder, kDepth, num_entries, found);
  std::set<path> known;
  for (const auto& run : runs_) known.insert(plain(run->folder()));
  for (const path& folder : found) {
    if (runs_.size() < kMostRuns && known.insert(plain(folder)).second)
      runs_.push_back(std::make_unique<WatchedRun>(folder));
  }
  name_runs();
  const auto end = std::chrono::steady_clock::now();
  next_search_ = end + std::max<std::chrono::steady_clock::duration>(kSearchInterval,
                                                                     kSearchPause * (end - begin));
}

void RunList::name_runs() {
  std::map<std::string, int> counts;
  for (const auto& run : runs_) ++counts[run->name()];
  names_.clear();
  for (const auto& run : runs_)
    names_.push_back(counts[run->name()] > 1 ? run->folder().string() : run->name());
}

bool RunList::update(std::chrono::milliseconds patience) {
  if (std::chrono::steady_clock::now() >= next_search_) find_runs();
  is_read_ = false;
  const auto end = std::chrono::steady_clock::now() + patience;
  // A round may take several calls.
  for (; num_read_ < runs_.size(); ++num_read_, ++next_run_) {
    // One that has more is read on before the next begins.
    while (true) {
      const auto left = end - std::chrono::steady_clock::now();
      if (left.count() <= 0) return true;
      const auto patience_left = std::chrono::ceil<std::chrono::milliseconds>(left);
      if (!runs_[next_run_ % runs_.size()]->update(patience_left)) break;
    }
  }
  num_read_ = 0;
  is_read_ = true;
  return false;
}

}  // namespace trireme::watch
