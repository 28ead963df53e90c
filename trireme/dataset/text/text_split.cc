#include "trireme/dataset/text/text_split.h"

#include <span>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/dataset/text/documents.h"

namespace trireme::dataset {

Digest digest_of_text(std::string_view text) {
  if (text.size() <= DocumentReader::kPieceBytes) return digest_of(std::as_bytes(std::span(text)));
  std::vector<Digest> pieces;
  do {
    const std::string_view piece = text.substr(0, cut_length(text, DocumentReader::kPieceBytes));
    pieces.push_back(digest_of(std::as_bytes(std::span(piece.data(), piece.size()))));
    text.remove_prefix(piece.size());
  } while (!text.empty());
  return digest_of(pieces);
}

double TextSplit::draw(const Digest& text) const {
  return random_uniform(random_key(seed, concat("validation/", to_text(text))), 0);
}

bool TextSplit::is_validation(const Digest& text) const {
  if (fraction == 0 || text == training) return false;
  return text == validation || draw(text) < fraction;
}

void TextSplitChooser::add(const Digest& text) {
  const double draw = split_.draw(text);
  if (draw < low_) {
    low_ = draw;
    lowest_ = text;
  }
  if (draw > high_) {
    high_ = draw;
    highest_ = text;
  }
}

bool TextSplitChooser::is_decided() const {
  return split_.fraction == 0 || (low_ < split_.fraction && high_ >= split_.fraction);
}

TextSplit TextSplitChooser::split(const std::string& input) const {
  TextSplit split = split_;
  if (is_decided() || low_ > high_) return split;  // or no text at all
  TRIREME_CHECK(low_ < high_, input, " has 1 text, too few to set ", split.fraction,
                " of them aside for validation; give more, or set --validation-fraction 0");
  if (low_ >= split.fraction) split.validation = lowest_;
  if (high_ < split.fraction) split.training = highest_;
  return split;
}

}  // namespace trireme::dataset
