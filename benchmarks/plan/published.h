// Published measurements of training steps, as workloads of the cost model.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/plan/cost/workload.h"
#include "trireme/plan/device/cluster.h"

namespace trireme::benchmarks {

struct PublishedRow {
  std::string table;   // "Megatron 2021"
  std::string name;    // what distinguishes the row
  std::string family;  // rows of one device are calibrated together: "a100", "h100", "v100"
  plan::Workload work{};
  plan::Cluster cluster{};
  double step_seconds = 0;  // 0: only memory was published
  double memory_bytes = 0;  // 0: not published
  bool is_out_of_memory = false;
  bool is_for_fit = false;  // every other row of a table's device
};

// Reads the tables in `folder`.
// Throws: std::runtime_error when one is missing or has another form
std::vector<PublishedRow> read_published(const std::filesystem::path& folder);

}  // namespace trireme::benchmarks
