// When optimizers of the 1-bit family let ranks exchange signs, and when their variance changes.
// Pure functions of the config and the number of the update, so that the gradient hook and the rule
// always agree, also after a resume.
#pragma once

#include <cstdint>

#include "trireme/train/optimizer/optimizer_config.h"

namespace trireme::train {

// What travels as signs in the steps that are not plain.
enum class SignsOf {
  kNothing,   // every step is plain
  kMomentum,  // the rule gets the momentum in place of the gradient
  kGradient,
};
SignsOf signs_of(const OptimizerConfig& config);

// Whether update number `update`, from 1, sums gradients in full.
bool is_plain_update(const OptimizerConfig& config, int64_t update);
// Whether the rule gets the momentum in this update. Its norm is no gradient's, and is not clipped.
bool gets_momentum(const OptimizerConfig& config, int64_t update);

// Update number `update` of a variance that changes in each of the first `count` updates, then in
// every second one `count` times, every fourth, and so on.
struct VarianceUpdate {
  bool is_due = false;
  int64_t number = 0;  // so far, with this one if it is due
};
// Source: Lu et al. 2022, arXiv:2202.06009 (0/1 Adam), section 4.1 and its policy in section 6
VarianceUpdate variance_update(int64_t update, int64_t count);

}  // namespace trireme::train
