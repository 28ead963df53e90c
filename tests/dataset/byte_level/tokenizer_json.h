// A small tokenizer.json: the 256 bytes, a few merges, three special tokens.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "trireme/dataset/byte_level/tokenizer_file.h"

namespace trireme::dataset {

inline constexpr int kEndOfDocument = 261;
inline constexpr int kNumTokens = 264;

// Tokens 0 to 255 are the bytes in their order; 256 to 260 are ab, abc, two spaces, four, " a".
inline nlohmann::ordered_json small_tokenizer_json() {
  nlohmann::ordered_json vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[spelled_byte(static_cast<uint8_t>(byte))] = byte;
  }
  const std::string space = spelled_byte(' ');
  const std::string two = space + space;
  int next = 256;
  for (const std::string& token :
       {std::string("ab"), std::string("abc"), two, two + two, space + "a"})
    vocabulary[token] = next++;
  const auto special = [](int id, std::string_view content) {
    return nlohmann::ordered_json{{"id", id},        {"content", content}, {"single_word", false},
                                  {"lstrip", false}, {"rstrip", false},    {"normalized", false},
                                  {"special", true}};
  };
  return {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"added_tokens",
       {special(kEndOfDocument, "<|endoftext|>"), special(262, "<|im_start|>"),
        special(263, "</s>")}},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"byte_fallback", false},
        {"vocab", vocabulary},
        {"merges", {"a b", "ab c", space + " " + space, two + " " + two, space + " a"}}}}};
}

inline std::string small_tokenizer_text() { return small_tokenizer_json().dump(); }

}  // namespace trireme::dataset
