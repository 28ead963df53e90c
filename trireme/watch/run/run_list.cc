#include "trireme/watch/run/run_list.h"

#include <algorithm>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::watch {
namespace {

using std::filesystem::path;

constexpr size_t kMostEntries = 10'000;  // of a folder
constexpr int kDepth = 2;
constexpr std::chrono::seconds kSearchInterval{5};

void add_runs(const path& folder, int depth, std::vector<path>& found) {
  if (is_run(folder)) {
    found.push_back(folder);
    return;
  }
  if (depth == 0) return;
  std::vector<path> inner;
  std::error_code problem;
  size_t count = 0;
  for (std::filesystem::directory_iterator each(folder, problem), end;
       !problem && each != end && count < kMostEntries; each.increment(problem), ++count) {
    std::error_code ignored;
    if (each->is_directory(ignored) && !each->path().filename().string().starts_with('.'))
      inner.push_back(each->path());
  }
  std::ranges::sort(inner);
  for (const path& each : inner) add_runs(each, depth - 1, found);
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
  next_search_ = std::chrono::steady_clock::now() + kSearchInterval;
  std::vector<path> found;
  for (const path& folder : folders_) add_runs(folder, kDepth, found);
  for (const path& folder : found) {
    const bool is_known = std::ranges::any_of(
        runs_, [&](const auto& run) { return plain(run->folder()) == plain(folder); });
    if (!is_known && runs_.size() < kMostRuns)
      runs_.push_back(std::make_unique<WatchedRun>(folder));
  }
  name_runs();
}

void RunList::name_runs() {
  std::map<std::string, int> counts;
  for (const auto& run : runs_) ++counts[run->name()];
  names_.clear();
  for (const auto& run : runs_)
    names_.push_back(counts[run->name()] > 1 ? run->folder().string() : run->name());
}

bool RunList::update(std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  if (std::chrono::steady_clock::now() >= next_search_) find_runs();
  bool has_more = false;
  for (size_t i = 0; i < runs_.size(); ++i) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return true;
    const bool goes_on = runs_[next_run_ % runs_.size()]->update(left);
    has_more = has_more || goes_on;
    // One that has more is read on before the next begins.
    if (!goes_on) ++next_run_;
  }
  return has_more;
}

}  // namespace trireme::watch
