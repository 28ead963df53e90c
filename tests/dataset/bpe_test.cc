#include "trireme/dataset/bpe.h"

#include <algorithm>

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include "tests/dataset/data.h"
#include "tests/harness/draw.h"

namespace trireme::dataset {
namespace {

std::string standard_library_file(const std::string& name) {
  return read_file(std::filesystem::path(TRIREME_STDLIB) / name);
}

std::function<std::string()> text_of(std::vector<std::string> blocks) {
  return [blocks, next = size_t{0}]() mutable {
    return next < blocks.size() ? blocks[next++] : std::string();
  };
}

std::string train_on_source(int64_t vocab_size) {
  return train_bpe(
      text_of({standard_library_file("argparse.py"), standard_library_file("difflib.py")}),
      vocab_size);
}

// Trained once for all tests here.
const Tokenizer& source_tokenizer() {
  static const auto tokenizer = make_bpe_tokenizer(train_on_source(1500));
  return *tokenizer;
}

void expect_round_trip(const Tokenizer& tokenizer, const std::string& text) {
  const auto tokens = tokenizer.encode(text);
  ASSERT_EQ(tokenizer.decode(tokens), text);
  for (const int32_t token : tokens) ASSERT_NE(token, tokenizer.end_of_document());
}

TEST(Bpe, HasTheVocabularyAskedFor) {
  EXPECT_TRUE(bpe_available());
  EXPECT_EQ(source_tokenizer().kind(), TokenizerKind::kBpe);
  EXPECT_EQ(source_tokenizer().vocab_size(), 1500);
  EXPECT_EQ(source_tokenizer().decode(std::vector<int32_t>{source_tokenizer().end_of_document()}),
            "");
}

TEST(Bpe, CompressesTheTextItWasTrainedOn) {
  const std::string text = standard_library_file("argparse.py");
  EXPECT_LT(source_tokenizer().encode(text).size() * 2.5, text.size());
  EXPECT_EQ(source_tokenizer().encode("self").size(), 1u);
  EXPECT_EQ(source_tokenizer().encode("        ").size(), 1u);
}

TEST(Bpe, ReturnsSourceCode) {
  for (const char* name : {"argparse.py", "ast.py", "html/entities.py", "this.py"})
    expect_round_trip(source_tokenizer(), standard_library_file(name));
}

TEST(Bpe, ReturnsWhatSentencePieceFoldsOrRepairs) {
  using namespace std::string_literals;
  const std::vector<std::string> texts = {"",
                                          " ",
                                          "  ",
                                          " a",
                                          "a ",
                                          "a  b",
                                          "   a   b   ",
                                          "\n",
                                          "\n\n\n",
                                          "\r\n",
                                          "a\r\nb\r",
                                          "\t",
                                          "\t\t\t\t\t\t\ta",
                                          " \t \t",
                                          "a\tb",
                                          "\u2581",
                                          "\u2581\u2581a \u2581b",
                                          "\u2585",
                                          "\uFFFD",
                                          "\xFF",
                                          "\xC3",
                                          "a\xC3",
                                          "\xE2\x96",
                                          "\xE2\x96\x81",
                                          "\xED\xA0\x80",
                                          "\0"s,
                                          "a\0b\0"s,
                                          "<s></s><unk><0x41>",
                                          "\u00A0\u3000\u200B\uFEFF",
                                          "e\u0301 \u00E9 \uFF21 \u2126 \uFB01",
                                          "\U0001F600\U0001F468\u200D\U0001F469",
                                          "\v\f\x1C\x1D\x85\u2028\u2029",
                                          std::string(100000, ' '),
                                          std::string(100000, 'a'),
                                          std::string(50000, '\xFF')};
  for (const std::string& text : texts) expect_round_trip(source_tokenizer(), text);
}

TEST(Bpe, ReturnsEveryByteAndEveryCharacter) {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text.push_back(static_cast<char>(byte));
  expect_round_trip(source_tokenizer(), text);
  text.clear();
  for (uint32_t c = 0x80; c < 0x110000; c += c < 0x3000 ? 1 : 7) {
    if (c >= 0x10000) text.push_back(static_cast<char>(0xF0 | (c >> 18)));
    if (c >= 0x10000) text.push_back(static_cast<char>(0x80 | ((c >> 12) & 0x3F)));
    if (c >= 0x800 && c < 0x10000) text.push_back(static_cast<char>(0xE0 | (c >> 12)));
    if (c >= 0x800) text.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
    if (c < 0x800) text.push_back(static_cast<char>(0xC0 | (c >> 6)));
    text.push_back(static_cast<char>(0x80 | (c & 0x3F)));
    if (c % 64 == 0) text.push_back(' ');
  }
  expect_round_trip(source_tokenizer(), text);
}

TEST(Bpe, ReturnsRandomBytesAndRandomMixtures) {
  const std::vector<std::string> parts = {
      " ",      "  ",     "\n",     "\r\n",  "\t",
      "self",   "\u2581", "\xE2",   "\x96",  "\x81",
      "\u00E9", "</s>",   "0x",     "\xFF",  std::string(1, '\0'),
      "\u2585", "<0x0A>", "return", "12345", "\uFFFD"};
  const std::string source = standard_library_file("ast.py");
  for (int round = 0; round < 1000; ++round) {
    const RandomKey key = random_key(round, "mixture");
    expect_round_trip(source_tokenizer(), random_bytes(key, round % 97));
    std::string text;
    for (int i = 0; i < 30; ++i) {
      const auto bits = random_bits(key, i);
      text += bits[0] % 3 == 0 ? source.substr(bits[1] % source.size(), bits[2] % 40)
                               : parts[bits[1] % parts.size()];
    }
    expect_round_trip(source_tokenizer(), text);
  }
}

TEST(Bpe, SwitchesFoldingOffInAModelThatHasIt) {
  // Protobuf lets later bytes override: add_dummy_prefix and remove_extra_whitespaces on.
  const std::string folding = source_tokenizer().serialize() + "\x1A\x04\x18\x01\x20\x01";
  const auto tokenizer = make_bpe_tokenizer(folding);
  const std::string text = "  def f(x):\n        return  x\n";
  expect_round_trip(*tokenizer, text);
  EXPECT_EQ(tokenizer->encode(text), source_tokenizer().encode(text));
}

class SentenceList : public sentencepiece::SentenceIterator {
 public:
  explicit SentenceList(std::vector<std::string> sentences) : sentences_(std::move(sentences)) {}
  bool done() const override { return at_ == sentences_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return sentences_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::vector<std::string> sentences_;
  size_t at_ = 0;
};

// Words of letters or of Chinese, with runs of spaces, tabs and line ends between some of them.
std::string draw_text(harness::Draw& draw, size_t num_bytes, bool has_blanks) {
  constexpr std::string_view kLetters = "etaoinshrdlu0123456789.,EA";
  std::string text;
  while (text.size() < num_bytes) {
    const bool is_chinese = draw.below(3) == 0;
    for (int left = 1 + draw.below(6); left > 0; --left) {
      // The common ones come most often.
      const size_t at = draw.below(1 + draw.below(kLetters.size()));
      if (is_chinese) {
        text += concat("\xE4\xB8", static_cast<char>(0x80 + at));
      } else {
        text += kLetters[at];
      }
    }
    constexpr std::string_view kBlanks[] = {" ", " ", " ", "  ", "   ", "\t", "\n", ""};
    if (has_blanks) text += kBlanks[draw.below(std::size(kBlanks))];
  }
  return text;
}

TEST(Bpe, GivesTheTokensOfSentencePieceForModelsOfEveryKind) {
  using Options = std::unordered_map<std::string, std::string>;
  harness::Draw draw(1);
  std::vector<std::string> sentences;
  for (int i = 0; i < 400; ++i) sentences.push_back(draw_text(draw, 60, i % 4 != 0));
  for (const std::string kind : {"bpe", "unigram", "char"}) {
    for (const std::string suffix : {"false", "true"}) {
      for (const std::string splits : {"true", "false"}) {
        SCOPED_TRACE(concat(kind, ", suffix ", suffix, ", split_by_whitespace ", splits));
        Options options = {{"model_type", kind},
                           {"treat_whitespace_as_suffix", suffix},
                           {"split_by_whitespace", splits},
                           {"vocab_size", "600"},
                           {"hard_vocab_limit", "false"},
                           {"byte_fallback", "true"},
                           {"normalization_rule_name", "identity"},
                           {"add_dummy_prefix", "false"},
                           {"remove_extra_whitespaces", "false"},
                           {"allow_whitespace_only_pieces", draw.below(2) == 0 ? "true" : "false"},
                           {"user_defined_symbols", draw.below(2) == 0 ? "\t,<x>" : ""},
                           {"split_digits", draw.below(2) == 0 ? "true" : "false"},
                           {"minloglevel", "4"}};
        std::string model;
        SentenceList list(sentences);
        const auto trained = sentencepiece::SentencePieceTrainer::Train(options, &list, &model);
        ASSERT_TRUE(trained.ok()) << trained.ToString();
        sentencepiece::SentencePieceProcessor reference;
        ASSERT_TRUE(reference.LoadFromSerializedProto(model).ok());
        const auto tokenizer = make_bpe_tokenizer(model);
        for (const size_t num_bytes : {0, 1, 10, 100, 1000, 70'000}) {
          for (const bool has_blanks : {true, false}) {
            std::string text = draw_text(draw, num_bytes, has_blanks);
            for (int i = draw.below(3); i > 0; --i) text.insert(0, " ");
            for (int i = draw.below(3); i > 0; --i) text += ' ';
            std::vector<int> expected;
            ASSERT_TRUE(reference.Encode(text, &expected).ok());
            ASSERT_EQ(tokenizer->encode(text), expected) << text.substr(0, 200);
            ASSERT_EQ(tokenizer->decode(expected), text);
          }
        }
      }
    }
  }
}

// SentencePiece spells the space of a word that it does not know as the bytes of U+2581.
TEST(Bpe, AModelOfWordsReturnsWhatItDoesNotKnow) {
  std::string model;
  SentenceList list({"one two", "two one"});
  ASSERT_TRUE(sentencepiece::SentencePieceTrainer::Train({{"model_type", "word"},
                                                          {"vocab_size", "300"},
                                                          {"hard_vocab_limit", "false"},
                                                          {"byte_fallback", "true"},
                                                          {"minloglevel", "4"}},
                                                         &list, &model)
                  .ok());
  const auto tokenizer = make_bpe_tokenizer(model);
  for (const char* text : {" one two", "one  two three", "   ", "\u4E00\n"})
    expect_round_trip(*tokenizer, text);
  EXPECT_EQ(tokenizer->encode(" one two").size(), 2u);
}

// T5's has no bytes, folds blanks, and changes characters.
TEST(Bpe, AModelWithoutBytesIsUsedAsItWasTrained) {
  std::string model;
  harness::Draw draw(2);
  std::vector<std::string> sentences;
  for (int i = 0; i < 400; ++i) sentences.push_back(draw_text(draw, 60, i % 4 != 0));
  SentenceList list(sentences);
  ASSERT_TRUE(sentencepiece::SentencePieceTrainer::Train({{"model_type", "unigram"},
                                                          {"vocab_size", "300"},
                                                          {"hard_vocab_limit", "false"},
                                                          {"pad_id", "0"},
                                                          {"eos_id", "1"},
                                                          {"unk_id", "2"},
                                                          {"bos_id", "-1"},
                                                          {"minloglevel", "4"}},
                                                         &list, &model)
                  .ok());
  sentencepiece::SentencePieceProcessor reference;
  ASSERT_TRUE(reference.LoadFromSerializedProto(model).ok());
  const auto tokenizer = make_bpe_tokenizer(model);
  EXPECT_EQ(tokenizer->end_of_document(), 1);
  EXPECT_EQ(tokenizer->unknown_token(), 2);
  EXPECT_EQ(tokenizer->serialize(), model);
  for (const size_t num_bytes : {0, 1, 10, 1000, 300'000}) {
    const std::string text = draw_text(draw, num_bytes, true);
    std::vector<int> expected;
    ASSERT_TRUE(reference.Encode(text, &expected).ok());
    ASSERT_EQ(tokenizer->encode(text), expected) << text.substr(0, 200);
    EXPECT_EQ(tokenizer->decode(expected), reference.DecodeIds(expected));
  }
  EXPECT_EQ(tokenizer->encode("\u0E01").back(), 2);
  EXPECT_THROW(tokenizer->decode(std::vector<int32_t>{100'000}), ConfigError);
  // One whose tokens all have text says so.
  EXPECT_EQ(source_tokenizer().unknown_token(), std::nullopt);
}

TEST(Bpe, SaysHowAModelSpellsItsSpecialPieces) {
  const BpeSpecialPieces pieces = bpe_special_pieces(source_tokenizer().serialize());
  EXPECT_EQ(pieces.unknown, "<unk>");
  EXPECT_EQ(pieces.end_of_document, "</s>");
  EXPECT_THROW(bpe_special_pieces("nonsense"), ConfigError);
}

TEST(Bpe, TheSameTextGivesTheSameModel) { EXPECT_EQ(train_on_source(600), train_on_source(600)); }

TEST(Bpe, TextInOtherBlocksGivesTheSamePieces) {
  std::vector<std::string> lines(1);
  for (const char c : standard_library_file("difflib.py")) {
    lines.back().push_back(c);
    if (c == '\n' && lines.back().size() > 200) lines.emplace_back();
  }
  const auto a = make_bpe_tokenizer(train_bpe(text_of(lines), 500));
  const auto b = make_bpe_tokenizer(train_bpe(text_of({standard_library_file("difflib.py")}), 500));
  const std::string text = standard_library_file("difflib.py").substr(0, 2000);
  // Blocks end words, so a few merges differ: the text is coded about as short.
  EXPECT_NEAR(a->encode(text).size(), b->encode(text).size(), text.size() * 0.02);
}

TEST(Bpe, TrainsOnLongLinesAndInvalidText) {
  std::string line;
  for (int i = 0; i < 20000; ++i) line += i % 3 == 0 ? "alpha " : "betabeta ";
  const auto tokenizer = make_bpe_tokenizer(
      train_bpe(text_of({line, "\xFF\xFE\u2581\u2585" + line, std::string(9000, '\xC3')}), 275));
  EXPECT_EQ(tokenizer->encode(" betabeta").size(), 1u);
}

TEST(Bpe, RefusesVocabulariesThatDoNotFitTheText) {
  const auto text = [] { return text_of({standard_library_file("this.py")}); };
  expect_config_error([&] { train_bpe(text(), 100); }, {"vocabulary of 100", "too small"});
  expect_config_error([&] { train_bpe(text(), 270); },
                      {"vocabulary of 270", "too small", "expected at least", "--vocab-size"});
  expect_config_error([&] { train_bpe(text(), 50000); },
                      {"vocabulary of 50000", "too large", "expected at most", "--vocab-size"});
  expect_config_error([&] { train_bpe(text_of({"\xFF\xFF"}), 1000); }, {"no text to train"});
}

TEST(Bpe, RefusesModelsThatAreDamaged) {
  const std::string model = source_tokenizer().serialize();
  for (const std::string& bad : {std::string(), std::string("not a model"), model.substr(0, 100),
                                 model.substr(0, model.size() / 2)})
    expect_config_error([&] { make_bpe_tokenizer(bad); }, {"tokenizer model"});
}

TEST(Bpe, RefusesTokensOutsideTheVocabulary) {
  for (const int32_t token : {-1, 1500})
    expect_config_error(
        [&] {
          (void)source_tokenizer().decode({&token, 1});
        },
        {"token " + std::to_string(token), "vocabulary of 1500"});
}

TEST(Bpe, IsLoadedAsItWasSaved) {
  const TemporaryFolder folder;
  const std::string prefix = folder / "a";
  save_tokenizer(source_tokenizer(), prefix);
  const auto loaded = load_tokenizer(prefix);
  EXPECT_EQ(loaded->kind(), TokenizerKind::kBpe);
  const std::string text = standard_library_file("ast.py").substr(0, 5000);
  EXPECT_EQ(loaded->encode(text), source_tokenizer().encode(text));
}

}  // namespace
}  // namespace trireme::dataset
