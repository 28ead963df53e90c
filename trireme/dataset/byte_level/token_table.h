// The tokens of a tokenizer.json, whatever its model is: those of the vocabulary, and the added
// ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trireme/base/bounded_json.h"
#include "trireme/dataset/byte_level/added_tokens.h"

namespace trireme::dataset {

struct TokenTable {
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::vector<std::string> tokens{};  // what each stands for, by its number
  // Those of the vocabulary, by their names.
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> vocabulary{};
  std::vector<AddedToken> added{};
};

// What a token of the vocabulary stands for. id: where its number is, for messages
using SpellToken = std::function<std::string(const std::string& name, const JsonView& id)>;

// An added token either repeats one of the vocabulary or lies behind it, and stands for its own
// text. Each number is taken once, so the numbers have no gaps.
// Throws: ConfigError for anything else, and for an added token of more than 1024 bytes, because
//         each byte of a text may be compared with each of its
TokenTable read_token_table(const JsonView& root, const SpellToken& spell);

// Those that are looked for in text that has been normalised, or in text as it is.
// normal: the text of a token as normalised text has it
std::vector<AddedToken> tokens_to_find(std::span<const AddedToken> added, bool normalized,
                                       const std::function<std::string(std::string)>& normal);

// A member that is true or false; `otherwise` when there is none.
bool flag_of(const JsonView& object, std::string_view key, bool otherwise);

}  // namespace trireme::dataset
