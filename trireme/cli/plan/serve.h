// trireme simulate --serve: what the trained model costs to serve.
#pragma once

#include <cstdint>

#include "trireme/cli/plan/planning.h"

namespace CLI {
class App;
}

namespace trireme::cli {

struct ServeArguments {
  bool serve = false;
  int64_t batch = 0;    // 0: several, up to the largest that fits
  int64_t context = 0;  // 0: model.sequence_length
  int64_t tensor = 0;   // 0: the fewest ranks that hold the model
  double weight_bytes = 2;
  double cache_bytes = 2;
};

void add_serve_options(CLI::App& command, ServeArguments& arguments);

// Prints bounds for the case's model on its cluster; the rest of the config does not count.
// Throws: ConfigError when the model does not fit, or cannot be divided so
void serve(const PlanningCase& planning, const ServeArguments& arguments, bool json);

}  // namespace trireme::cli
