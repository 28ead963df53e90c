#include "trireme/dataset/byte_level/tokenizer_file.h"

#include "tests/dataset/byte_level/tokenizer_json.h"
#include "tests/dataset/data.h"

namespace trireme::dataset {
namespace {

using Json = nlohmann::ordered_json;

TokenizerFile read(const Json& json) { return read_tokenizer_file(json.dump(), "file"); }

// The file after `change`, a function that changes its JSON.
template <typename Change>
void expect_refusal(Change change, const std::vector<std::string>& parts) {
  Json json = small_tokenizer_json();
  change(json);
  expect_config_error([&] { read(json); }, parts);
}

TEST(TokenizerFile, ReadsTokensAndMerges) {
  const TokenizerFile file = read(small_tokenizer_json());
  ASSERT_EQ(file.tokens.size(), static_cast<size_t>(kNumTokens));
  EXPECT_EQ(file.tokens[259], "    ");
  EXPECT_EQ(file.tokens[262], "<|im_start|>");
  EXPECT_EQ(file.bytes[200], 200);
  EXPECT_EQ(file.vocabulary.size(), 261u);
  ASSERT_EQ(file.merges.size(), 5u);
  EXPECT_EQ(file.merges[1].left, 256);
  EXPECT_EQ(file.merges[1].right, 'c');
  EXPECT_EQ(file.merges[1].result, 257);
  EXPECT_EQ(file.added.size(), 3u);
  ASSERT_EQ(file.steps.size(), 1u);
  EXPECT_TRUE(file.steps[0].pattern.starts_with("'s|'t"));
  EXPECT_FALSE(file.ignores_merges || file.composes || file.steps[0].adds_space);
}

TEST(TokenizerFile, ReadsMergesAsPairs) {
  Json json = small_tokenizer_json();
  json["model"]["merges"] = Json::array({Json::array({"a", "b"}), Json::array({"ab", "c"})});
  const TokenizerFile file = read(json);
  ASSERT_EQ(file.merges.size(), 2u);
  EXPECT_EQ(file.merges[1].result, 257);
}

TEST(TokenizerFile, ReadsTheStepsInTheirOrder) {
  Json json = small_tokenizer_json();
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", "a+"}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}};
  const Json inner = {{"type", "Sequence"}, {"pretokenizers", {split, digits}}};
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {inner, bytes}}};
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  json["model"]["ignore_merges"] = true;
  const TokenizerFile file = read(json);
  ASSERT_EQ(file.steps.size(), 3u);
  EXPECT_EQ(file.steps[0].pattern, "a+");
  EXPECT_EQ(file.steps[1].pattern, R"(\p{N})");
  EXPECT_EQ(file.steps[2].pattern, "");
  EXPECT_TRUE(file.steps[2].adds_space);
  EXPECT_TRUE(file.composes && file.ignores_merges);
}

TEST(TokenizerFile, TakesTheUsualEndOfADocument) {
  TokenizerFile file = read(small_tokenizer_json());
  EXPECT_EQ(find_end_of_document(file.added, "", "file"), kEndOfDocument);
  EXPECT_EQ(find_end_of_document(file.added, "<|im_start|>", "file"), 262);
  expect_config_error([&] { find_end_of_document(file.added, "<|no|>", "file"); },
                      {"file: ", "<|no|>", "--end-of-document"});
  file.added.erase(file.added.begin());
  EXPECT_EQ(find_end_of_document(file.added, "", "file"), 263);
  file.added.clear();
  expect_config_error([&] { find_end_of_document(file.added, "", "file"); },
                      {"file: ", "--end-of-document"});
}

TEST(TokenizerFile, RefusesOtherTokenizers) {
  expect_refusal([](Json& j) { j["model"]["type"] = "Unigram"; }, {"model.type", "Unigram", "BPE"});
  expect_refusal(
      [](Json& j) {
        j["normalizer"] = {{"type", "Prepend"}};
      },
      {"normalizer.type", "NFC", "--tokenizer bpe"});
  expect_refusal([](Json& j) { j["pre_tokenizer"] = nullptr; },
                 {"pre_tokenizer", "ByteLevel", "--tokenizer bpe"});
  expect_refusal([](Json& j) { j["pre_tokenizer"] = {{"type", "Metaspace"}}; }, {"ByteLevel"});
  expect_refusal([](Json& j) { j["decoder"] = {{"type", "Fuse"}}; }, {"decoder", "ByteLevel"});
  expect_refusal([](Json& j) { j["decoder"] = nullptr; }, {"decoder", "ByteLevel"});
  expect_refusal([](Json& j) { j["model"]["dropout"] = 0.1; }, {"model.dropout", "0.1"});
  expect_refusal([](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; },
                 {"model.end_of_word_suffix"});
  const Json bytes = small_tokenizer_json()["pre_tokenizer"];
  const auto with_step = [&](const Json& step) {
    return [=](Json& j) {
      j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {step, bytes}}};
    };
  };
  expect_refusal(with_step(bytes), {"Split, Digits"});
  expect_refusal(with_step({{"type", "Split"}, {"behavior", "Removed"}}), {"Isolated"});
  expect_refusal(
      with_step({{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"String", " "}}}}),
      {"Regex"});
}

TEST(TokenizerFile, RefusesAddedTokensThatTakeLongToCompare) {
  const auto with_content = [](size_t num_bytes) {
    return [=](Json& j) { j["added_tokens"][1]["content"] = std::string(num_bytes, 'a'); };
  };
  expect_refusal(with_content(1025), {"added_tokens", "at most 1024 bytes"});
  Json json = small_tokenizer_json();
  with_content(1024)(json);
  EXPECT_EQ(read_tokenizer_file(json.dump(), "file").added[1].content.size(), 1024u);
}

TEST(TokenizerFile, RefusesNumbersThatDoNotFit) {
  expect_refusal([](Json& j) { j["model"]["vocab"]["ab"] = 5; }, {"no other token has"});
  expect_refusal([](Json& j) { j["model"]["vocab"]["ab"] = 264; }, {"from 0 to 263"});
  expect_refusal([](Json& j) { j["model"]["vocab"]["ab"] = -1; }, {"from 0 to 263"});
  expect_refusal([](Json& j) { j["model"]["vocab"].erase("a"); }, {"from 0 to 262"});
  expect_refusal([](Json& j) { j["added_tokens"][0]["id"] = 262; }, {"no other token has"});
  expect_refusal([](Json& j) { j["added_tokens"][1] = j["added_tokens"][0]; }, {"added_tokens[1]"});
  expect_refusal([](Json& j) { j["added_tokens"][0]["content"] = ""; },
                 {"added_tokens[0].content"});
  expect_refusal([](Json& j) { j["added_tokens"][0]["content"] = "ab"; },
                 {"added_tokens[0].id", "as in the vocabulary"});
  expect_refusal(
      [](Json& j) {
        j["model"]["vocab"]["x y"] = 264;
        j["model"]["vocab"].erase(spelled_byte('\n'));
        j["model"]["vocab"]["z z"] = 10;
      },
      {"model.vocab", "byte 10"});
}

TEST(TokenizerFile, RefusesMergesOfTokensThatItLacks) {
  for (const char* merge : {"a", "a b c", "", "ab  c", "b a", "x y", "zz a"})
    expect_refusal([&](Json& j) { j["model"]["merges"].push_back(merge); }, {"model.merges[5]"});
  expect_refusal(
      [](Json& j) {
        j["model"]["merges"].push_back(Json::array({"a", "b", "c"}));
      },
      {"two tokens"});
  expect_refusal([](Json& j) { j["model"]["merges"].push_back(7); }, {"model.merges[5]"});
}

TEST(TokenizerFile, RefusesDamagedText) {
  for (const char* text : {"", "{", "[]", "{}", "null", "{\"model\": {}}", "\xFF"})
    expect_config_error([&] { read_tokenizer_file(text, "file"); }, {"file: "});
}

}  // namespace
}  // namespace trireme::dataset
