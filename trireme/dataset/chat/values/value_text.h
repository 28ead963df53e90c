// Values as text, as Python's str() and repr() write them.
#pragma once

#include <string>
#include <string_view>

#include "trireme/dataset/chat/values/value.h"

namespace trireme::dataset::chat {

// A text under construction, which charges for each part before it grows.
class TextBuilder {
 public:
  explicit TextBuilder(Run& run) : run_(run) {}

  // Throws: ConfigError when the text becomes too large
  void add(std::string_view part);
  void add_repeated(std::string_view part, size_t times);

  std::string take() { return std::move(text_); }
  Value value() { return Value::text(run_, take()); }

 private:
  Run& run_;
  std::string text_;
  size_t uncharged_ = 0;
};

// The shortest text that reads as this number, as repr(): "1.0", "1e+16", "nan".
std::string number_text(double number);

// str() of a value: what {{ }} prints. Undefined is "".
// Throws: ConfigError for what has no text of its own: an iterator, a range, a namespace, a
//         function
void append_text(Run& run, const Value& value, TextBuilder& text);
std::string text_of(Run& run, const Value& value);

// repr() of a value: a text in quotes.
void append_repr(Run& run, const Value& value, TextBuilder& text);

// Replaces & < > ' " by character references, as the filter `escape`.
std::string escaped_html(std::string_view text);

}  // namespace trireme::dataset::chat
