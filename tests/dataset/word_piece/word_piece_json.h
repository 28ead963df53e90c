// A small tokenizer.json of a BERT.
#pragma once

#include <nlohmann/json.hpp>

namespace trireme::dataset {

// 16 tokens, the first five of them special.
inline nlohmann::ordered_json small_word_piece_json() {
  constexpr const char* kSpecial[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  nlohmann::ordered_json vocabulary, added;
  for (const char* const token : kSpecial) {
    added.push_back({{"id", vocabulary.size()},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
    vocabulary[token] = vocabulary.size();
  }
  for (const char* const token :
       {"un", "##aff", "##able", "a", "##b", "!", ",", "caf", "##e", "\u4e2d", "i"}) {
    vocabulary[token] = vocabulary.size();
  }
  return {{"added_tokens", added},
          {"normalizer",
           {{"type", "BertNormalizer"},
            {"clean_text", true},
            {"handle_chinese_chars", true},
            {"strip_accents", nullptr},
            {"lowercase", true}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", "[UNK]"},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", 9},
            {"vocab", vocabulary}}}};
}

}  // namespace trireme::dataset
