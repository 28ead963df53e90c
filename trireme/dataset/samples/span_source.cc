#include "trireme/dataset/samples/span_source.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/bounds.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/random/random.h"

namespace trireme::dataset {
namespace {

SpanLengths lengths_of(int64_t text, double share, double span_length) {
  SpanLengths lengths{.text = text};
  const auto rounded = [](double number) { return static_cast<int64_t>(std::nearbyint(number)); };
  lengths.noise = std::clamp<int64_t>(rounded(share * static_cast<double>(text)), 1, text - 1);
  const int64_t most = std::min(lengths.noise, text - lengths.noise);
  const double wanted = static_cast<double>(lengths.noise) / span_length;
  lengths.spans = std::clamp<int64_t>(rounded(wanted), 1, most);
  lengths.inputs = text - lengths.noise + lengths.spans + 1;
  lengths.targets = lengths.noise + lengths.spans + 1;
  return lengths;
}

// The sizes of `spans` spans that n tokens are cut into.
std::vector<int64_t> cut(int64_t n, int64_t spans, RandomKey key, size_t word) {
  std::vector<int64_t> sizes(1, 1);
  int64_t cuts_left = spans - 1;
  for (int64_t i = 0; i + 1 < n; ++i) {
    const uint64_t number = random_bits(key, static_cast<uint64_t>(i))[word];
    const auto places_left = static_cast<uint64_t>(n - 1 - i);
    if (number * places_left < static_cast<uint64_t>(cuts_left) << 32) {
      sizes.push_back(1);
      --cuts_left;
    } else {
      ++sizes.back();
    }
  }
  return sizes;
}

}  // namespace

SpanLengths span_lengths(int64_t inputs, double share, double span_length) {
  TRIREME_CHECK(inputs >= 3, "model.sequence_length is ", inputs,
                "; expected at least 3 for span corruption: a token, a sentinel and the end");
  // Another token of text adds one to the inputs or none.
  SpanLengths lengths = lengths_of(2, share, span_length);
  for (int64_t step = inputs; step > 0;) {
    const SpanLengths longer = lengths_of(lengths.text + step, share, span_length);
    if (longer.inputs <= inputs && longer.text <= kMaxSequence) {
      lengths = longer;
    } else {
      step /= 2;
    }
  }
  TRIREME_CHECK(lengths.inputs == inputs, "model.sequence_length is ", inputs,
                ", data.masked_share ", share, " and data.span_length ", span_length,
                ", with which no text has inputs of that length; set another length");
  return lengths;
}

SpanSamples::SpanSamples(std::shared_ptr<const TokenSamples> samples, const SpanOptions& options)
    : TokenSamples(samples->stream()), samples_(std::move(samples)), options_(options) {
  const SpanLengths& lengths = options.lengths;
  TRIREME_ASSERT(lengths.spans > 0 && lengths.spans <= lengths.noise &&
                     lengths.spans <= lengths.text - lengths.noise,
                 "spans ", lengths.spans, " of ", lengths.noise, " in ", lengths.text);
  TRIREME_ASSERT(options.sentinel + 1 >= lengths.spans, "sentinels from ", options.sentinel);
}

std::string SpanSamples::description() const {
  const auto share =
      static_cast<double>(options_.lengths.noise) / static_cast<double>(options_.lengths.text);
  return concat("targets of ", options_.lengths.targets, ", ",
                format("%.3g %% of the text in ", 100 * share), options_.lengths.spans, " spans");
}

NamedTensors SpanSamples::get(int64_t index, std::optional<RandomKey> augmentation) const {
  const SpanLengths& lengths = options_.lengths;
  const RandomKey key = augmentation ? *augmentation : random_key(0, concat("data/spans/", index));
  const at::Tensor text_R = find_tensor(samples_->get(index, augmentation), "tokens");
  TRIREME_ASSERT(text_R.numel() == lengths.text, "a text of ", text_R.numel(), " tokens");
  const auto* const text = text_R.const_data_ptr<int64_t>();
  const std::vector<int64_t> noise = cut(lengths.noise, lengths.spans, key, 0);
  const std::vector<int64_t> kept = cut(lengths.text - lengths.noise, lengths.spans, key, 1);
  const at::Tensor inputs_T = at::empty({lengths.inputs}, at::kLong);
  const at::Tensor targets_U = at::empty({lengths.targets}, at::kLong);
  auto* input = inputs_T.mutable_data_ptr<int64_t>();
  auto* target = targets_U.mutable_data_ptr<int64_t>();
  const auto* token = text;
  for (size_t span = 0; span < noise.size(); ++span) {
    const int64_t sentinel = options_.sentinel - static_cast<int64_t>(span);
    input = std::copy_n(token, kept[span], input);
    token += kept[span];
    *input++ = sentinel;
    *target++ = sentinel;
    target = std::copy_n(token, noise[span], target);
    token += noise[span];
  }
  *input = *target = options_.end;
  const at::Tensor read_U = at::full({1}, options_.start, at::kLong);
  return {{"tokens", inputs_T},
          {"decoder_tokens", at::cat({read_U, targets_U.narrow(0, 0, lengths.targets - 1)})},
          {"targets", targets_U}};
}

}  // namespace trireme::dataset
