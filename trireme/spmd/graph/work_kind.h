// What an operator's time depends on, by its name.
#pragma once

#include <string>

#include "trireme/spmd/graph/graph.h"

namespace trireme::spmd {

WorkKind work_of(const std::string& name);

}  // namespace trireme::spmd
