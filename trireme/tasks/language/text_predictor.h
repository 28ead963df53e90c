// A trained text classifier's answers to texts.
#pragma once

#include <memory>

#include "trireme/tasks/language/language.h"
#include "trireme/train/task/predictor.h"

namespace trireme::tasks {

// config: the task's. The tokenizer and the names of the classes are those in the run's folder.
// Throws: as PredictingTask::make_predictor(); ConfigError when the run's model is no classifier
std::unique_ptr<train::Predictor> make_text_predictor(const train::PredictRequest& request,
                                                      const LanguageConfig& config);

}  // namespace trireme::tasks
