#include "trireme/dataset/word_piece/word_piece.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <utf8proc.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

constexpr size_t kMaxTextBytes = std::numeric_limits<int32_t>::max();
constexpr size_t kMaxTokenBytes = 1024;
constexpr char32_t kReplacement = 0xFFFD;

std::u32string characters_of(std::string_view text) {
  std::u32string characters;
  characters.reserve(text.size());
  const auto* const bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t character = 0;
    const auto length =
        utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &character);
    characters.push_back(length > 0 ? static_cast<char32_t>(character) : kReplacement);
    at += length > 0 ? static_cast<size_t>(length) : 1;
  }
  return characters;
}

void append_utf8(char32_t character, std::string& text) {
  std::array<utf8proc_uint8_t, 4> bytes;
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes.data());
  text.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(length));
}

std::string utf8_of(std::u32string_view characters) {
  std::string text;
  for (const char32_t character : characters) append_utf8(character, text);
  return text;
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_between(char32_t c, char32_t first, char32_t last) { return c >= first && c <= last; }

// Unicode's White_Space.
bool is_space(char32_t c) {
  return is_between(c, 0x9, 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         is_between(c, 0x2000, 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_control(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  const utf8proc_category_t found = category(c);
  return found == UTF8PROC_CATEGORY_CC || found == UTF8PROC_CATEGORY_CF ||
         found == UTF8PROC_CATEGORY_CO || found == UTF8PROC_CATEGORY_CS;
}

bool is_chinese(char32_t c) {
  return is_between(c, 0x4E00, 0x9FFF) || is_between(c, 0x3400, 0x4DBF) ||
         is_between(c, 0x20000, 0x2A6DF) || is_between(c, 0x2A700, 0x2B73F) ||
         is_between(c, 0x2B740, 0x2B81F) || is_between(c, 0x2B920, 0x2CEAF) ||
         is_between(c, 0xF900, 0xFAFF) || is_between(c, 0x2F800, 0x2FA1F);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) {
    return is_between(c, '!', '/') || is_between(c, ':', '@') || is_between(c, '[', '`') ||
           is_between(c, '{', '~');
  }
  const utf8proc_category_t found = category(c);
  return found >= UTF8PROC_CATEGORY_PC && found <= UTF8PROC_CATEGORY_PO;
}

std::u32string cleaned(const std::u32string& text) {
  std::u32string result;
  for (const char32_t c : text) {
    if (c == 0 || c == kReplacement || is_control(c)) continue;
    result.push_back(is_space(c) ? U' ' : c);
  }
  return result;
}

std::u32string with_parted_chinese(const std::u32string& text) {
  std::u32string result;
  for (const char32_t c : text) {
    if (is_chinese(c)) {
      result.append({U' ', c, U' '});
    } else {
      result.push_back(c);
    }
  }
  return result;
}

int combining_class_of(char32_t c) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

// Normal form D without nonspacing marks.
std::u32string without_accents(const std::u32string& text) {
  std::u32string parts;
  for (const char32_t c : text) {
    std::array<utf8proc_int32_t, 32> found;
    const auto count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(c), found.data(), std::ssize(found),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), nullptr);
    if (count < 0 || count > std::ssize(found)) {
      parts.push_back(c);
    } else {
      parts.append(found.begin(), found.begin() + count);
    }
  }
  for (auto at = parts.begin(); at != parts.end();) {
    const auto has_none = [](char32_t c) { return combining_class_of(c) == 0; };
    const auto begin = std::find_if_not(at, parts.end(), has_none);
    at = std::find_if(begin, parts.end(), has_none);
    std::stable_sort(begin, at, [](char32_t a, char32_t b) {
      return combining_class_of(a) < combining_class_of(b);
    });
  }
  std::erase_if(parts, [](char32_t c) { return category(c) == UTF8PROC_CATEGORY_MN; });
  return parts;
}

std::u32string lowered(const std::u32string& text) {
  std::u32string result;
  for (const char32_t c : text) {
    // The one letter whose small form has two characters.
    if (c == 0x130) {
      result.append({U'i', char32_t{0x307}});
    } else {
      result.push_back(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  }
  return result;
}

WordNormal read_normal(const JsonView& root) {
  const auto found = root.find("normalizer");
  if (!found || found->value().is_null()) return {false, false, false, false};
  if (found->at("type").text() != "BertNormalizer") found->at("type").fail("BertNormalizer");
  WordNormal normal{.cleans = flag_of(*found, "clean_text", true),
                    .parts_chinese = flag_of(*found, "handle_chinese_chars", true),
                    .lowers = flag_of(*found, "lowercase", true)};
  // Null, as most files have it: as the letters.
  const auto strips = found->find("strip_accents");
  const bool is_said = strips && !strips->value().is_null();
  normal.strips_accents = is_said ? strips->boolean() : normal.lowers;
  return normal;
}

void require_type(const JsonView& root, std::string_view key, std::string_view type) {
  const auto found = root.find(key);
  if (!found || !found->value().is_object() || found->at("type").text() != type)
    root.at(key).fail(concat("an object of type ", type));
}

std::vector<AddedToken> tokens_of(const WordPieceFile& file, bool normalized) {
  return tokens_to_find(file.table.added, normalized, [&](const std::string& content) {
    return utf8_of(normalised(characters_of(content), file.normal));
  });
}

}  // namespace

std::u32string normalised(std::u32string text, const WordNormal& normal) {
  if (normal.cleans) text = cleaned(text);
  if (normal.parts_chinese) text = with_parted_chinese(text);
  if (normal.strips_accents) text = without_accents(text);
  if (normal.lowers) text = lowered(text);
  return text;
}

bool is_word_piece(const JsonView& root) {
  return root.at("model").at("type").text() == "WordPiece";
}

WordPieceFile read_word_piece(const JsonView& root) {
  require_type(root, "pre_tokenizer", "BertPreTokenizer");
  const JsonView model = root.at("model");
  WordPieceFile file{.normal = read_normal(root)};
  if (const auto found = model.find("continuing_subword_prefix")) {
    file.continuing = found->text();
    if (file.continuing.empty() || file.continuing.size() > kMaxTokenBytes)
      found->fail("a text such as ##");
  }
  if (const auto found = model.find("max_input_chars_per_word"))
    file.most_characters = static_cast<size_t>(found->integer(1, 1 << 20));
  file.table = read_token_table(root, [](const std::string& name, const JsonView& id) {
    if (name.size() > kMaxTokenBytes)
      id.fail(concat("the number of a token of at most ", kMaxTokenBytes, " bytes"));
    return name;
  });
  const auto unknown = model.find("unk_token");
  const std::string name = unknown ? unknown->text() : "[UNK]";
  const auto known = file.table.vocabulary.find(name);
  if (known == file.table.vocabulary.end())
    model.at("vocab").fail(concat("one that has the unknown token ", in_quotes(name, 60)));
  file.unknown = known->second;
  return file;
}

WordPiece::WordPiece(WordPieceFile file)
    : file_(std::move(file)),
      added_(tokens_of(file_, false)),
      added_normalised_(tokens_of(file_, true)) {
  for (const auto& [token, id] : file_.table.vocabulary)
    longest_ = std::max(longest_, characters_of(token).size());
}

std::vector<int32_t> WordPiece::encode(std::string_view text) const {
  TRIREME_CHECK(text.size() <= kMaxTextBytes, "a text of ", text.size(),
                " bytes is too large to encode at once; expected at most ", kMaxTextBytes);
  // What looks for added tokens takes well-formed text.
  const std::string whole = utf8_of(characters_of(text));
  std::vector<int32_t> tokens;
  MatchMemory memory;
  memory.begin_text(whole.size());
  added_.split(
      whole, memory,
      [&](std::string_view part) {
        const std::string normal = utf8_of(normalised(characters_of(part), file_.normal));
        added_normalised_.split(
            normal, memory,
            [&](std::string_view words) { encode_normalised(characters_of(words), tokens); },
            [&](int32_t token, std::string_view) { tokens.push_back(token); });
      },
      [&](int32_t token, std::string_view) { tokens.push_back(token); });
  return tokens;
}

void WordPiece::encode_normalised(const std::u32string& text, std::vector<int32_t>& tokens) const {
  const std::u32string_view all = text;
  for (size_t at = 0; at < all.size();) {
    size_t end = at + 1;
    if (is_space(all[at])) {
      at = end;
      continue;
    }
    if (!is_punctuation(all[at])) {
      while (end < all.size() && !is_space(all[end]) && !is_punctuation(all[end])) ++end;
    }
    encode_word(all.substr(at, end - at), tokens);
    at = end;
  }
}

void WordPiece::encode_word(std::u32string_view word, std::vector<int32_t>& tokens) const {
  const size_t begun = tokens.size();
  const auto give_up = [&] {
    tokens.resize(begun);
    tokens.push_back(file_.unknown);
  };
  if (word.size() > file_.most_characters) return give_up();
  for (size_t at = 0; at < word.size();) {
    // The longest piece from `at` on, and then shorter ones; `ends` has where its characters end.
    std::string piece = at > 0 ? file_.continuing : "";
    std::vector<size_t> ends;
    for (size_t i = at; i < word.size() && ends.size() < longest_; ++i) {
      append_utf8(word[i], piece);
      ends.push_back(piece.size());
    }
    size_t length = ends.size();
    while (length > 0) {
      const auto found =
          file_.table.vocabulary.find(std::string_view(piece).substr(0, ends[length - 1]));
      if (found != file_.table.vocabulary.end()) {
        tokens.push_back(found->second);
        break;
      }
      --length;
    }
    if (length == 0) return give_up();
    at += length;
  }
}

std::string WordPiece::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) {
    TRIREME_CHECK(token >= 0 && token < vocab_size(), "token ", token,
                  " is outside the vocabulary of ", vocab_size(), " (tokenizer json)");
    const std::string& piece = file_.table.tokens[static_cast<size_t>(token)];
    const bool continues = piece.starts_with(file_.continuing);
    if (!continues && !text.empty()) text += ' ';
    text += continues ? piece.substr(file_.continuing.size()) : piece;
  }
  return text;
}

}  // namespace trireme::dataset
