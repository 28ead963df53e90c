// Length: two kinds of models, and training one.
#include "trireme/dataset/bpe.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <unordered_map>

#include "trireme/base/error.h"
#include "trireme/dataset/text/documents.h"

#ifdef TRIREME_HAVE_SENTENCEPIECE
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <protozero/pbf_reader.hpp>
#endif

namespace trireme::dataset {

// Words are encoded one by one, each distinct one once in a call. That is right only where no piece
// of the model crosses from one word to the next, so the pieces are looked at first (Cut). Only
// models of BPE are cut at all, since a unigram model compares rounded sums over its whole text.
// SentencePiece changes text by itself in several ways. So bytes that are appended to the model
// switch normalisation off, what is not plain text goes to the byte tokens, and each result must
// spell its word. One that does not becomes bytes as well.

#ifndef TRIREME_HAVE_SENTENCEPIECE

namespace {
constexpr const char* kMissing =
    "tokenizer bpe needs SentencePiece, which this build lacks: install libsentencepiece-dev and "
    "build again, or use --tokenizer bytes";
}

bool bpe_available() { return false; }
std::string train_bpe(const std::function<std::string()>&, int64_t) { throw ConfigError(kMissing); }
std::unique_ptr<Tokenizer> make_bpe_tokenizer(std::string) { throw ConfigError(kMissing); }
BpeSpecialPieces bpe_special_pieces(const std::string&) { throw ConfigError(kMissing); }

#else

namespace {

using sentencepiece::SentencePieceProcessor;
using sentencepiece::SentencePieceTrainer;

constexpr std::string_view kSpace = "\u2581";  // how a piece spells a space
constexpr size_t kMaxSentenceBytes = 4000;
constexpr size_t kMaxCachedWordBytes = 128;
constexpr size_t kMaxCachedWords = 1 << 16;

// Where a text may be cut so that its parts have the tokens of the whole.
enum class Cut {
  kBeforeSpaces,  // no piece has a space behind another character
  kBehindSpaces,  // no piece has another character behind a space (treat_whitespace_as_suffix)
  kNowhere,
};

// Whether ModelProto.trainer_spec.model_type of a serialized model says BPE. Only merges of pairs
// are decided without regard to the text around them: a unigram model compares sums of rounded
// scores that begin where its text begins.
bool is_bpe_model(std::string_view model) {
  constexpr uint32_t kTrainerSpec = 2, kModelType = 3;
  constexpr uint64_t kBpe = 2;
  uint64_t type = 1;  // unigram, the default
  for (protozero::pbf_reader parts(model.data(), model.size()); parts.next();) {
    if (parts.tag() != kTrainerSpec) {
      parts.skip();
      continue;
    }
    for (protozero::pbf_reader spec = parts.get_message(); spec.next();) {
      if (spec.tag() == kModelType) {
        type = static_cast<uint64_t>(spec.get_enum());
      } else {
        spec.skip();
      }
    }
  }
  return type == kBpe;
}

// SentencePiece prints to stderr; 4 is above its highest level.
void silence() {
  SentencePieceTrainer::MergeSpecsFromArgs({{"minloglevel", "4"}}, nullptr, nullptr, nullptr)
      .IgnoreError();
}

// Gives the trainer sentences that it accepts: plain, and short enough not to be dropped.
class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::function<std::string()>& next_text) : next_text_(next_text) {
    Next();
  }

  bool done() const override { return sentence_.empty(); }
  const std::string& value() const override { return sentence_; }
  sentencepiece::util::Status status() const override { return {}; }

  void Next() override {
    sentence_.clear();
    while (sentence_.empty()) {
      if (rest_.empty()) {
        block_ = next_text_();
        rest_ = block_;
        if (rest_.empty()) return;
      }
      const size_t plain = plain_prefix(rest_.substr(0, kMaxSentenceBytes + 4));
      const size_t length = cut_length(rest_.substr(0, plain), kMaxSentenceBytes);
      sentence_ = rest_.substr(0, length);
      rest_.remove_prefix(std::max<size_t>(length, 1));
    }
  }

 private:
  const std::function<std::string()>& next_text_;
  std::string block_;
  std::string_view rest_;
  std::string sentence_;
};

class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(std::string model) : model_(std::move(model)) {
    silence();
    // Protobuf merges repeated messages, so these appended bytes switch normalisation off in any
    // model: normalizer_spec (3) { precompiled_charsmap (2): "", add_dummy_prefix (3): false,
    // remove_extra_whitespaces (4): false, escape_whitespaces (5): true }.
    constexpr std::string_view kExact("\x1A\x08\x12\x00\x18\x00\x20\x00\x28\x01", 10);
    TRIREME_CHECK(
        !model_.empty() && processor_.LoadFromSerializedProto(model_ + std::string(kExact)).ok(),
        "tokenizer model is damaged: ", model_.size(), " bytes that SentencePiece refuses");
    end_of_document_ = processor_.eos_id();
    TRIREME_CHECK(end_of_document_ >= 0,
                  "tokenizer model has no end-of-document (eos) piece: train it with an eos_id");
    read_pieces();
    try {
      cut_ = is_bpe_model(model_) ? cut_of_pieces() : Cut::kNowhere;
    } catch (const protozero::exception& error) {
      throw ConfigError(concat("tokenizer model is damaged: ", error.what()));
    }
  }

  TokenizerKind kind() const override { return TokenizerKind::kBpe; }
  int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  int32_t end_of_document() const override { return end_of_document_; }
  std::string serialize() const override { return model_; }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens;
    tokens.reserve(text.size() / 3 + 1);
    WordCache cache;
    while (!text.empty()) {
      const size_t plain = plain_prefix(text);
      encode_plain(text.substr(0, plain), cut_, cache, tokens);
      text.remove_prefix(plain);
      if (text.empty()) break;
      tokens.push_back(byte_tokens_[static_cast<unsigned char>(text[0])]);
      text.remove_prefix(1);
    }
    return tokens;
  }

  std::string decode(std::span<const int32_t> tokens) const override {
    std::string text;
    for (const int32_t token : tokens) {
      TRIREME_CHECK(token >= 0 && token < vocab_size(), "token ", token,
                    " is outside the vocabulary of ", vocab_size(), " (tokenizer bpe)");
      text += pieces_[token];
    }
    return text;
  }

 private:
  using WordCache = std::unordered_map<std::string_view, std::vector<int32_t> >;

  void read_pieces() {
    byte_tokens_.fill(-1);
    pieces_.resize(processor_.GetPieceSize());
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      if (processor_.IsControl(id) || processor_.IsUnknown(id)) continue;
      const std::string& piece = processor_.IdToPiece(id);
      if (processor_.IsByte(id)) {  // spelled <0xNN>
        const int byte = std::stoi(piece.substr(3, 2), nullptr, 16);
        byte_tokens_[byte] = id;
        pieces_[id] = static_cast<char>(byte);
        continue;
      }
      pieces_[id] = spelled(piece);
    }
    const auto missing = std::find(byte_tokens_.begin(), byte_tokens_.end(), -1);
    TRIREME_CHECK(missing == byte_tokens_.end(), "tokenizer model has no piece for byte ",
                  missing - byte_tokens_.begin(), ": train it with byte_fallback");
  }

  // The text that a piece stands for.
  static std::string spelled(std::string_view piece) {
    std::string text;
    for (size_t at = piece.find(kSpace); at != std::string_view::npos; at = piece.find(kSpace)) {
      text.append(piece.substr(0, at)).push_back(' ');
      piece.remove_prefix(at + kSpace.size());
    }
    return text.append(piece);
  }

  Cut cut_of_pieces() const {
    bool has_before = false, has_behind = false;
    for (const std::string& piece : pieces_) {
      for (size_t i = 1; i < piece.size(); ++i) {
        has_before |= piece[i] == ' ' && piece[i - 1] != ' ';
        has_behind |= piece[i] != ' ' && piece[i - 1] == ' ';
      }
    }
    if (!has_before) return Cut::kBeforeSpaces;
    return has_behind ? Cut::kNowhere : Cut::kBehindSpaces;
  }

  static std::string_view first_word(std::string_view text, Cut cut) {
    if (cut == Cut::kNowhere) return text;
    size_t end = 0;
    if (cut == Cut::kBeforeSpaces) {
      end = text.find(' ', text.find_first_not_of(' '));
    } else {
      end = text.find_first_not_of(' ', text.find(' '));
    }
    return text.substr(0, end);
  }

  // Word by word, each distinct one once.
  void encode_plain(std::string_view text, Cut cut, WordCache& cache,
                    std::vector<int32_t>& tokens) const {
    for (; !text.empty();) {
      const std::string_view word = first_word(text, cut);
      encode_word(word, cut, cache, tokens);
      text.remove_prefix(word.size());
    }
  }

  void encode_word(std::string_view word, Cut cut, WordCache& cache,
                   std::vector<int32_t>& tokens) const {
    const auto cached = cache.find(word);
    if (cached != cache.end()) {
      tokens.insert(tokens.end(), cached->second.begin(), cached->second.end());
      return;
    }
    std::vector<int> ids;
    const bool encoded = processor_.Encode(word, &ids).ok();
    if (!encoded || !spells(ids, word)) {
      // Only the words that it has no tokens for become bytes.
      if (cut == Cut::kNowhere) return encode_plain(word, Cut::kBeforeSpaces, cache, tokens);
      ids.clear();
      for (const char c : word) ids.push_back(byte_tokens_[static_cast<unsigned char>(c)]);
    }
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    if (word.size() <= kMaxCachedWordBytes && cache.size() < kMaxCachedWords) {
      cache.emplace(word, std::move(ids));
    }
  }

  bool spells(const std::vector<int>& ids, std::string_view word) const {
    for (const int id : ids) {
      const std::string& piece = pieces_[id];
      if (piece.empty() || !word.starts_with(piece)) return false;
      word.remove_prefix(piece.size());
    }
    return word.empty();
  }

  std::string model_;
  SentencePieceProcessor processor_;
  std::vector<std::string> pieces_;       // the bytes each token stands for
  std::array<int32_t, 256> byte_tokens_;  // the token of each byte
  int32_t end_of_document_ = -1;
  Cut cut_ = Cut::kNowhere;
};

// A model without byte pieces as it was trained: with its own normalisation, and one token for all
// characters that it lacks.
class LossyTokenizer : public Tokenizer {
 public:
  explicit LossyTokenizer(std::string model) : model_(std::move(model)) {
    silence();
    TRIREME_CHECK(!model_.empty() && processor_.LoadFromSerializedProto(model_).ok(),
                  "tokenizer model is damaged: ", model_.size(),
                  " bytes that SentencePiece refuses");
    TRIREME_CHECK(processor_.eos_id() >= 0,
                  "tokenizer model has no end-of-document (eos) piece: train it with an eos_id");
  }

  TokenizerKind kind() const override { return TokenizerKind::kBpe; }
  int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  int32_t end_of_document() const override { return processor_.eos_id(); }
  std::optional<int32_t> unknown_token() const override { return processor_.unk_id(); }
  std::string serialize() const override { return model_; }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int> tokens;
    TRIREME_CHECK(processor_.Encode(text, &tokens).ok(), "SentencePiece does not encode a text of ",
                  text.size(), " bytes");
    return tokens;
  }

  std::string decode(std::span<const int32_t> tokens) const override {
    for (const int32_t token : tokens) {
      TRIREME_CHECK(token >= 0 && token < vocab_size(), "token ", token,
                    " is outside the vocabulary of ", vocab_size(), " (tokenizer bpe)");
    }
    std::string text;
    const std::vector<int> ids(tokens.begin(), tokens.end());
    TRIREME_CHECK(processor_.Decode(ids, &text).ok(), "SentencePiece does not decode ",
                  tokens.size(), " tokens");
    return text;
  }

 private:
  std::string model_;
  SentencePieceProcessor processor_;
};

// Whether a serialized model has pieces, and none of them is for a byte: ModelProto.pieces.type.
bool lacks_bytes(std::string_view model) {
  constexpr uint32_t kPieces = 1, kType = 3;
  constexpr int kByte = 6;
  bool has_pieces = false;
  try {
    for (protozero::pbf_reader parts(model.data(), model.size()); parts.next(kPieces);) {
      has_pieces = true;
      for (protozero::pbf_reader piece = parts.get_message(); piece.next(kType);) {
        if (piece.get_enum() == kByte) return false;
      }
    }
  } catch (const protozero::exception&) {
    return false;  // SentencePiece says what is wrong
  }
  return has_pieces;
}

// SentencePiece's messages name its own flags and source lines. Rewords the two that concern users:
// "... 300 vs 351. ..." and "... a value <= 98117.".
[[noreturn]] void throw_training_failure(const std::string& message, int64_t vocab_size) {
  const auto number_behind = [&](std::string_view mark) -> int64_t {
    const size_t at = message.find(mark);
    return at == std::string::npos ? 0 : std::atoll(message.c_str() + at + mark.size());
  };
  const int64_t lowest = number_behind(concat("required_chars. ", vocab_size, " vs "));
  const int64_t highest = number_behind("to a value <= ");
  TRIREME_CHECK(lowest == 0, "vocabulary of ", vocab_size,
                " tokens is too small for this text: expected at least ", lowest,
                " (bytes, special tokens and its characters); raise --vocab-size");
  TRIREME_CHECK(highest == 0, "vocabulary of ", vocab_size,
                " tokens is too large for this text: expected at most ", highest,
                "; lower --vocab-size or give more text");
  throw ConfigError(concat("cannot train a bpe tokenizer of ", vocab_size, " tokens: ", message));
}

}  // namespace

bool bpe_available() { return true; }

std::unique_ptr<Tokenizer> make_bpe_tokenizer(std::string model) {
  if (lacks_bytes(model)) return std::make_unique<LossyTokenizer>(std::move(model));
  return std::make_unique<BpeTokenizer>(std::move(model));
}

BpeSpecialPieces bpe_special_pieces(const std::string& model) {
  silence();
  SentencePieceProcessor processor;
  TRIREME_CHECK(processor.LoadFromSerializedProto(model).ok() && processor.eos_id() >= 0,
                "tokenizer model is damaged, or has no end-of-document (eos) piece: ", model.size(),
                " bytes");
  return {processor.IdToPiece(processor.unk_id()), processor.IdToPiece(processor.eos_id())};
}

std::string train_bpe(const std::function<std::string()>& next_text, int64_t vocab_size) {
  constexpr int kFixedPieces = 256 + 2 + 3;
  TRIREME_CHECK(vocab_size > kFixedPieces, "vocabulary of ", vocab_size,
                " tokens is too small for bpe: expected at least ", kFixedPieces,
                " (bytes and special tokens) and the text's characters; raise --vocab-size");
  silence();
  Sentences sentences(next_text);
  TRIREME_CHECK(!sentences.done(), "no text to train a bpe tokenizer on: the input holds no valid ",
                "UTF-8; use --tokenizer bytes");
  std::string model;
  // The library reads a fraction in the program's locale, so character_coverage keeps its default,
  // 0.9995.
  const auto status = SentencePieceTrainer::Train(
      std::unordered_map<std::string, std::string>{
          {"model_type", "bpe"},
          {"vocab_size", std::to_string(vocab_size)},
          {"byte_fallback", "true"},
          {"normalization_rule_name", "identity"},
          {"add_dummy_prefix", "false"},
          {"remove_extra_whitespaces", "false"},
          {"allow_whitespace_only_pieces", "true"},
          {"split_digits", "true"},
          {"max_sentence_length", std::to_string(kMaxSentenceBytes + 4)},
          // The trainer treats a tab as a border between words, so tabs get their own pieces.
          {"user_defined_symbols", "\t,\t\t,\t\t\t\t"},
          {"unk_id", "0"},
          {"eos_id", "1"},
          {"bos_id", "-1"},
          {"pad_id", "-1"},
          {"num_threads", "2"},  // affects the model's bytes, so the same on every machine
          {"minloglevel", "4"}},
      &sentences, &model);
  if (!status.ok()) throw_training_failure(status.error_message(), vocab_size);
  return model;
}

#endif

}  // namespace trireme::dataset
