#include "trireme/dataset/byte_level/added_tokens.h"

#include <algorithm>

#include "trireme/base/locale/text.h"

namespace trireme::dataset {
namespace {

unsigned char first_byte(const AddedToken& token) {
  return static_cast<unsigned char>(token.content.front());
}

std::string_view first_character(std::string_view text) {
  return text.substr(0, utf8_character_bytes(text));
}

std::string_view last_character(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && utf8_character_bytes(text.substr(begin)) == 0) --begin;
  return text.substr(begin);
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)),
      word_(R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}])", "added tokens"),
      space_(R"(\s)", "added tokens") {
  std::ranges::sort(tokens_, {}, &AddedToken::content);
  for (size_t byte = 0; byte < 256; ++byte) {
    const auto end = std::ranges::partition_point(
        tokens_, [&](const AddedToken& token) { return first_byte(token) <= byte; });
    first_of_byte_[byte + 1] = static_cast<size_t>(end - tokens_.begin());
  }
}

// Narrows the sorted tokens to those that have the text's first bytes.
const AddedToken* AddedTokens::longest_at(std::string_view text) const {
  const auto byte = static_cast<unsigned char>(text[0]);
  auto begin = tokens_.begin() + static_cast<std::ptrdiff_t>(first_of_byte_[byte]);
  auto end = tokens_.begin() + static_cast<std::ptrdiff_t>(first_of_byte_[byte + 1]);
  const AddedToken* longest = nullptr;
  for (size_t length = 1; begin != end; ++length) {
    // Among tokens with this prefix, the one equal to the prefix comes first.
    if (begin->content.size() == length) longest = &*begin++;
    if (length == text.size()) break;
    const auto next = [length](const AddedToken& token) {
      return static_cast<unsigned char>(token.content[length]);
    };
    const auto same =
        std::ranges::equal_range(begin, end, static_cast<unsigned char>(text[length]), {}, next);
    begin = same.begin();
    end = same.end();
  }
  return longest;
}

bool AddedTokens::stands_alone(std::string_view text, size_t begin, size_t end,
                               MatchMemory& memory) const {
  const auto is_word = [&](std::string_view character) {
    return word_.find(character, 0, memory).has_value();
  };
  return !is_word(last_character(text.substr(0, begin))) &&
         !is_word(first_character(text.substr(end)));
}

void AddedTokens::split(std::string_view text, MatchMemory& memory,
                        const std::function<void(std::string_view)>& on_text,
                        const std::function<void(int32_t, std::string_view)>& on_token) const {
  const auto is_space = [&](std::string_view character) {
    return space_.find(character, 0, memory).has_value();
  };
  size_t done = 0;
  for (size_t at = 0; !tokens_.empty() && at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool may_begin = first_of_byte_[byte] != first_of_byte_[byte + 1];
    const AddedToken* const token = may_begin ? longest_at(text.substr(at)) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + token->content.size();
    at = end;
    if (token->single_word && !stands_alone(text, begin, end, memory)) continue;
    while (token->lstrip && begin > done) {
      const std::string_view character = last_character(text.substr(done, begin - done));
      if (!is_space(character)) break;
      begin -= character.size();
    }
    while (token->rstrip && end < text.size()) {
      const std::string_view character = first_character(text.substr(end));
      if (!is_space(character)) break;
      end += character.size();
    }
    if (begin > done) on_text(text.substr(done, begin - done));
    on_token(token->id, text.substr(begin, end - begin));
    done = end;
    at = end;
  }
  if (done < text.size()) on_text(text.substr(done));
}

}  // namespace trireme::dataset
