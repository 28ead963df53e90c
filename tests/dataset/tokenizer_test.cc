#include "trireme/dataset/tokenizer.h"

#include <algorithm>

#include "tests/dataset/data.h"

namespace trireme::dataset {
namespace {

TEST(BytesTokenizer, MakesOneTokenAByte) {
  const auto tokenizer = make_bytes_tokenizer();
  EXPECT_EQ(tokenizer->kind(), TokenizerKind::kBytes);
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->end_of_document(), 256);
  EXPECT_EQ(tokenizer->encode(std::string_view("a\0\xFF", 3)), (std::vector<int32_t>{97, 0, 255}));
}

TEST(BytesTokenizer, ReturnsEveryStringOfBytes) {
  const auto tokenizer = make_bytes_tokenizer();
  for (int size = 0; size < 500; ++size) {
    const std::string text = random_bytes(random_key(size, "text"), size);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

TEST(BytesTokenizer, DecodesTheEndOfADocumentToNothing) {
  const auto tokenizer = make_bytes_tokenizer();
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{97, 256, 98}), "ab");
}

TEST(BytesTokenizer, RefusesTokensOutsideTheVocabulary) {
  const auto tokenizer = make_bytes_tokenizer();
  for (const int32_t token : {-1, 257})
    expect_config_error(
        [&] {
          (void)tokenizer->decode({&token, 1});
        },
        {"token " + std::to_string(token), "vocabulary of 257"});
}

TEST(LoadTokenizer, RefusesUnknownKinds) {
  const TemporaryFolder folder;
  const std::string prefix = folder / "a";
  write_text(tokenizer_json_path(prefix), "{\"kind\": \"words\", \"vocab_size\": 257}");
  expect_config_error([&] { load_tokenizer(prefix); },
                      {"\"words\"", "expected bytes, bpe or json"});
}

TEST(LoadTokenizer, ReturnsWhatWasSaved) {
  const TemporaryFolder folder;
  const std::string prefix = folder / "a";
  save_tokenizer(*make_bytes_tokenizer(), prefix);
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"a.tokenizer.json"}));
  EXPECT_EQ(load_tokenizer(prefix)->kind(), TokenizerKind::kBytes);
}

TEST(LoadTokenizer, RefusesMissingAndDamagedFiles) {
  const TemporaryFolder folder;
  const std::string prefix = folder / "a";
  const std::string path = tokenizer_json_path(prefix);
  expect_config_error([&] { load_tokenizer(prefix); }, {path, "does not exist"});
  for (const char* json : {"", "{", "[]", "{}", "{\"kind\": 1, \"vocab_size\": 257}",
                           "{\"kind\": \"bytes\", \"vocab_size\": \"257\"}", "\xFF",
                           "{\"kind\": \"bytes\", \"vocab_size\": 257, \"vocab_size\": 257}",
                           "{\"kind\": \"bytes\", \"vocab_size\": 18446744073709551873}",
                           "{\"kind\": \"bytes\", \"vocab_size\": 257, \"end_of_document\": 257}",
                           "{\"kind\": \"bytes\", \"vocab_size\": 257, \"end_of_document\": -1}"}) {
    write_text(path, json);
    expect_config_error([&] { load_tokenizer(prefix); },
                        {path, "make it again with `trireme data prepare`"});
  }
  write_text(path, std::string(50'000, '['));
  expect_config_error([&] { load_tokenizer(prefix); }, {path, "more than 32 deep"});
  write_text(path, std::string(100'000, ' '));
  expect_config_error([&] { load_tokenizer(prefix); }, {path, "expected at most 65536"});
  write_text(path, "{\"kind\": \"bytes\", \"vocab_size\": 257, \"end_of_document\": 0}");
  expect_config_error([&] { load_tokenizer(prefix); }, {path, "token 0", "says 256"});
  write_text(path, "{\"kind\": \"bytes\", \"vocab_size\": 300}");
  expect_config_error([&] { load_tokenizer(prefix); }, {path, "says 300", "has 257"});
  write_text(path, "{\"kind\": \"bpe\", \"vocab_size\": 300}");
  expect_config_error([&] { load_tokenizer(prefix); }, {"a.tokenizer.model", "does not exist"});
}

}  // namespace
}  // namespace trireme::dataset
