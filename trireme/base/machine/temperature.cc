#include "trireme/base/machine/temperature.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Drivers of processors' sensors, and kinds of thermal zones that are processors.
constexpr std::string_view kDrivers[] = {"coretemp", "k10temp", "zenpower", "cpu_thermal"};
constexpr std::string_view kZones[] = {"x86_pkg_temp", "cpu-thermal", "cpu_thermal", "soc-thermal"};
constexpr size_t kMostSensors = 64;
constexpr uint64_t kMostText = 64 << 10;  // files in /sys have the size of a page

// The first word of a small file; "" when it cannot be read.
std::string word_in(const fs::path& path) {
  try {
    const std::string text = read_file(path, kMostText);
    return text.substr(0, text.find_first_of(" \n"));
  } catch (const Error&) {
    return "";
  }
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code failure;
  for (fs::directory_iterator each(folder, failure), end;
       !failure && each != end && found.size() < 4 * kMostSensors; each.increment(failure)) {
    found.push_back(each->path());
  }
  std::ranges::sort(found);
  return found;
}

bool is_in(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::optional<double> degrees_in(const fs::path& path) {
  const std::string text = word_in(path);
  int64_t thousandths = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), thousandths);
  const double degrees = static_cast<double>(thousandths) / 1000;
  const bool is_sensible = error == std::errc() && degrees > -50 && degrees < 250;
  return is_sensible && !text.empty() ? std::optional(degrees) : std::nullopt;
}

}  // namespace

ProcessorTemperature::ProcessorTemperature(const fs::path& sys) {
  for (const fs::path& monitor : entries(sys / "class" / "hwmon")) {
    if (!is_in(kDrivers, word_in(monitor / "name"))) continue;
    for (const fs::path& file : entries(monitor)) {
      const std::string name = file.filename().string();
      if (name.starts_with("temp") && name.ends_with("_input")) files_.push_back(file);
    }
  }
  if (files_.empty()) {
    for (const fs::path& zone : entries(sys / "class" / "thermal")) {
      if (is_in(kZones, word_in(zone / "type"))) files_.push_back(zone / "temp");
    }
  }
  if (files_.size() > kMostSensors) files_.resize(kMostSensors);
}

std::optional<double> ProcessorTemperature::read(std::chrono::milliseconds interval) {
  const auto now = std::chrono::steady_clock::now();
  const bool is_first = read_at_ == std::chrono::steady_clock::time_point();
  if (files_.empty() || (!is_first && now - read_at_ < interval)) return last_;
  read_at_ = now;
  last_.reset();
  for (const fs::path& file : files_) {
    if (const auto degrees = degrees_in(file)) last_ = std::max(last_.value_or(*degrees), *degrees);
  }
  return last_;
}

}  // namespace trireme
