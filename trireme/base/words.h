// Words for messages: text from outside made safe to show, lists of names, signals, and the name
// that a user most likely meant.
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

// Whether a control character starts at `index`: an ASCII one, or the first byte of a C1 control in
// UTF-8 (0xc2 0x80 to 0xc2 0x9f). Terminals obey some of those too.
inline bool is_control(std::string_view text, size_t index) {
  const auto byte = static_cast<unsigned char>(text[index]);
  if (byte != 0xc2) return byte < 0x20 || byte == 0x7f;
  return index + 1 < text.size() && (static_cast<unsigned char>(text[index + 1]) & 0xe0) == 0x80;
}

// For a name or a word that is stored.
inline constexpr size_t kMaxWordBytes = 4096;
// Whether a name or a word may be stored and quoted: at most `max_bytes`, no control characters.
inline bool is_printable(std::string_view text, size_t max_bytes = kMaxWordBytes) {
  bool printable = text.size() <= max_bytes;
  for (size_t i = 0; printable && i < text.size(); ++i) printable = !is_control(text, i);
  return printable;
}

// The first `max_bytes` of `text`, with "..." if there is more and "?" for control characters.
inline std::string shown(std::string_view text, size_t max_bytes = 60) {
  std::string cut(text.substr(0, max_bytes));
  for (size_t i = 0; i < cut.size(); ++i) {
    if (is_control(text, i)) cut[i] = '?';
  }
  return text.size() > max_bytes ? cut + "..." : cut;
}

// "; 7 missing: a, b, c, d, e, ...": how many items there are, and the first of them. "" for none.
inline std::string listed(std::string_view what, const std::set<std::string>& items) {
  constexpr size_t kMost = 5;
  if (items.empty()) return "";
  std::string text = "; " + std::to_string(items.size()) + " " + std::string(what) + ": ";
  size_t count = 0;
  for (const std::string& item : items) {
    if (count == kMost) return text + ", ...";
    text += (count++ == 0 ? "" : ", ") + item;
  }
  return text;
}

// How a process died: "killed by signal 9 (Killed, by someone or for lack of memory)".
std::string killed_by(int signal);

// Longer texts are not compared whole: the comparison is quadratic in their length.
inline constexpr size_t kMaxComparedBytes = 100;

// The name with the fewest insertions, deletions and replacements from `text`, the first of equals;
// "" when there are no names.
// Source: Levenshtein 1966, Soviet Physics Doklady 10(8)
std::string nearest_name(std::span<const std::string> names, std::string_view text);

// The nearest name if it is near enough to be what was meant, at most one letter in four away
// (short names: one letter); "" otherwise.
std::string likely_name(std::span<const std::string> names, std::string_view text);
// "; did you mean "NAME"?" of the likely name; "" when there is none.
std::string did_you_mean(std::span<const std::string> names, std::string_view text);

}  // namespace trireme
