#include "trireme/launch/inject/injection.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/launch/inject/words.h"

namespace trireme::launch::inline internal {
namespace {

constexpr size_t kMostBytes = 64 << 10;
constexpr size_t kMostInjections = 1024;
constexpr int64_t kMostRank = (1 << 18) - 1;
constexpr size_t kMostHostBytes = 253;

constexpr std::array<Choice<InjectedFault>, 9> kFaults{{{"kill", InjectedFault::kKill},
                                                        {"stop", InjectedFault::kStop},
                                                        {"exit", InjectedFault::kExit},
                                                        {"partition", InjectedFault::kPartition},
                                                        {"delay", InjectedFault::kDelay},
                                                        {"loss", InjectedFault::kLoss},
                                                        {"fill", InjectedFault::kFill},
                                                        {"leave", InjectedFault::kLeave},
                                                        {"join", InjectedFault::kJoin}}};

// Faults of a process; the others are those of a host.
bool is_of_process(InjectedFault fault) {
  return fault == InjectedFault::kKill || fault == InjectedFault::kStop ||
         fault == InjectedFault::kExit;
}

// Those that end by themselves need an end.
bool needs_duration(InjectedFault fault) {
  return fault == InjectedFault::kStop || fault == InjectedFault::kPartition ||
         fault == InjectedFault::kDelay || fault == InjectedFault::kLoss ||
         fault == InjectedFault::kFill;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : words_(text) {}

  std::vector<Injection> parse() {
    std::vector<Injection> injections;
    while (true) {
      while (words_.take(";")) continue;
      if (words_.peek().empty()) return injections;
      if (injections.size() == kMostInjections) {
        words_.fail(words_.peek(), concat("at most ", kMostInjections, " injections"));
      }
      injections.push_back(parse_one());
    }
  }

 private:
  Injection parse_one();
  void parse_target(Injection& injection);
  void parse_effect(Injection& injection);
  void parse_trigger(Injection& injection);
  std::string host(std::string_view value) const;

  Words words_;
};

Injection Parser::parse_one() {
  Injection injection;
  const std::string_view name = words_.next();
  const auto* const fault = find_choice(kFaults, name);
  if (fault == nullptr) words_.fail(name, in_words(names_of(kFaults)));
  injection.fault = fault->value;
  parse_target(injection);
  parse_effect(injection);
  parse_trigger(injection);
  if (!words_.peek().empty() && words_.peek() != ";") {
    words_.fail(words_.peek(), "\";\" and the next injection, or the end");
  }
  return injection;
}

std::string Parser::host(std::string_view value) const {
  if (value == "any") return "";
  const bool is_name =
      !value.empty() && value.size() <= kMostHostBytes && std::ranges::all_of(value, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '.' || c == '-' || c == '_' || c == ':';
      });
  if (!is_name) words_.fail(value, "a host's name, or any");
  return std::string(value);
}

void Parser::parse_target(Injection& injection) {
  std::string_view value;
  if (!is_of_process(injection.fault)) {
    injection.target = Target::kHost;
    if (!words_.take_value("host", value)) words_.fail(words_.peek(), "host=NAME or host=any");
    injection.host = host(value);
    return;
  }
  if (words_.take_value("rank", value)) {
    if (value != "any") injection.rank = static_cast<int>(words_.integer(value, 0, kMostRank));
    return;
  }
  const bool is_exit = injection.fault == InjectedFault::kExit;
  const bool is_agent = !is_exit && words_.take("agent");
  if (is_exit || !words_.take_value("host", value)) {
    words_.fail(words_.peek(), is_exit    ? "rank=N or rank=any"
                               : is_agent ? "host=NAME or host=any"
                                          : "rank=N, host=NAME, agent host=NAME, or any instead "
                                            "of N or NAME");
  }
  injection.target = is_agent ? Target::kAgent : Target::kWorkers;
  injection.host = host(value);
}

void Parser::parse_effect(Injection& injection) {
  std::string_view value;
  const InjectedFault fault = injection.fault;
  if (fault == InjectedFault::kKill && words_.take_value("signal", value)) {
    injection.signal = static_cast<int>(words_.integer(value, 1, 64));
  }
  if (fault == InjectedFault::kExit && words_.take_value("code", value)) {
    injection.code = static_cast<int>(words_.integer(value, 1, 255));
  }
  if (fault == InjectedFault::kDelay) {
    if (!words_.take("by")) words_.fail(words_.peek(), "by TIME, such as by 50ms");
    injection.delay = words_.duration(words_.next());
  }
  if (fault == InjectedFault::kLoss) {
    if (!words_.take("by")) words_.fail(words_.peek(), "by SHARE, such as by 5%");
    const std::string_view share = words_.next();
    if (!share.ends_with('%')) words_.fail(share, "a percentage, such as 5%");
    injection.loss = words_.number(share.substr(0, share.size() - 1), 0, 100) / 100;
  }
  if (!needs_duration(fault)) return;
  if (!words_.take("for")) words_.fail(words_.peek(), "for TIME, such as for 20s");
  const std::string_view duration = words_.next();
  injection.duration = words_.duration(duration);
  if (injection.duration.count() == 0) words_.fail(duration, "a time above zero");
}

void Parser::parse_trigger(Injection& injection) {
  std::string_view value;
  if (words_.take("at")) {
    if (!words_.take_value("step", value)) words_.fail(words_.peek(), "step=N");
    injection.trigger = Trigger::kAtStep;
    injection.step = words_.integer(value, 1, kMaxSteps);
    return;
  }
  if (words_.take("within")) {
    injection.trigger = Trigger::kWithin;
    injection.after = words_.duration(words_.next());
    return;
  }
  if (words_.take("in")) {
    const std::string_view moment = words_.next();
    if (moment != "save" && moment != "recovery") words_.fail(moment, "save or recovery");
    injection.trigger = moment == "save" ? Trigger::kInSave : Trigger::kInRecovery;
  }
  if (words_.take("after")) injection.after = words_.duration(words_.next());
}

std::string number_text(double value) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.10f", value);
  std::string digits = text;
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.ends_with('.')) digits.pop_back();
  return digits;
}

std::string target_text(const Injection& injection) {
  const std::string host = concat("host=", injection.host.empty() ? "any" : injection.host);
  switch (injection.target) {
    case Target::kRank: return injection.rank < 0 ? "rank=any" : concat("rank=", injection.rank);
    case Target::kAgent: return "agent " + host;
    case Target::kWorkers:
    case Target::kHost: return host;
  }
  return "";
}

}  // namespace

std::string name_of(InjectedFault fault) { return trireme::name_of(kFaults, fault); }

std::string to_string(const Injection& injection) {
  std::string text = concat(name_of(injection.fault), " ", target_text(injection));
  const InjectedFault fault = injection.fault;
  if (fault == InjectedFault::kKill && injection.signal != 9) {
    text += concat(" signal=", injection.signal);
  }
  if (fault == InjectedFault::kExit) text += concat(" code=", injection.code);
  if (fault == InjectedFault::kDelay) text += " by " + duration_text(injection.delay);
  if (fault == InjectedFault::kLoss) text += concat(" by ", number_text(100 * injection.loss), "%");
  if (needs_duration(fault)) text += " for " + duration_text(injection.duration);
  switch (injection.trigger) {
    case Trigger::kAfter: break;
    case Trigger::kAtStep: return text + concat(" at step=", injection.step);
    case Trigger::kInSave: text += " in save"; break;
    case Trigger::kInRecovery: text += " in recovery"; break;
    case Trigger::kWithin: return text + " within " + duration_text(injection.after);
  }
  if (injection.after.count() > 0) text += " after " + duration_text(injection.after);
  return text;
}

std::vector<Injection> parse_injections(std::string_view text) {
  TRIREME_CHECK(text.size() <= kMostBytes, "--inject has ", text.size(),
                " bytes; expected at most ", kMostBytes);
  return Parser(text).parse();
}

}  // namespace trireme::launch::inline internal
