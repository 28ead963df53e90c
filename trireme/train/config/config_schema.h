// The one table of a config's keys: name, where the value lives, what it may be and what it means.
// Parsing, overrides, printing and --help all walk it. Every number has its range here; what
// depends on other keys or on the machine is checked by resolve(), check_layout() and
// check_memory().
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "trireme/train/config/config.h"

namespace trireme::train {

// The numbers from `minimum` to `maximum`, without an end that is marked. long double holds every
// integer of 64 bits exactly.
struct Range {
  long double minimum = std::numeric_limits<double>::lowest();
  long double maximum = std::numeric_limits<double>::max();
  bool above_minimum = false;
  bool below_maximum = false;

  bool contains(long double value) const;  // never NaN
};
static_assert(std::numeric_limits<long double>::digits >= 64);

// "at least 1 and at most 100", "above 0 and below 1".
std::string to_text(const Range& range);

// What a run that resumes from a checkpoint may do with a key.
enum class OnResume {
  kMustStay,   // it decides what is computed, or from which data: another value is another run
  kMayChange,  // it decides how, how long, or what is written
  kNotKept,    // it is of one start
};

struct Field {
  std::string key;  // "train.steps"
  std::variant<int64_t*, uint64_t*, double*, bool*, std::string*> value;
  std::string meaning;
  Range range{};                       // numbers
  std::vector<std::string> allowed{};  // strings; empty: any
  OnResume on_resume = OnResume::kMustStay;
};

// The fields of `config`, section by section, in the order of the documentation. A new key of
// [model] must stay on a resume; any other belongs in one of the lists of config_schema.cc.
// Throws: InternalError when it is in none
std::vector<Field> schema(RunConfig& config);

}  // namespace trireme::train
