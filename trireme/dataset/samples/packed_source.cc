#include "trireme/dataset/samples/packed_source.h"

#include <algorithm>
#include <span>
#include <vector>

#include <ATen/ops/full.h>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"

namespace trireme::dataset {

PackedSource::PackedSource(TokenStream stream, const TokenOptions& options)
    : TokenSamples(std::move(stream)), options_(options) {
  const int64_t T = options.sequence_length;
  TRIREME_CHECK(T >= 1, "sequence_length is ", T, ", expected at least 1");
  std::vector<int64_t> places = TokenSamples::stream().file().document_sizes();
  int64_t filled = 0;
  for (int64_t& each : places) {
    report_.cut += each - options.ahead > T ? 1 : 0;
    report_.left_out += each <= options.ahead ? 1 : 0;
    each = std::clamp<int64_t>(each - options.ahead, 0, T);
    filled += each;
  }
  packed_ = best_fit_decreasing(places, T);
  TRIREME_CHECK(packed_.size() > 0, bin_path(TokenSamples::stream().file().prefix()).string(),
                " has no document of ", options.ahead == 1 ? "two tokens" : "a token",
                " or more, so there is nothing to predict; prepare other text");
  report_.documents = static_cast<int64_t>(packed_.items.size());
  report_.density =
      static_cast<double>(filled) / (static_cast<double>(T) * static_cast<double>(packed_.size()));
}

std::string PackedSource::description() const {
  std::string text = format("%lld whole documents fill %.1f %%",
                            static_cast<long long>(report_.documents), 100 * report_.density);
  if (report_.cut > 0) text += concat(", ", report_.cut, " of them cut to fit");
  if (report_.left_out > 0)
    text += concat("; ", report_.left_out, options_.ahead == 1 ? " of one token" : " empty ones",
                   " left out");
  return text;
}

NamedTensors PackedSource::get(int64_t index, std::optional<RandomKey> /*augmentation*/) const {
  TRIREME_ASSERT(index >= 0 && index < size(), "sample ", index, " of ", size());
  const int64_t T = options_.sequence_length;
  NamedTensors sample = {{"tokens", at::full({T}, 0, at::kLong)},
                         {"targets", at::full({T}, kNoTarget, at::kLong)}};
  if (options_.documents) {
    sample.emplace_back("documents", at::full({T}, kPaddingDocument, at::kLong));
  }
  const auto part = [&](size_t tensor, int64_t begin, int64_t size) {
    return std::span(sample[tensor].second.mutable_data_ptr<int64_t>() + begin,
                     static_cast<size_t>(size));
  };
  std::vector<int64_t> tokens;
  int64_t at = 0;
  for (const uint32_t document : packed_.bin(index)) {
    const auto [offset, size] = stream().file().document(document);
    const int64_t places = std::min(size - options_.ahead, T);
    // It was packed by the size that it had.
    TRIREME_CHECK(places >= 1 && at + places <= T, idx_path(stream().file().prefix()).string(),
                  " changed while it was read: document ", document, " has ", size,
                  " tokens; make the files again with `trireme data prepare`");
    tokens.resize(static_cast<size_t>(places + options_.ahead));
    stream().read(offset, tokens);
    std::ranges::copy(std::span(tokens).first(static_cast<size_t>(places)),
                      part(0, at, places).begin());
    stream().copy_targets(offset, tokens, part(1, at, places));
    if (options_.documents) std::ranges::fill(part(2, at, places), int64_t{document});
    at += places;
  }
  return sample;
}

}  // namespace trireme::dataset
