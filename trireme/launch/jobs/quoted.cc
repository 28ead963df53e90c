#include "trireme/launch/jobs/quoted.h"

#include <array>
#include <cstdint>
#include <cstdio>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"

namespace trireme::launch {
namespace {

// Not isalnum(), which depends on the locale.
constexpr std::string_view kAlphanumeric =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

bool has_only(std::string_view text, std::string_view others) {
  for (const char c : text) {
    if (kAlphanumeric.find(c) == std::string_view::npos && others.find(c) == others.npos) {
      return false;
    }
  }
  return true;
}

// The code point of a well-formed character.
uint32_t code_point(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  // By the character's length: the bits of its first byte that belong to the code.
  constexpr std::array<unsigned, 5> kMasks = {0, 0x7f, 0x1f, 0x0f, 0x07};
  uint32_t code = first & kMasks[character.size()];
  for (const char c : character.substr(1)) code = (code << 6) | (static_cast<unsigned>(c) & 0x3f);
  return code;
}

// Every ASCII character as `write` puts it, the others as "\U000000e9".
template <typename Write>
std::string in_ascii(std::string_view text, Write write) {
  std::string ascii;
  for (size_t i = 0; i < text.size();) {
    const size_t size = utf8_character_bytes(text.substr(i));
    // check_quotable() has looked at every text from the user. An unchecked one is our bug, not the
    // user's.
    TRIREME_ASSERT(size > 0 && !is_control(text, i), "text that was not checked");
    if (size == 1) {
      ascii += write(text[i]);
    } else {
      // Escaped, because YAML 1.1 ends a line at characters that are not ASCII.
      std::array<char, 16> escape{};
      std::snprintf(escape.data(), escape.size(), "\\U%08x", code_point(text.substr(i, size)));
      ascii += escape.data();
    }
    i += size;
  }
  return ascii;
}

}  // namespace

std::string shell_word(std::string_view word) {
  // A leading name with `=` would be an assignment.
  // Plain words stay plain, so that people can read the file. A list of what is harmless is safer
  // than one of what is not.
  const bool is_plain = !word.empty() && has_only(word, "_./:,@%+-=") &&
                        (word.starts_with('-') || word.find('=') == std::string_view::npos);
  if (is_plain) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string shell_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + shell_word(word);
  return text;
}

std::string yaml_text(std::string_view text) {
  return "\"" +
         in_ascii(
             text,
             [](char c) {
               // Kubernetes and Compose replace $(NAME) and ${NAME} in strings.
               const std::string_view before = c == '"' || c == '\\' ? "\\" : c == '$' ? "$" : "";
               return std::string(before) + c;
             }) +
         "\"";
}

std::string comment_text(std::string_view text) {
  return in_ascii(text, [](char c) { return std::string(1, c); });
}

std::string yaml_list(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "" : ", ") + yaml_text(text);
  return "[" + list + "]";
}

void check_quotable(std::string_view what, std::string_view text) {
  TRIREME_CHECK(is_printable(text) && is_utf8(text), what, " is \"", shown(text),
                "\"; expected UTF-8 of at most ", kMaxWordBytes,
                " bytes without control characters");
}

void check_directive_word(std::string_view what, std::string_view text) {
  TRIREME_CHECK(
      !text.empty() && text.size() <= 255 && has_only(text, "._-+,:@/=") &&
          // Another first character could begin an option or a comment.
          has_only(text.substr(0, 1), ""),
      what, " is \"", shown(text),
      "\"; expected a letter or digit, then at most 254 letters, digits and . _ - + , : @ / =");
}

}  // namespace trireme::launch
