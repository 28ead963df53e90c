// The cost of each layer of a model with an encoder and a decoder.
#pragma once

#include <vector>

#include "trireme/model/family/model_config.h"
#include "trireme/parallel/pipeline/schedule/split.h"
#include "trireme/train/config/config.h"

namespace trireme::tasks {

// The encoder's blocks and then the decoder's, which differ and read different numbers of tokens.
// Time is in floating-point operations of forward and backward of a sequence, whose sum is
// model::TrainedParts::flops_per_sequence(). Memory is that of a rank: the states of its parameters
// as the axes and ZeRO divide them, and what a forward of a microbatch keeps.
std::vector<parallel::LayerCost> seq2seq_costs(const train::RunConfig& config,
                                               const model::ModelConfig& model);

}  // namespace trireme::tasks
