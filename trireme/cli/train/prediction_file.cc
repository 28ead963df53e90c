#include "trireme/cli/train/prediction_file.h"

#include <filesystem>
#include <system_error>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::cli {

std::string prediction_text(const train::RunConfig& config, const PredictedNumbers& numbers) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  if (numbers.step_seconds) {
    const train::TaskTraits& task = config.task->traits();
    const double units = static_cast<double>(config.train.global_batch * task.units_per_sample);
    object["step_seconds"] = *numbers.step_seconds;
    object[task.unit + "_per_second"] = units / *numbers.step_seconds;
  }
  for (size_t i = 0; numbers.memory && i < kNumMemoryKinds; ++i)
    object[concat("memory_", kMemoryKinds[i], "_bytes")] = (*numbers.memory)[i];
  return object.dump() + "\n";
}

void write_prediction(const train::RunConfig& config, const PredictedNumbers& numbers) {
  const std::filesystem::path path = std::filesystem::path(config.output.folder) / kPredictionName;
  try {
    if (numbers.step_seconds || numbers.memory) {
      write_file_atomically(path, prediction_text(config, numbers));
    } else {
      std::error_code ignored;
      std::filesystem::remove(path, ignored);
    }
  } catch (const Error&) {
    // The disk is full, or the folder has gone.
  }
}

}  // namespace trireme::cli
