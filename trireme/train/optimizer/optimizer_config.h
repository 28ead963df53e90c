// Section [optimizer] of a config.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::train {

struct OptimizerConfig {
  std::string name = "adamw";
  double learning_rate = 1e-3;
  int64_t warmup_steps = 20;
  std::string schedule = "cosine";
  double minimum_learning_rate = 0.0;  // where the schedule ends
  double decay_fraction = 0.2;         // warmup-stable-decay: the decay's share of the steps
  double weight_decay = 0.1;           // of matrices; norms and biases have none
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double momentum = 0.9;    // sgd, muon, lars
  bool nesterov = true;     // sgd, muon
  std::string groups = "";  // decay and rate by name, see parameter_groups.h
  std::string adamw_parameters = "*embed*, *wte*, *wpe*, *lm_head*";  // muon: not its matrices
  std::string batch_scaling = "none";  // of learning_rate, see numerics/batch_scaling.h
  int64_t base_batch = 256;            // sequences a step that learning_rate was tuned at
};

}  // namespace trireme::train
