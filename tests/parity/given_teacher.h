// Distillation whose teacher has the values of a new run, so that no test reads a folder.
#pragma once

#include <memory>

#include "tests/parity/random_layout.h"

namespace trireme::train {

inline const Overrides kDistillation = {{"objective.name", "distill"},
                                        {"objective.teacher", "unread"},
                                        {"objective.temperature", "0.5"},
                                        {"objective.weight", "0.7"}};

inline void give_teacher(RunConfig& config, const model::ModelConfig& teacher) {
  tasks::language_of(config).teacher =
      std::make_shared<const tasks::Teacher>(tasks::Teacher{.model = teacher});
}

}  // namespace trireme::train
