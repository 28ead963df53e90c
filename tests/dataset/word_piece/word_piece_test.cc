#include "trireme/dataset/word_piece/word_piece.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/dataset/data.h"
#include "tests/dataset/word_piece/word_piece_json.h"
#include "trireme/dataset/tokenizer.h"

namespace trireme::dataset {
namespace {

std::vector<int32_t> tokens_of(const std::string& text) {
  return make_json_tokenizer(small_word_piece_json().dump(), "")->encode(text);
}

using Numbers = std::vector<int32_t>;

TEST(WordPiece, AWordIsTheLongestTokensFromItsBeginning) {
  EXPECT_EQ(tokens_of("unaffable"), (Numbers{5, 6, 7}));
  EXPECT_EQ(tokens_of(" UNaffable,\tab! "), (Numbers{5, 6, 7, 11, 8, 9, 10}));
  EXPECT_EQ(tokens_of("unaffablex a"), (Numbers{1, 8}));
  EXPECT_EQ(tokens_of("abbbbbbbb abbbbbbbbb"), (Numbers{8, 9, 9, 9, 9, 9, 9, 9, 9, 1}));
  EXPECT_EQ(tokens_of(""), Numbers());
}

TEST(WordPiece, TextIsNormalised) {
  EXPECT_EQ(tokens_of("Caf\u00c9 cafe\u0301"), (Numbers{12, 13, 12, 13}));
  EXPECT_EQ(tokens_of("a\u4e2da"), (Numbers{8, 14, 8}));
  EXPECT_EQ(tokens_of("a\x01\u200b\xff"
                      "b"),
            (Numbers{8, 9}));
  EXPECT_EQ(tokens_of("\u0130\u00a0i"), (Numbers{15, 15}));
}

TEST(WordPiece, AddedTokensAreFoundAndTheTokenizerSaysWhichTheyAre) {
  const auto tokenizer = make_json_tokenizer(small_word_piece_json().dump(), "");
  EXPECT_EQ(tokenizer->encode("[CLS]a[MASK]b"), (Numbers{2, 8, 4, 1}));
  EXPECT_EQ(tokenizer->end_of_document(), 3);
  EXPECT_EQ(tokenizer->mask_token(), 4);
  EXPECT_EQ(tokenizer->unknown_token(), 1);
  EXPECT_EQ(tokenizer->vocab_size(), 16);
  EXPECT_EQ(tokenizer->decode(Numbers{2, 5, 6, 7, 8, 10, 3}), "[CLS] unaffable a ! [SEP]");
  EXPECT_THROW(tokenizer->decode(Numbers{16}), ConfigError);
  const auto again = make_tokenizer(tokenizer->kind(), tokenizer->serialize(), 3);
  EXPECT_EQ(again->encode("unaffable"), (Numbers{5, 6, 7}));
  EXPECT_EQ(spelled_end_of_document(small_word_piece_json().dump(), 3), "[SEP]");
}

TEST(WordPiece, WrongFilesAreRefusedByTheirPart) {
  const auto expect = [](const auto& change, const std::vector<std::string>& parts) {
    nlohmann::ordered_json json = small_word_piece_json();
    change(json);
    expect_config_error([&] { make_json_tokenizer(json.dump(), ""); }, parts);
  };
  using Json = nlohmann::ordered_json;
  expect(
      [](Json& json) {
        json["normalizer"] = {{"type", "NFKC"}};
      },
      {"normalizer.type", "BertNormalizer"});
  expect(
      [](Json& json) {
        json["pre_tokenizer"] = {{"type", "Whitespace"}};
      },
      {"pre_tokenizer", "BertPreTokenizer"});
  expect([](Json& json) { json["model"]["unk_token"] = "[X]"; }, {"[X]"});
  expect([](Json& json) { json["model"]["vocab"]["a"] = 9; }, {"vocab", "9"});
  expect([](Json& json) { json["added_tokens"][0]["id"] = 7; }, {"added_tokens[0].id", "0"});
  expect([](Json& json) { json["added_tokens"][0]["content"] = "[CLS]"; }, {"added_tokens"});
  expect([](Json& json) { json["model"]["type"] = "Unigram"; }, {"model.type", "WordPiece"});
  expect([](Json& json) { json["model"]["continuing_subword_prefix"] = ""; }, {"##"});
}

}  // namespace
}  // namespace trireme::dataset
