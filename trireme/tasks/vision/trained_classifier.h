// Reads an image classifier from a checkpoint on one rank, and its images.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "trireme/dataset/image/image_source.h"
#include "trireme/tasks/vision/image_classifier.h"
#include "trireme/train/config/config.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {

struct TrainedClassifier {
  train::RunConfig config;  // its data is open, with the validation data
  std::unique_ptr<ImageClassifier> classifier;

  const dataset::ImageSource& images() const;  // the validation data
};

// data_path: where the images are now; "": where they were
// Throws: CheckpointError, also when the checkpoint is of another task, and for weights that are
//         not finite or not there; ConfigError when the images cannot be read
TrainedClassifier load_trained_classifier(const std::filesystem::path& path,
                                          train::Weights weights = train::Weights::kLast,
                                          const std::string& data_path = "");

}  // namespace trireme::tasks
