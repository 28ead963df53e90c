// Which texts are for validation: a choice that depends on the text alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/file/digest.h"

namespace trireme::dataset {

// Stands for a text: two texts with the same digest are taken for the same (digest.h). Of a text of
// several pieces (DocumentReader) it is the digest of theirs.
Digest digest_of_text(std::string_view text);

// A document is for validation if the draw of its text is below the fraction. So the same text is
// always on one side, whatever its file, its place in it, and what else there is.
struct TextSplit {
  double fraction = 0;
  uint64_t seed = 1;
  // Texts that go to a side whatever their draw, so that neither is empty.
  std::optional<Digest> validation{};
  std::optional<Digest> training{};

  // Between 0 and 1, of (seed, text).
  double draw(const Digest& text) const;
  bool is_validation(const Digest& text) const;
};

// Looks at texts until it knows that both sides of a split have one.
class TextSplitChooser {
 public:
  TextSplitChooser(double fraction, uint64_t seed) : split_{.fraction = fraction, .seed = seed} {}

  void add(const Digest& text);
  // Whether more texts cannot change the split.
  bool is_decided() const;
  // Without texts on one side, the one with the lowest or the highest draw goes there.
  // input: for the message
  // Throws: ConfigError when all texts are the same
  TextSplit split(const std::string& input) const;

 private:
  TextSplit split_;
  Digest lowest_{}, highest_{};
  double low_ = 2, high_ = -1;
};

}  // namespace trireme::dataset
