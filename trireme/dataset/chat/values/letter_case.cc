#include "trireme/dataset/chat/values/letter_case.h"

#include <algorithm>

#include <utf8proc.h>

#include "trireme/dataset/chat/values/characters.h"

namespace trireme::dataset::chat {

// utf8proc maps one character to one. The characters whose upper or title case are several are in
// the tables below, from Unicode's SpecialCasing.txt: each entry is the character, what it becomes,
// and a space.

namespace {

constexpr std::string_view kSpecialUpper =
    "\u00DFSS \u0149\u02BCN \u01F0J\u030C \u0390\u0399\u0308\u0301 \u03B0\u03A5\u0308\u0301 "
    "\u0587\u0535\u0552 \u1E96H\u0331 \u1E97T\u0308 \u1E98W\u030A \u1E99Y\u030A "
    "\u1E9AA\u02BE \u1F50\u03A5\u0313 \u1F52\u03A5\u0313\u0300 \u1F54\u03A5\u0313\u0301 "
    "\u1F56\u03A5\u0313\u0342 \u1FB2\u1FBA\u0399 \u1FB3\u0391\u0399 \u1FB4\u0386\u0399 "
    "\u1FB6\u0391\u0342 \u1FB7\u0391\u0342\u0399 \u1FBC\u0391\u0399 \u1FC2\u1FCA\u0399 "
    "\u1FC3\u0397\u0399 \u1FC4\u0389\u0399 \u1FC6\u0397\u0342 \u1FC7\u0397\u0342\u0399 "
    "\u1FCC\u0397\u0399 \u1FD2\u0399\u0308\u0300 \u1FD3\u0399\u0308\u0301 \u1FD6\u0399\u0342 "
    "\u1FD7\u0399\u0308\u0342 \u1FE2\u03A5\u0308\u0300 \u1FE3\u03A5\u0308\u0301 "
    "\u1FE4\u03A1\u0313 \u1FE6\u03A5\u0342 \u1FE7\u03A5\u0308\u0342 \u1FF2\u1FFA\u0399 "
    "\u1FF3\u03A9\u0399 \u1FF4\u038F\u0399 \u1FF6\u03A9\u0342 \u1FF7\u03A9\u0342\u0399 "
    "\u1FFC\u03A9\u0399 \uFB00FF \uFB01FI \uFB02FL \uFB03FFI \uFB04FFL \uFB05ST \uFB06ST "
    "\uFB13\u0544\u0546 \uFB14\u0544\u0535 \uFB15\u0544\u053B \uFB16\u054E\u0546 "
    "\uFB17\u0544\u053D ";

// Those whose title case is not the upper case.
constexpr std::string_view kSpecialTitle =
    "\u00DFSs \u0587\u0535\u0582 \u1FB2\u1FBA\u0345 \u1FB4\u0386\u0345 "
    "\u1FB7\u0391\u0342\u0345 \u1FC2\u1FCA\u0345 \u1FC4\u0389\u0345 \u1FC7\u0397\u0342\u0345 "
    "\u1FF2\u1FFA\u0345 \u1FF4\u038F\u0345 \u1FF7\u03A9\u0342\u0345 \uFB00Ff \uFB01Fi "
    "\uFB02Fl \uFB03Ffi \uFB04Ffl \uFB05St \uFB06St \uFB13\u0544\u0576 \uFB14\u0544\u0565 "
    "\uFB15\u0544\u056B \uFB16\u054E\u0576 \uFB17\u0544\u056D ";

struct CharacterRange {
  char32_t first;
  char32_t last;
};

// Characters that are lower or upper case without being Ll or Lu.
constexpr CharacterRange kOtherLower[] = {
    {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},    {0x2E0, 0x2E4},
    {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},   {0x1D78, 0x1D78},  {0x1D9B, 0x1DBF},
    {0x2071, 0x2071},   {0x207F, 0x207F},   {0x2090, 0x209C},   {0x2170, 0x217F},  {0x24D0, 0x24E9},
    {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},  {0xAB5C, 0xAB5F},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};
constexpr CharacterRange kOtherUpper[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
// Punctuation within words, which does not end them for a final sigma.
constexpr std::u32string_view kWithinWords =
    U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A";
constexpr char32_t kSigma = 0x3A3, kSmallSigma = 0x3C3, kFinalSigma = 0x3C2;

template <size_t N>
bool is_in(char32_t c, const CharacterRange (&ranges)[N]) {
  return std::ranges::any_of(ranges, [&](const auto& r) { return c >= r.first && c <= r.last; });
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_lower_letter(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || is_in(c, kOtherLower);
}
bool is_upper_letter(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU || is_in(c, kOtherUpper);
}
bool is_title_letter(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }
bool has_case(char32_t c) { return is_lower_letter(c) || is_upper_letter(c) || is_title_letter(c); }

// Whether a search for letters around a sigma passes over it.
bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return kWithinWords.find(c) != std::u32string_view::npos;
  }
}

// What a table has for it; empty: nothing.
std::string_view special(std::string_view table, char32_t c) {
  if (c < 0xDF) return {};
  for (size_t offset = 0; offset < table.size();) {
    const bool found = next_character(table, offset) == c;
    const size_t end = table.find(' ', offset);
    if (found) return table.substr(offset, end - offset);
    offset = end + 1;
  }
  return {};
}

template <typename Function>
char32_t mapped(Function function, char32_t c) {
  return static_cast<char32_t>(function(static_cast<utf8proc_int32_t>(c)));
}

// Greek with an iota below or beside: the capital and a capital iota.
bool has_iota(char32_t c) { return c >= 0x1F80 && c <= 0x1FAF; }
char32_t without_iota(char32_t c) {
  constexpr char32_t kCapitals[] = {0x1F08, 0x1F28, 0x1F68};
  return kCapitals[(c - 0x1F80) / 16] + c % 8;
}

void append_upper(std::string& text, char32_t c) {
  if (has_iota(c)) {
    append_character(text, without_iota(c));
    append_character(text, 0x399);
  } else if (const auto found = special(kSpecialUpper, c); !found.empty()) {
    text += found;
  } else {
    append_character(text, mapped(utf8proc_toupper, c));
  }
}

void append_title(std::string& text, char32_t c) {
  const char32_t simple = mapped(utf8proc_totitle, c);
  if (const auto found = special(kSpecialTitle, c); !found.empty()) {
    text += found;
  } else if (simple == c && !is_title_letter(c) && !special(kSpecialUpper, c).empty()) {
    append_upper(text, c);
  } else {
    append_character(text, simple);
  }
}

bool is_final_sigma(std::string_view text, size_t begin, size_t end) {
  char32_t c = 0;
  while (begin > 0 && is_case_ignorable(c = previous_character(text, begin))) c = 0;
  if (c == 0 || !has_case(c)) return false;
  for (c = 0; end < text.size();) {
    c = next_character(text, end);
    if (!is_case_ignorable(c)) break;
    c = 0;
  }
  return c == 0 || !has_case(c);
}

// The lower case of the character from `begin` to `end`.
void append_lower(std::string& lowered, std::string_view text, char32_t c, size_t begin,
                  size_t end) {
  if (c == 0x130) {
    lowered += "i\u0307";
  } else if (c == kSigma) {
    append_character(lowered, is_final_sigma(text, begin, end) ? kFinalSigma : kSmallSigma);
  } else {
    append_character(lowered, mapped(utf8proc_tolower, c));
  }
}

}  // namespace

std::string upper(std::string_view text) {
  std::string raised;
  for (size_t offset = 0; offset < text.size();) append_upper(raised, next_character(text, offset));
  return raised;
}

std::string lower(std::string_view text) {
  std::string lowered;
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    const char32_t c = next_character(text, offset);
    append_lower(lowered, text, c, begin, offset);
  }
  return lowered;
}

std::string capitalize(std::string_view text) {
  std::string changed;
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    const char32_t c = next_character(text, offset);
    if (begin == 0) {
      append_title(changed, c);
    } else {
      append_lower(changed, text, c, begin, offset);
    }
  }
  return changed;
}

std::string title(std::string_view text) {
  std::string changed;
  bool inside = false;
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    const char32_t c = next_character(text, offset);
    if (inside) {
      append_lower(changed, text, c, begin, offset);
    } else {
      append_title(changed, c);
    }
    inside = has_case(c);
  }
  return changed;
}

std::string title_words(std::string_view text) {
  const auto begins = [](char32_t c) {
    return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  std::string changed;
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    const char32_t first = next_character(text, offset);
    append_upper(changed, first);
    // The rest of a word is lowered as a text of its own, and so is a run of what begins words.
    const size_t rest = offset;
    while (offset < text.size()) {
      size_t next = offset;
      if (begins(next_character(text, next)) != begins(first)) break;
      offset = next;
    }
    if (offset > begin) changed += lower(text.substr(rest, offset - rest));
  }
  return changed;
}

bool is_upper(std::string_view text) {
  bool any = false;
  for (size_t offset = 0; offset < text.size();) {
    const char32_t c = next_character(text, offset);
    if (is_lower_letter(c) || is_title_letter(c)) return false;
    any = any || is_upper_letter(c);
  }
  return any;
}

bool is_lower(std::string_view text) {
  bool any = false;
  for (size_t offset = 0; offset < text.size();) {
    const char32_t c = next_character(text, offset);
    if (is_upper_letter(c) || is_title_letter(c)) return false;
    any = any || is_lower_letter(c);
  }
  return any;
}

}  // namespace trireme::dataset::chat
