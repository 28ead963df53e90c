// The words of --inject: what they are made of, and errors that show the place.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::launch::inline internal {

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

}  // namespace trireme::launch::inline internal
