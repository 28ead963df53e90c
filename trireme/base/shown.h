// Makes text from outside safe to show in a message: short, and without control characters.
#pragma once

#include <cstddef>
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

}  // namespace trireme
