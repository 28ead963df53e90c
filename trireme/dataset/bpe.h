// Exact byte-pair encoding with SentencePiece. By itself SentencePiece folds whitespace, repairs
// invalid UTF-8 and takes U+2581 for a space. Here normalisation is off, all such text is encoded
// by the 256 byte pieces, and every encoded piece of text is checked to decode to itself. Only a
// model without byte pieces, such as T5's, is used as it was trained, and may lose text.
// In a build without SentencePiece, every function but bpe_available() throws ConfigError.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/dataset/tokenizer.h"

namespace trireme::dataset {

// Whether this build has SentencePiece.
bool bpe_available();

// Trains a model of `vocab_size` pieces: 256 bytes, end of document, unknown, three runs of tabs,
// the text's characters, and merges. `next_text` returns the next block of text, or an empty string
// at the end. The same text gives the same bytes.
// Throws: ConfigError when vocab_size is too small for the text's characters, or too large for the
//         merges that the text allows
// Source: Sennrich et al. 2016, arXiv:1508.07909
std::string train_bpe(const std::function<std::string()>& next_text, int64_t vocab_size);

// Takes models of every kind: BPE, unigram, words and characters. Text without what is said above
// has the tokens that SentencePiece gives it as a whole, whatever its length. One call holds some
// 100 bytes for each byte of it at most. A model without any byte piece folds and changes text as
// it was trained to, and has one token for all characters that it lacks.
// Throws: ConfigError when the model is damaged, has some byte pieces and not all, or lacks the
//         end-of-document (eos) piece
std::unique_ptr<Tokenizer> make_bpe_tokenizer(std::string model);

// The spelling of a model's special pieces, which other readers of the model ask for by name.
struct BpeSpecialPieces {
  std::string unknown;
  std::string end_of_document;
};
// Throws: ConfigError when the model is damaged
BpeSpecialPieces bpe_special_pieces(const std::string& model);

}  // namespace trireme::dataset
