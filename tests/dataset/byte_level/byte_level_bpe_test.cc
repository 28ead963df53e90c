#include "trireme/dataset/byte_level/byte_level_bpe.h"

#include <thread>

#include "tests/dataset/byte_level/tokenizer_json.h"
#include "tests/dataset/data.h"

namespace trireme::dataset {
namespace {

using Json = nlohmann::ordered_json;
using Tokens = std::vector<int32_t>;

ByteLevelBpe make(const Json& json = small_tokenizer_json(), int32_t end = kEndOfDocument) {
  return ByteLevelBpe(read_tokenizer_file(json.dump(), "file"), end, "file");
}

TEST(ByteLevelBpe, MergesTheBytesOfEachPart) {
  const ByteLevelBpe bpe = make();
  EXPECT_EQ(bpe.vocab_size(), kNumTokens);
  EXPECT_EQ(bpe.encode("abcab"), (Tokens{257, 256}));
  EXPECT_EQ(bpe.encode("x ab"), (Tokens{'x', ' ', 256}));
  EXPECT_EQ(bpe.encode("     a"), (Tokens{259, 260}));  // the last space belongs to the word
  EXPECT_EQ(bpe.encode(""), Tokens{});
}

TEST(ByteLevelBpe, FindsAddedTokensButNotTheEndOfADocument) {
  const ByteLevelBpe bpe = make();
  EXPECT_EQ(bpe.encode("a<|im_start|>b"), (Tokens{'a', 262, 'b'}));
  const Tokens tokens = bpe.encode("<|endoftext|>");
  EXPECT_EQ(tokens.size(), 13u);
  EXPECT_EQ(bpe.decode(tokens), "<|endoftext|>");
  EXPECT_EQ(bpe.decode(Tokens{'a', kEndOfDocument, 262}), "a<|im_start|>");
}

// The end of a turn has a meaning in texts, even if it also ends documents.
TEST(ByteLevelBpe, FindsATokenOfAnotherPurposeThatEndsDocumentsToo) {
  const ByteLevelBpe bpe = make(small_tokenizer_json(), 262);
  EXPECT_EQ(bpe.end_of_document(), 262);
  EXPECT_EQ(bpe.encode("a<|im_start|>b"), (Tokens{'a', 262, 'b'}));
  EXPECT_EQ(bpe.decode(Tokens{'a', 262, 'b'}), "a<|im_start|>b");
  // Then <|endoftext|> is a token like others.
  EXPECT_EQ(bpe.encode("<|endoftext|>"), Tokens{kEndOfDocument});
  // The third name is usual too.
  EXPECT_EQ(make(small_tokenizer_json(), 263).encode("</s>").size(), 4u);
}

TEST(ByteLevelBpe, ReturnsEveryStringOfBytes) {
  const ByteLevelBpe bpe = make();
  const std::vector<std::string> parts = {
      " ",  "ab",           "\xFF",         "\xE2\x82",      "\u00E9",
      "\n", "\xED\xA0\x80", "<|im_start|>", "<|endoftext|>", std::string(1, '\0')};
  for (int round = 0; round < 500; ++round) {
    const RandomKey key = random_key(static_cast<uint64_t>(round), "text");
    std::string text = random_bytes(key, static_cast<size_t>(round) % 50);
    for (int i = 0; i < round % 30; ++i)
      text += parts[random_bits(key, 1000 + i)[0] % parts.size()];
    const Tokens tokens = bpe.encode(text);
    EXPECT_EQ(bpe.decode(tokens), text);
    for (const int32_t token : tokens) EXPECT_NE(token, kEndOfDocument);
  }
}

TEST(ByteLevelBpe, GivesBytesThatAreNotUtf8ATokenEach) {
  EXPECT_EQ(make().encode("ab\xFF\xC3"
                          "ab"),
            (Tokens{256, 0xFF, 0xC3, 256}));
}

TEST(ByteLevelBpe, KeepsAPartThatIsATokenWhole) {
  Json json = small_tokenizer_json();
  json["model"]["merges"] = {"b c"};
  json["model"]["vocab"]["bc"] = 264;
  EXPECT_EQ(make(json).encode("abc"), (Tokens{'a', 264}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(make(json).encode("abc"), (Tokens{257}));
}

TEST(ByteLevelBpe, ComposesTextAndAddsASpaceWhereTheFileSaysSo) {
  Json json = small_tokenizer_json();
  json["normalizer"] = {{"type", "NFC"}};
  const Tokens composed = make(json).encode("e\u0301");
  EXPECT_EQ(composed, (Tokens{0xC3, 0xA9}));
  json["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_EQ(make(json).encode("ab<|im_start|> ab"), (Tokens{' ', 256, 262, ' ', 256}));
}

TEST(ByteLevelBpe, FindsNormalisedTokensInNormalisedText) {
  Json json = small_tokenizer_json();
  json["normalizer"] = {{"type", "NFC"}};
  Json token = json["added_tokens"][1];
  token["id"] = 264;
  token["content"] = "ge\u0301";
  token["normalized"] = true;
  json["added_tokens"].push_back(token);
  EXPECT_EQ(make(json).encode("ge\u0301 g\u00E9"), (Tokens{264, ' ', 264}));
  json["added_tokens"][3]["normalized"] = false;
  EXPECT_EQ(make(json).encode("ge\u0301 g\u00E9"), (Tokens{264, ' ', 'g', 0xC3, 0xA9}));
}

// The token that holds each of the given characters.
std::vector<size_t> holders(const ByteLevelBpe& bpe, std::string_view text,
                            const std::vector<size_t>& characters) {
  std::vector<size_t> found;
  EXPECT_EQ(bpe.encode(text, characters, found), bpe.encode(text));
  return found;
}

TEST(ByteLevelBpe, SaysWhichTokenHoldsACharacter) {
  using Found = std::vector<size_t>;
  const ByteLevelBpe bpe = make();
  // abc, ab, then the special token, then x and the two bytes of a letter.
  EXPECT_EQ(holders(bpe, "abcab<|im_start|>x\u00E9", {0, 1, 2, 3, 4, 5, 16, 17, 18}),
            (Found{0, 0, 0, 1, 1, 2, 2, 3, 4}));
  EXPECT_EQ(holders(bpe, "abab", {1, 1, 2}), (Found{0, 0, 1}));
  EXPECT_EQ(holders(bpe, "ab", {}), Found{});
  EXPECT_EQ(holders(bpe, "", {}), Found{});
}

TEST(ByteLevelBpe, SaysSoOfTheTextBeforeItIsComposedOrSpaced) {
  using Found = std::vector<size_t>;
  Json json = small_tokenizer_json();
  json["normalizer"] = {{"type", "NFC"}};
  // x, two bytes of the composed letter, y: the mark is a part of the letter before it.
  EXPECT_EQ(holders(make(json), "xe\u0301y", {0, 1, 4}), (Found{0, 1, 3}));
  std::vector<size_t> found;
  expect_config_error([&] { make(json).encode("xe\u0301y", std::vector<size_t>{2}, found); },
                      {"a character is composed with one before it"});
  json["pre_tokenizer"]["add_prefix_space"] = true;
  // A space that the text has not is the first token, and counts as the first character.
  EXPECT_EQ(holders(make(json), "xy<|im_start|> z", {0, 1, 2, 14, 15}), (Found{0, 2, 3, 4, 5}));
  Json token = json["added_tokens"][1];
  token["id"] = 264;
  token["content"] = "ge\u0301";
  token["normalized"] = true;
  json["added_tokens"].push_back(token);
  json["pre_tokenizer"]["add_prefix_space"] = false;
  EXPECT_EQ(holders(make(json), "xge\u0301y", {0, 1, 5}), (Found{0, 1, 2}));
}

TEST(ByteLevelBpe, FindsTheUsualEndWhenATemplateMayWriteIt) {
  const ByteLevelBpe bpe(read_tokenizer_file(small_tokenizer_text(), "file"), kEndOfDocument,
                         "file", UsualEnd::kIsToken);
  EXPECT_EQ(bpe.encode("a<|endoftext|>"), (Tokens{'a', kEndOfDocument}));
  EXPECT_EQ(bpe.decode(Tokens{kEndOfDocument}), "<|endoftext|>");
}

TEST(ByteLevelBpe, RefusesAnEndOfADocumentThatTextEncodesTo) {
  for (const char* content : {"a", "abc"}) {
    Json json = small_tokenizer_json();
    Json token = json["added_tokens"][0];
    token["id"] = json["model"]["vocab"][content];
    token["content"] = content;
    json["added_tokens"].push_back(token);
    expect_config_error([&] { make(json, token["id"]); }, {"file: ", "--end-of-document"});
  }
}

TEST(ByteLevelBpe, RefusesTokensOutsideTheVocabulary) {
  for (const int32_t token : {-1, kNumTokens})
    expect_config_error([&] { (void)make().decode({&token, 1}); }, {"vocabulary of 264"});
}

TEST(ByteLevelBpe, EncodesAMillionOfOneCharacter) {
  const ByteLevelBpe bpe = make();
  EXPECT_EQ(bpe.encode(std::string(1'000'000, ' ')).size(), 250'000u);
  EXPECT_EQ(bpe.encode(std::string(1'000'000, 'a')).size(), 1'000'000u);
  EXPECT_EQ(bpe.encode(std::string(1'000'000, '\xFF')).size(), 1'000'000u);
}

TEST(ByteLevelBpe, EncodesOnSeveralThreads) {
  const ByteLevelBpe bpe = make();
  std::string text;
  for (int i = 0; i < 2000; ++i) text += concat(" ab", i);
  const Tokens expected = bpe.encode(text);
  std::vector<Tokens> found(4);
  std::vector<std::thread> threads;
  for (Tokens& tokens : found) {
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round) tokens = bpe.encode(text);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Tokens& tokens : found) EXPECT_EQ(tokens, expected);
}

}  // namespace
}  // namespace trireme::dataset
