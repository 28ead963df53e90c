// Byte-pair encoding through SentencePiece, made exact. SentencePiece folds whitespace, repairs
// invalid UTF-8 and takes U+2581 for a space; here normalisation is off, each of those goes through
// the 256 byte pieces, and every piece of text is checked to decode to itself.
// Built without SentencePiece, every function but bpe_available() throws ConfigError.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/dataset/tokenizer.h"

namespace trireme::dataset {

// Whether this build has SentencePiece.
bool bpe_available();

// Trains a model of `vocab_size` pieces: 256 bytes, end of document, unknown, three runs of tabs,
// the text's characters, and merges. `next_text` gives the next block of text, or an empty string
// at the end. The same text gives the same bytes.
// Throws: ConfigError when vocab_size is too small for the text's characters, or larger than the
// text has merges for
// Source: Sennrich et al. 2016, arXiv:1508.07909
std::string train_bpe(const std::function<std::string()>& next_text, int64_t vocab_size);

// Throws: ConfigError when the model is damaged, or has no byte pieces or no end-of-document (eos)
// piece
std::unique_ptr<Tokenizer> make_bpe_tokenizer(std::string model);

// How a model spells the pieces that stand for no text: other readers of it ask for their names.
struct BpeSpecialPieces {
  std::string unknown;
  std::string end_of_document;
};
// Throws: ConfigError when the model is damaged
BpeSpecialPieces bpe_special_pieces(const std::string& model);

}  // namespace trireme::dataset
