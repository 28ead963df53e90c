// A trained image classifier's answers to images.
#pragma once

#include <memory>

#include "trireme/tasks/vision/image_model.h"
#include "trireme/tasks/vision/trained_images.h"
#include "trireme/train/task/predictor.h"

namespace trireme::tasks {

// The problem of a model that answers such images on many ranks.
// Throws: ConfigError when the images are not those of the model
ImageProblem answering_problem(ImageProblem problem, const TrainedImages& images);

// problem: of the run's config
// images: those that it was trained on
// Throws: as PredictingTask::make_predictor()
std::unique_ptr<train::Predictor> make_image_predictor(const train::PredictRequest& request,
                                                       const ImageProblem& problem,
                                                       const TrainedImages& images);

}  // namespace trireme::tasks
