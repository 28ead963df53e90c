// What of a language model a run trains, in the words of the cost model.
#pragma once

#include "trireme/model/family/model_config.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/trained_parts.h"
#include "trireme/plan/cost/workload.h"
#include "trireme/train/config/config.h"

namespace trireme::tasks {

// The model's parts as the run trains them: by lora, and by train.freeze.
model::TrainedParts trained_parts_of(const train::RunConfig& config,
                                     const model::ModelConfig& model);

// Sets what is trained of each part of `plan`, the work's model, and the operations of a token.
// Does nothing where all of it is. The model has no decoder.
void set_training(const train::RunConfig& config, const model::ModelPlan& plan,
                  plan::Workload& work);

}  // namespace trireme::tasks
