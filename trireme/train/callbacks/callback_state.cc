#include "trireme/train/callbacks/callback.h"

#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"

namespace trireme::train {

std::string write_state(const StateNumbers& numbers) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [name, value] : numbers) {
    object[name] = std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
  }
  return object.dump();
}

StateNumbers read_state(const std::string& state, std::string_view callback,
                        std::initializer_list<std::string_view> names) {
  const std::string source = concat("the state of the callback ", callback);
  try {
    const nlohmann::json value = parse_json(state, source);
    constexpr double kMost = std::numeric_limits<double>::max();
    StateNumbers numbers;
    for (const auto& [name, member] : JsonView(value, source).members()) {
      numbers[name] = member.value().is_null() ? std::numeric_limits<double>::quiet_NaN()
                                               : member.number(-kMost, kMost);
    }
    for (const std::string_view name : names) {
      TRIREME_CHECK(numbers.contains(std::string(name)), source, " lacks \"", name, "\"");
    }
    return numbers;
  } catch (const ConfigError& error) {
    throw CheckpointError(error.what());
  }
}

int64_t count_in(const StateNumbers& numbers, const std::string& name, std::string_view callback) {
  const double value = numbers.at(name);
  constexpr double kMost = 9007199254740992;  // 2^53
  if (value >= 0 && value <= kMost && value == std::floor(value)) {
    return static_cast<int64_t>(value);
  }
  throw CheckpointError(concat("the state of the callback ", callback, " has ", name, " = ", value,
                               "; expected a whole number of at least 0"));
}

}  // namespace trireme::train
