#include "trireme/watch/serve/file_answers.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/watch/run/run_notes.h"
#include "trireme/watch/serve/answers.h"

namespace trireme::watch {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostTraces = 1000;

// The names of RUN/profile/*.json.
std::vector<std::string> traces_of(const WatchedRun& run) {
  std::vector<std::string> names;
  std::error_code problem;
  for (std::filesystem::directory_iterator each(run.folder() / "profile", problem), end;
       !problem && each != end && names.size() < kMostTraces; each.increment(problem)) {
    const std::string name = each->path().filename().string();
    if (name.ends_with(".json") && is_file(each->path())) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

class FilePieces : public comm::HttpPieces {
 public:
  explicit FilePieces(const std::filesystem::path& path) : file_(path) {}
  comm::HttpPiece next() override {
    constexpr uint64_t kPiece = uint64_t{256} << 10;
    const uint64_t size = std::min(kPiece, file_.num_bytes() - offset_);
    comm::HttpPiece piece{.bytes = std::string(size, '\0')};
    if (size > 0) file_.read(offset_, std::as_writable_bytes(std::span(piece.bytes)));
    offset_ += size;
    if (offset_ == file_.num_bytes()) piece.then = comm::HttpPiece::Then::kEnd;
    return piece;
  }

 private:
  InputFile file_;
  uint64_t offset_ = 0;
};

}  // namespace

ordered_json profile_answer(RunList& runs, const Parameters& parameters) {
  const auto index = parameters.whole("run", 0, 0, INT64_MAX);
  ordered_json files = ordered_json::array();
  for (const std::string& name : traces_of(asked_run(runs, parameters))) {
    files.push_back(
        {{"name", name}, {"url", concat("/api/trace?run=", index, "&name=", url_text(name))}});
  }
  return {{"files", std::move(files)}};
}

comm::HttpResponse trace_answer(RunList& runs, const Parameters& parameters) {
  const WatchedRun& run = asked_run(runs, parameters);
  const std::string asked = parameters.text("name").value_or("");
  const std::vector<std::string> names = traces_of(run);
  // The path is made of a name that the folder has given, never of the request's.
  const auto found = std::ranges::find(names, asked);
  TRIREME_CHECK(found != names.end(), "there is no trace ", shown(asked),
                "; expected a name of /api/profile");
  return {.pieces = std::make_shared<FilePieces>(run.folder() / "profile" / *found)};
}

ordered_json memory_answer(RunList& runs, const Parameters& parameters) {
  std::optional<int64_t> rank;
  if (parameters.text("rank")) rank = parameters.whole("rank", 0, 0, INT64_MAX);
  const auto peak = read_memory_peak(asked_run(runs, parameters).folder(), rank);
  if (!peak) return ordered_json::object();
  ordered_json kinds = ordered_json::object(), largest = ordered_json::array();
  for (const auto& [name, bytes] : peak->kinds) kinds[name] = bytes;
  for (const HeldTensor& each : peak->largest) {
    largest.push_back({{"bytes", each.bytes},
                       {"kind", each.kind},
                       {"operator", each.made_by},
                       {"unit", each.unit}});
  }
  return {{"step", peak->step},
          {"rank", peak->rank},
          {"total_bytes", peak->total_bytes},
          {"failed_bytes", peak->failed_bytes},
          {"kinds", std::move(kinds)},
          {"largest", std::move(largest)}};
}

}  // namespace trireme::watch
