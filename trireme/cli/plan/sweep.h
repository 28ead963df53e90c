// A prediction for each of several values of a key: strong and weak scaling, or any axis.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "trireme/cli/plan/planning.h"

namespace trireme::cli {

struct SweepPoint {
  std::string value;
  plan::StepPrediction step{};
  std::string refusal{};  // why the runtime cannot run it; then there is no step
};

struct Sweep {
  std::string key;
  std::vector<SweepPoint> points{};

  std::string table() const;
  std::string csv() const;
  // Tokens per second of each value, from zero, beside those in proportion to the devices. What
  // does not fit is drawn hollow.
  std::string svg() const;
  nlohmann::json json() const;
};

// The two files and overrides of a case.
struct CaseFiles {
  std::string config;
  std::string cluster;
  std::vector<std::string> overrides;  // as typed
};

// spec: "nodes=1,2,4", "weak=1,2,4" or "parallel.tensor=1,2". Any key of the two files.
// Throws: ConfigError when it has another form
Sweep run_sweep(const CaseFiles& files, const std::string& spec);

}  // namespace trireme::cli
