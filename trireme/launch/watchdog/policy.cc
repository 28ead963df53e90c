#include "trireme/launch/watchdog/policy.h"

#include <array>
#include <charconv>
#include <cmath>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/patterns.h"
#include "trireme/base/words.h"

namespace trireme::launch {
namespace {

constexpr std::array<Choice<FaultKind>, 4> kKinds{{{"crash", FaultKind::kCrash},
                                                   {"hang", FaultKind::kHang},
                                                   {"straggler", FaultKind::kStraggler},
                                                   {"corruption", FaultKind::kCorruption}}};
constexpr std::array<Choice<Action>, 4> kActions{{{"warn", Action::kWarn},
                                                  {"restart", Action::kRestart},
                                                  {"exclude", Action::kExclude},
                                                  {"stop", Action::kStop}}};
constexpr std::array<Choice<Action Policy::*>, 4> kActionKeys{
    {{"crash", &Policy::crash},
     {"hang", &Policy::hang},
     {"straggler", &Policy::straggler},
     {"corruption", &Policy::corruption}}};
constexpr std::array<Choice<std::chrono::seconds Policy::*>, 2> kSecondKeys{
    {{"hang-after", &Policy::hang_after}, {"exclusion", &Policy::exclusion}}};

double number(std::string_view key, std::string_view text, double minimum, double maximum) {
  double value = NAN;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = code == std::errc() && end == text.data() + text.size();
  TRIREME_CHECK(is_number && value >= minimum && value <= maximum, "the watchdog's ", key, " is \"",
                shown(text), "\"; expected a number from ", minimum, " to ", maximum);
  return value;
}

void set(Policy& policy, std::string_view key, std::string_view value) {
  if (const auto* action = find_choice(kActionKeys, key)) {
    policy.*action->value = choose(kActions, concat("the watchdog's ", key), value);
  } else if (const auto* seconds = find_choice(kSecondKeys, key)) {
    policy.*seconds->value = std::chrono::seconds(
        // Rounded up: a second is the smallest time that the watchdog tells.
        static_cast<int64_t>(std::ceil(number(key, value, 1, static_cast<double>(kMaxSeconds)))));
  } else if (key == "slower-by") {
    // A factor of one would name half of all ranks.
    policy.slower_by = number(key, value, 1.01, 1000);
  } else {
    std::vector<std::string> keys = names_of(kActionKeys);
    for (std::string& name : names_of(kSecondKeys)) keys.push_back(std::move(name));
    keys.emplace_back("slower-by");
    throw ConfigError(concat("the watchdog has no key \"", shown(key), "\"; expected ",
                             in_words(keys), ", as in \"hang=exclude, hang-after=60\""));
  }
}

}  // namespace

std::string name_of(FaultKind kind) { return trireme::name_of(kKinds, kind); }
std::string name_of(Action action) { return trireme::name_of(kActions, action); }

Action action_of(const Policy& policy, FaultKind kind) {
  switch (kind) {
    case FaultKind::kCrash: return policy.crash;
    case FaultKind::kHang: return policy.hang;
    case FaultKind::kStraggler: return policy.straggler;
    case FaultKind::kCorruption: return policy.corruption;
  }
  return Action::kWarn;
}

Policy parse_policy(std::string_view text) {
  constexpr size_t kMostBytes = 4096;
  TRIREME_CHECK(text.size() <= kMostBytes, "the watchdog's policy has ", text.size(),
                " bytes; expected at most ", kMostBytes);
  Policy policy;
  while (!trimmed(text).empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = trimmed(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t equal = item.find('=');
    TRIREME_CHECK(equal != std::string_view::npos, "the watchdog's policy has \"", shown(item),
                  "\"; expected KEY=VALUE, as in \"hang=exclude, hang-after=60\"");
    set(policy, trimmed(item.substr(0, equal)), trimmed(item.substr(equal + 1)));
  }
  return policy;
}

}  // namespace trireme::launch
