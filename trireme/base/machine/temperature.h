// How hot the processor is, where Linux says so (/sys/class/hwmon, /sys/class/thermal). Virtual
// machines and containers mostly do not.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <vector>

namespace trireme {

// Not thread safe.
class ProcessorTemperature {
 public:
  // Finds the files once. sys: /sys
  explicit ProcessorTemperature(const std::filesystem::path& sys = "/sys");

  // The hottest sensor, in degrees Celsius; empty without one. Reads the files at most once in
  // `interval` and answers with what they had then: some drivers take milliseconds.
  std::optional<double> read(std::chrono::milliseconds interval = std::chrono::seconds(5));

 private:
  std::vector<std::filesystem::path> files_;
  std::chrono::steady_clock::time_point read_at_{};
  std::optional<double> last_;
};

}  // namespace trireme
