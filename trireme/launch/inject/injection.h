// Faults to inject into a run, for drills: `trireme run --inject TEXT`, the words that such a text
// is made of, and errors that show the place.
// Grammar: docs/guide/watchdog.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::launch {

// Reads blank-separated words from a text, which must outlive it. ";" is a word of its own.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) { advance(); }

  // The next word; "" at the end.
  std::string_view peek() const { return word_; }
  std::string_view next();
  // Takes the next word if it is this one.
  bool take(std::string_view word);
  // Takes the next word if it is KEY=..., and returns what follows.
  bool take_value(std::string_view key, std::string_view& value);

  // The next word, or the value of one, as a number or a duration ("20s", "1.5m", "200ms", "1h").
  int64_t integer(std::string_view value, int64_t minimum, int64_t maximum) const;
  double number(std::string_view value, double minimum, double maximum) const;
  std::chrono::milliseconds duration(std::string_view value) const;

  // Throws ConfigError: --inject: "rnk=1" at character 6 of "kill rnk=1"; expected `expected`. The
  // place is that of `value`, which is part of the text.
  [[noreturn]] void fail(std::string_view value, const std::string& expected) const;

 private:
  void advance();

  std::string_view text_;
  size_t position_ = 0;  // behind word_
  std::string_view word_;
};

// "20s", "200ms": in the largest unit that gives a whole number.
std::string duration_text(std::chrono::milliseconds duration);

enum class InjectedFault {
  kKill,       // a signal, SIGKILL by default
  kStop,       // SIGSTOP, and SIGCONT after `duration`
  kExit,       // the worker is killed and counts as ended with `code`
  kPartition,  // the host's network is down for `duration`
  kDelay,      // its packets leave late by `delay` for `duration`
  kLoss,       // a share of its packets is lost for `duration`
  kFill,       // the disk of the run's folder is full for `duration`
  kLeave,      // the host leaves
  kJoin,       // the host joins
};
// "kill", "stop", ...
std::string name_of(InjectedFault fault);

enum class Target {
  kRank,
  kWorkers,  // all of a host
  kAgent,    // of a host
  kHost,
};

enum class Trigger {
  kAfter,       // `after` has passed since the start
  kAtStep,      // the rank is in this step
  kInSave,      // a checkpoint is being saved; not before `after`
  kInRecovery,  // the run recovers from a fault; not before `after`
  kWithin,      // at a random moment from the start to `after`
};

struct Injection {
  InjectedFault fault = InjectedFault::kKill;
  Target target = Target::kRank;
  int rank = -1;       // -1: any; chosen when it is due
  std::string host{};  // "": any; chosen when it is due
  int signal = 9;
  int code = 1;
  std::chrono::milliseconds duration{0};  // zero: for good
  std::chrono::milliseconds delay{0};     // of packets
  double loss = 0;                        // share of packets, 0 to 1
  Trigger trigger = Trigger::kAfter;
  int64_t step = 0;  // of kAtStep
  std::chrono::milliseconds after{0};
  bool operator==(const Injection&) const = default;
};

// In the grammar: parse_injections(to_string(x)) is x.
std::string to_string(const Injection& injection);

// "kill rank=1 at step=50; stop rank=2 for 20s; partition host=b for 10s".
// Throws: ConfigError, one line with the place and what may stand there. Also beyond 64 KiB and
//         1024 injections.
std::vector<Injection> parse_injections(std::string_view text);

}  // namespace trireme::launch
