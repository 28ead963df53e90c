#include "trireme/parallel/server/state/consistency.h"

namespace trireme::parallel {

void add(StalenessCounts& to, const StalenessCounts& counts) {
  for (const auto& [steps, count] : counts) to[steps] += count;
}

std::string to_json(const StalenessCounts& counts) {
  std::string text;
  for (const auto& [steps, count] : counts) {
    text += (text.empty() ? "\"" : ", \"") + std::to_string(steps) + "\": " + std::to_string(count);
  }
  return "{" + text + "}";
}

}  // namespace trireme::parallel
