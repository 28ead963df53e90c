#include "trireme/watch/serve/file_answers.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/watch/serve/answers.h"

namespace trireme::watch {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostTraces = 1000;
constexpr uint64_t kMostSnapshotBytes = uint64_t{64} << 20;
constexpr int64_t kMostMemory = int64_t{1} << 60;

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
  const std::filesystem::path path = asked_run(runs, parameters).folder() / "memory" / "peak.json";
  if (!is_file(path)) return ordered_json::object();
  try {
    const std::string source = "memory/peak.json";
    const nlohmann::json value = parse_json(read_file(path, kMostSnapshotBytes), source);
    const JsonView view(value, source);
    ordered_json largest = ordered_json::array();
    for (const JsonView& each : view.at("largest").elements()) {
      largest.push_back({{"bytes", each.at("bytes").integer(0, kMostMemory)},
                         {"kind", each.at("kind").text()},
                         {"operator", each.at("operator").text()},
                         {"unit", each.at("unit").text()}});
    }
    return {{"step", view.at("step").integer(0)},
            {"rank", view.at("rank").integer(0)},
            {"total_bytes", view.at("total_bytes").integer(0, kMostMemory)},
            {"largest", std::move(largest)}};
  } catch (const Error&) {
    return ordered_json::object();  // damaged, or being written
  }
}

}  // namespace trireme::watch
