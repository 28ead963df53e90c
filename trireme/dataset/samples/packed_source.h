// Samples of whole documents: each holds as many as fit, and the rest of it is padding.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trireme/base/choice.h"
#include "trireme/dataset/samples/best_fit.h"
#include "trireme/dataset/token_source.h"
#include "trireme/dataset/token_stream.h"

namespace trireme::dataset {

// How the documents of a token file become samples of T tokens.
enum class Packing {
  kStream,  // TokenSource
  kWhole,   // PackedSource
};
inline constexpr Choice<Packing> kPackings[] = {{"stream", Packing::kStream},
                                                {"whole", Packing::kWhole}};

// The number of padding, the document of all tokens behind the last one.
inline constexpr int64_t kPaddingDocument = -1;

struct PackingReport {
  int64_t documents = 0;  // in samples
  int64_t cut = 0;        // of these, longer than a sample, which has their beginning
  int64_t left_out = 0;   // without a target: of `ahead` tokens or none
  double density = 0;     // of the samples' tokens, those that are no padding
};

// A document of n tokens takes n - ahead places, one for each token that has a target, and at most
// T: a longer one is cut behind its first T + ahead tokens, as TRL does. best_fit_decreasing()
// places them; which document is in which sample depends only on the file and T, and the order of
// the samples on the seed, as for every source. Padding is token 0 and has no target; with
// `documents` it is a document of its own, so nothing else attends to it.
// Memory: 4 bytes per document and 8 per sample; while it is made, some 25 bytes per document
class PackedSource : public TokenSamples {
 public:
  // Throws: ConfigError when no document has more than `ahead` tokens, or T < 1
  PackedSource(TokenStream stream, const TokenOptions& options);

  const PackingReport& report() const { return report_; }
  std::string description() const override;
  int64_t size() const override { return packed_.size(); }
  // The documents of a sample, in its order.
  std::span<const uint32_t> documents_of(int64_t index) const { return packed_.bin(index); }

  // Throws: as TokenStream
  NamedTensors get(int64_t index, std::optional<RandomKey> augmentation) const override;

 private:
  TokenOptions options_;
  PackedBins packed_;
  PackingReport report_;
};

}  // namespace trireme::dataset
