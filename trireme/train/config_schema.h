// The one table of a config's keys: name, where the value lives, what it may be and what it means.
// Parsing, overrides, printing and --help all walk it.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "trireme/train/config.h"

namespace trireme::train {

struct Field {
  std::string key;  // "train.steps"
  std::variant<int64_t*, uint64_t*, double*, bool*, std::string*> value;
  std::string meaning;
  double minimum = 0;                  // numbers
  std::vector<std::string> allowed{};  // strings; empty: any
};

// The fields of `config`, section by section, in the order of the documentation.
std::vector<Field> schema(RunConfig& config);

}  // namespace trireme::train
