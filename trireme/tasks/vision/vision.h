// The task of image classification: tell which of several classes an image shows. Models are
// ResNets and vision transformers, data is images by class.
#pragma once

#include <memory>

#include "trireme/tasks/vision/image_classifier.h"
#include "trireme/tasks/vision/vision_config.h"
#include "trireme/train/config/config.h"
#include "trireme/train/task/task.h"

namespace trireme::tasks {

std::unique_ptr<train::Task> make_vision_task();
inline constexpr train::TaskKind kVision = {"vision", "tell what images show", make_vision_task};

// The task's keys in a config of this task.
// Throws: InternalError when the config is another task's
VisionConfig& vision_of(train::RunConfig& config);
// The model of a run of this task whose data is open, with initial values.
// Throws: as vision_of()
std::unique_ptr<ImageClassifier> make_classifier(const train::RunConfig& config);

}  // namespace trireme::tasks
