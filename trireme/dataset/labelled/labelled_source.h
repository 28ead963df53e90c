// Samples of labelled texts: each is one text, with padding behind it, and the class of its label.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trireme/dataset/token_source.h"
#include "trireme/dataset/token_stream.h"

namespace trireme::dataset {

// A text that is not longer than T tokens, with padding; of a longer one the first T - 1 and the
// last. Has `tokens` and `documents`, as LabelledSource.
NamedTensors padded_text(std::span<const int32_t> tokens, int64_t T);

// Document i of the token file is text i, of which the first T tokens are read; of a longer one the
// first T - 1 and the last, which ends a text. Padding is token 0.
// Shapes: `tokens` [T]; `targets` scalar, the label; `documents` [T], 0 for the text's tokens and
//         kPaddingDocument for padding, so that no token of the text attends to it
class LabelledSource : public TokenSamples {
 public:
  // classes: each label is below it
  // Throws: ConfigError when the file has no labels or no text, or T < 2
  LabelledSource(TokenStream stream, const TokenOptions& options, int64_t classes);

  std::string description() const override;
  int64_t size() const override { return stream().file().num_documents(); }

  // Throws: as TokenStream; ConfigError for a text without tokens, and for a label that is no class
  NamedTensors get(int64_t index, std::optional<RandomKey> augmentation) const override;

 private:
  int64_t T_;
  int64_t classes_;
  int64_t cut_ = 0;     // texts of more than T tokens
  double density_ = 0;  // of the samples' tokens, those that are no padding
};

}  // namespace trireme::dataset
