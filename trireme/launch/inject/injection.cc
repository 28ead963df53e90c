#include "trireme/launch/inject/injection.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"

namespace trireme::launch {
namespace {

constexpr std::array<Choice<int64_t>, 4> kUnits{
    {{"h", 3'600'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}}};
// Far above the length of any drill, and far below an overflow.
constexpr double kMostMilliseconds = 30.0 * 24 * 3'600'000;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// One line of a command, so the limits only have to stop mistakes and hostile text.
constexpr size_t kMostBytes = 64 << 10;
constexpr size_t kMostInjections = 1024;
// As many ranks as a ring and an observation can name.
constexpr int64_t kMostRank = (1 << 18) - 1;
// A name of DNS has no more bytes.
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

// Faults that end on their own need a duration.
// The rest, kill, exit, leave and join, happens at one moment.
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
  // An empty host stands for "any" in the struct, and the parser makes no other empty one.
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
  // Ten digits and no exponent, because the grammar reads fixed notation only.
  std::string digits = format("%.10f", value);
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

void Words::advance() {
  while (position_ < text_.size() && is_blank(text_[position_])) ++position_;
  const size_t begin = position_;
  if (begin < text_.size() && text_[begin] == ';') {
    ++position_;
  } else {
    while (position_ < text_.size() && !is_blank(text_[position_]) && text_[position_] != ';') {
      ++position_;
    }
  }
  word_ = text_.substr(begin, position_ - begin);
}

std::string_view Words::next() {
  const std::string_view word = word_;
  advance();
  return word;
}

bool Words::take(std::string_view word) {
  if (word_ != word) return false;
  advance();
  return true;
}

bool Words::take_value(std::string_view key, std::string_view& value) {
  if (word_.size() <= key.size() || !word_.starts_with(key) || word_[key.size()] != '=') {
    return false;
  }
  value = next().substr(key.size() + 1);
  return true;
}

int64_t Words::integer(std::string_view value, int64_t minimum, int64_t maximum) const {
  int64_t number = 0;
  const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (code != std::errc() || end != value.data() + value.size() || number < minimum ||
      number > maximum) {
    fail(value, concat("a whole number from ", minimum, " to ", maximum));
  }
  return number;
}

double Words::number(std::string_view value, double minimum, double maximum) const {
  double number = NAN;
  const auto [end, code] =
      // Fixed only: the grammar has no exponents.
      std::from_chars(value.data(), value.data() + value.size(), number, std::chars_format::fixed);
  if (code != std::errc() || end != value.data() + value.size() ||
      !(number >= minimum && number <= maximum)) {
    fail(value, concat("a number from ", minimum, " to ", maximum));
  }
  return number;
}

std::chrono::milliseconds Words::duration(std::string_view value) const {
  const size_t digits = std::min(value.find_first_not_of("0123456789."), value.size());
  const auto* const unit = find_choice(kUnits, value.substr(digits));
  double number = NAN;
  const auto [end, code] =
      std::from_chars(value.data(), value.data() + digits, number, std::chars_format::fixed);
  const bool is_number = code == std::errc() && end == value.data() + digits;
  const double milliseconds =
      is_number && unit != nullptr ? number * static_cast<double>(unit->value) : NAN;
  if (!(milliseconds >= 0 && milliseconds <= kMostMilliseconds)) {
    fail(value, "a time of at most 30 days, such as 20s, 200ms, 1.5m or 1h");
  }
  return std::chrono::milliseconds(std::llround(milliseconds));
}

void Words::fail(std::string_view value, const std::string& expected) const {
  const auto place = static_cast<size_t>(value.data() - text_.data());
  const std::string found = value.empty()  ? "nothing"
                            : value == ";" ? "\";\""
                                           : concat("\"", shown(value, 40), "\"");
  throw ConfigError(concat("--inject: ", found, " at character ", place + 1, " of \"",
                           shown(text_, 200), "\"; expected ", expected));
}

std::string duration_text(std::chrono::milliseconds duration) {
  // From the largest unit down: the first that divides the duration is the shortest text.
  for (const auto& [name, milliseconds] : kUnits) {
    if (duration.count() != 0 && duration.count() % milliseconds == 0) {
      return concat(duration.count() / milliseconds, name);
    }
  }
  return "0s";
}

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

}  // namespace trireme::launch
