// The task of image classification: tell which of several classes an image shows. Models are
// ResNets and vision transformers, data is images by class. Reads a classifier from a checkpoint on
// one rank, too.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "trireme/dataset/image/image_source.h"
#include "trireme/tasks/vision/image_model.h"
#include "trireme/tasks/vision/trained_images.h"
#include "trireme/tasks/vision/vision_config.h"
#include "trireme/train/config/config.h"
#include "trireme/train/state/saved_run.h"
#include "trireme/train/task/task.h"

namespace trireme::tasks {

std::unique_ptr<train::Task> make_vision_task();
inline constexpr train::TaskKind kVision = {"vision", "tell what images show", make_vision_task};

// The task's keys in a config of this task.
// Throws: InternalError when the config is another task's
VisionConfig& vision_of(train::RunConfig& config);
// The task's problem.
// Throws: as vision_of()
const ImageProblem& image_problem_of(const train::RunConfig& config);
// The model of a run of this task whose data is open, with initial values.
// Throws: as vision_of()
std::unique_ptr<ImageClassifier> make_classifier(const train::RunConfig& config);

// The images that a run of this task was trained on: those in its folder, or for a run of earlier
// versions, which has none there, those of its data, which it opens.
// Throws: ConfigError; InternalError as vision_of()
TrainedImages trained_images(train::RunConfig& config, const std::filesystem::path& run_folder);

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
