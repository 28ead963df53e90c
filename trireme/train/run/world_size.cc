#include "trireme/train/run/world_size.h"

#include <string>

#include "trireme/base/error.h"
#include "trireme/train/parallel/layout.h"

namespace trireme::train::inline internal {
namespace {

// The checks of open_inputs() that depend on the number of ranks.
void check_ranks(const RunConfig& given, int num_ranks) {
  RunConfig config = given;
  config.parallel.data = 0;
  resolve(config, num_ranks);
  config.task->open(config.train.evaluate_interval > 0);
  check_layout(config);
}

}  // namespace

int largest_world(const RunConfig& config, int available) {
  std::string problem;
  for (int num_ranks = available; num_ranks > 0; --num_ranks) {
    try {
      check_ranks(config, num_ranks);
      return num_ranks;
    } catch (const ConfigError& error) {
      if (num_ranks == available) problem = error.what();
    }
  }
  throw ConfigError(concat("no number of ranks up to the ", available,
                           " that there are fits the config: ", problem));
}

}  // namespace trireme::train::inline internal
