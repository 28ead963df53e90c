#include "trireme/cli/printable.h"

#include <cstdio>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/utf8.h"

namespace trireme::cli::inline internal {
namespace {

// Those of ASCII, and U+0080 to U+009F, which terminals also obey.
bool is_control(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7f;
  return character.size() == 2 && byte(0) == 0xc2 && byte(1) < 0xa0;
}

void append_escaped(std::string& text, std::string_view bytes) {
  for (const char byte : bytes) {
    char escape[8];
    std::snprintf(escape, sizeof(escape), "\\x%02x", static_cast<unsigned char>(byte));
    text += escape;
  }
}

// Appends the first character of `text`, or the invalid byte there. Those in `kept` are not
// escaped.
size_t append_next(std::string& out, std::string_view text, std::string_view kept) {
  const size_t length = utf8_character_bytes(text);
  const std::string_view next = text.substr(0, length == 0 ? 1 : length);
  const bool is_kept = kept.find(next) != std::string_view::npos;
  if (length == 0 || (is_control(next) && !is_kept)) {
    append_escaped(out, next);
  } else {
    out += next;
  }
  return next.size();
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) text.remove_prefix(append_next(out, text, ""));
  return out;
}

std::string json_text(const nlohmann::json& object) {
  return object.dump(2, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

std::string TerminalText::add(std::string_view piece) {
  held_ += piece;
  std::string out;
  std::string_view text = held_;
  while (!text.empty() && !is_utf8_beginning(text)) {
    text.remove_prefix(append_next(out, text, "\n\t"));
  }
  held_ = std::string(text);
  return out;
}

std::string TerminalText::finish() { return printable(std::exchange(held_, {})); }

}  // namespace trireme::cli::inline internal
