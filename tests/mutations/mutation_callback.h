// Makes the mutation that the key mutation.name says, in each step of a run that has it.
#pragma once

#include <memory>

#include "trireme/train/callbacks/callback.h"

namespace trireme::mutations {

std::unique_ptr<train::Callback> make_mutation_callback();

}  // namespace trireme::mutations
