#include "trireme/dataset/tokenizer.h"

#include "tests/dataset/byte_level/tokenizer_json.h"
#include "tests/dataset/data.h"
#include "trireme/dataset/prepare.h"

namespace trireme::dataset {
namespace {

TEST(JsonTokenizer, IsLoadedAsItWasSaved) {
  EXPECT_TRUE(json_tokenizer_available());
  const TemporaryFolder folder;
  const std::string prefix = folder / "a";
  for (const char* end : {"", "<|im_start|>"}) {
    const auto tokenizer = make_json_tokenizer(small_tokenizer_text(), end);
    save_tokenizer(*tokenizer, prefix);
    const auto loaded = load_tokenizer(prefix);
    EXPECT_EQ(loaded->kind(), TokenizerKind::kJson);
    EXPECT_EQ(loaded->vocab_size(), kNumTokens);
    EXPECT_EQ(loaded->end_of_document(), tokenizer->end_of_document());
    EXPECT_EQ(loaded->serialize(), small_tokenizer_text());
    EXPECT_EQ(loaded->encode("ab abc"), tokenizer->encode("ab abc"));
  }
  EXPECT_EQ(load_tokenizer(prefix)->end_of_document(), 262);
}

TEST(JsonTokenizer, SpellsItsEndOfADocument) {
  EXPECT_EQ(spelled_end_of_document(small_tokenizer_text(), kEndOfDocument), "<|endoftext|>");
  expect_config_error([] { spelled_end_of_document(small_tokenizer_text(), 5); },
                      {"token 5", "added tokens"});
  expect_config_error([] { make_json_tokenizer(small_tokenizer_text(), 5); }, {"token 5"});
}

TEST(JsonTokenizer, NamesItsMaskToken) {
  EXPECT_EQ(make_json_tokenizer(small_tokenizer_text(), "")->mask_token(), std::nullopt);
  EXPECT_EQ(make_bytes_tokenizer()->mask_token(), std::nullopt);
  for (const std::string mask : {"[MASK]", "<mask>"}) {
    std::string text = small_tokenizer_text();
    for (const std::string_view name = "<|im_start|>"; text.find(name) != text.npos;) {
      text.replace(text.find(name), name.size(), mask);
    }
    EXPECT_EQ(make_json_tokenizer(text, "")->mask_token(), 262) << mask;
  }
}

TEST(JsonTokenizer, PreparesTokenFiles) {
  const TemporaryFolder folder;
  write_text(folder / "in/a.txt", "ab\xFF abc");
  write_text(folder / "tokenizer.json", small_tokenizer_text());
  PrepareOptions options{.inputs = {folder / "in"}, .output = folder / "out/x"};
  options.tokenizer = TokenizerKind::kJson;
  expect_config_error([&] { prepare(options); }, {"--tokenizer-model"});
  options.tokenizer_model = folder / "tokenizer.json";
  options.end_of_document = "</s>";
  EXPECT_EQ(prepare(options).vocab_size, kNumTokens);
  EXPECT_EQ(read_all(IndexedFile(options.output)),
            (std::vector<int64_t>{256, 0xFF, ' ', 257, 263}));
  EXPECT_EQ(load_tokenizer(options.output)->end_of_document(), 263);
  options.tokenizer = TokenizerKind::kBytes;
  options.tokenizer_model = "";
  expect_config_error([&] { prepare(options); }, {"</s>", "--end-of-document"});
}

}  // namespace
}  // namespace trireme::dataset
