#include "trireme/watch/run/run_notes.h"

#include <algorithm>
#include <cmath>
#include <system_error>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::watch {
namespace {

constexpr uint64_t kMostPredictionBytes = uint64_t{64} << 10;
constexpr uint64_t kMostPeakBytes = uint64_t{1} << 20;
constexpr size_t kMostPeaks = 4096;  // files that are looked at
constexpr size_t kMostNumbers = 64;
constexpr int64_t kMostMemory = int64_t{1} << 60;

// A failure is of more interest than a peak.
bool is_fuller(const MemoryPeak& peak, const MemoryPeak& other) {
  if ((peak.failed_bytes > 0) != (other.failed_bytes > 0)) return peak.failed_bytes > 0;
  return peak.total_bytes > other.total_bytes;
}

}  // namespace

Prediction parse_prediction(std::string_view text) {
  Prediction prediction;
  try {
    const nlohmann::json object = parse_json(text, "prediction.json");
    if (!object.is_object()) return {};
    for (const auto& [name, value] : object.items()) {
      if (!value.is_number() || prediction.size() == kMostNumbers) continue;
      const auto number = value.get<double>();
      if (std::isfinite(number) && number >= 0) prediction[name] = number;
    }
  } catch (const Error&) {
    return {};
  }
  return prediction;
}

Prediction read_prediction(const std::filesystem::path& run_folder) {
  const std::filesystem::path path = run_folder / "prediction.json";
  if (!is_file(path)) return {};
  try {
    return parse_prediction(read_file(path, kMostPredictionBytes));
  } catch (const Error&) {
    return {};
  }
}

std::optional<MemoryPeak> parse_memory_peak(std::string_view text) {
  try {
    const std::string source = "a snapshot of memory";
    const nlohmann::json value = parse_json(text, source);
    const JsonView view(value, source);
    MemoryPeak peak{.step = view.at("step").integer(0),
                    .rank = view.at("rank").integer(0),
                    .total_bytes = view.at("total_bytes").integer(0, kMostMemory)};
    if (const auto failed = view.find("failed_bytes"))
      peak.failed_bytes = failed->integer(0, kMostMemory);
    if (const auto kinds = view.find("kinds")) {
      for (const auto& [name, bytes] : kinds->members()) {
        if (peak.kinds.size() < kMostNumbers) peak.kinds.emplace_back(name, bytes.integer(0));
      }
    }
    for (const JsonView& each : view.at("largest").elements()) {
      peak.largest.push_back({.bytes = each.at("bytes").integer(0, kMostMemory),
                              .kind = each.at("kind").text(),
                              .made_by = each.at("operator").text(),
                              .unit = each.at("unit").text()});
    }
    return peak;
  } catch (const Error&) {
    return std::nullopt;  // damaged
  }
}

namespace {

std::string file_of(int64_t rank) {
  constexpr size_t kDigits = 5;
  std::string number = std::to_string(rank);
  number.insert(0, kDigits - std::min(kDigits, number.size()), '0');
  return concat("rank-", number, ".json");
}

std::optional<MemoryPeak> read_peak(const std::filesystem::path& path) {
  try {
    if (is_file(path)) return parse_memory_peak(read_file(path, kMostPeakBytes));
  } catch (const Error&) {
    // It has gone, or may not be read.
  }
  return std::nullopt;
}

}  // namespace

std::optional<MemoryPeak> read_memory_peak(const std::filesystem::path& run_folder,
                                           std::optional<int64_t> rank) {
  const std::filesystem::path folder = run_folder / "memory";
  std::optional<MemoryPeak> fullest;
  if (rank) {
    fullest = read_peak(folder / file_of(*rank));
    if (fullest && fullest->rank != *rank) fullest.reset();
    return fullest;
  }
  size_t count = 0;
  std::error_code problem;
  for (std::filesystem::directory_iterator each(folder, problem), end;
       !problem && each != end && count < kMostPeaks; each.increment(problem), ++count) {
    const std::string name = each->path().filename().string();
    if (!name.starts_with("rank-") || !name.ends_with(".json")) continue;
    auto peak = read_peak(each->path());
    if (peak && (!fullest || is_fuller(*peak, *fullest))) fullest = std::move(peak);
  }
  return fullest;
}

}  // namespace trireme::watch
