#include "trireme/dataset/conversation/pair_source.h"

#include <algorithm>
#include <numeric>
#include <span>

#include <ATen/ops/full.h>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/dataset/samples/packed_source.h"

namespace trireme::dataset {
namespace {

// The mark of an answer's tokens in the documents of a pair.
int64_t mark_of(int64_t document) { return document % 2 == 0 ? kLearntToken : kRejectedToken; }

}  // namespace

PairSource::PairSource(TokenStream stream, const TokenOptions& options)
    : TokenSamples(std::move(stream)), options_(options) {
  const int64_t T = options.sequence_length;
  TRIREME_CHECK(T >= 1, "sequence_length is ", T, ", expected at least 1");
  const IndexedFile& file = TokenSamples::stream().file();
  TRIREME_CHECK(TokenSamples::stream().mask() != nullptr && file.num_documents() % 2 == 0,
                idx_path(file.prefix()).string(), " has ", file.num_documents(), " documents and ",
                TokenSamples::stream().mask() == nullptr ? "no" : "a",
                " loss mask; expected pairs of documents with a mask: make them with `trireme data "
                "prepare --format preference`");
  const std::vector<int64_t> sizes = file.document_sizes();
  int64_t filled = 0;
  std::vector<int64_t> kept;
  for (size_t chosen = 0; chosen < sizes.size(); chosen += 2) {
    const auto first = static_cast<int64_t>(chosen);
    const bool is_cut = std::max(sizes[chosen], sizes[chosen + 1]) > T + 1;
    // Reads only what is cut: preparation checks all others.
    if (is_cut && !(has_answer(first, T + 1) && has_answer(first + 1, T + 1))) {
      ++report_.left_out;
      continue;
    }
    report_.cut += is_cut ? 1 : 0;
    filled += std::min(sizes[chosen] - 1, T) + std::min(sizes[chosen + 1] - 1, T);
    kept.push_back(first / 2);
  }
  report_.pairs = std::ssize(kept);
  TRIREME_CHECK(report_.pairs > 0, idx_path(file.prefix()).string(), " has ", sizes.size() / 2,
                " pairs, and none has answers within the first ", T + 1,
                " tokens; raise model.sequence_length, or prepare other data");
  if (report_.left_out > 0) kept_ = std::move(kept);
  report_.density =
      static_cast<double>(filled) / (2 * static_cast<double>(T) * static_cast<double>(size()));
}

// Whether some of a document's first `num_tokens` tokens are targets of its answer.
bool PairSource::has_answer(int64_t document, int64_t num_tokens) const {
  const auto [offset, size] = stream().file().document(document);
  std::vector<int64_t> marks(static_cast<size_t>(std::min(size, num_tokens)));
  stream().mask()->read(offset, marks);
  return std::find(marks.begin() + std::min<std::ptrdiff_t>(1, std::ssize(marks)), marks.end(),
                   mark_of(document)) != marks.end();
}

std::string PairSource::description() const {
  std::string text = format("chosen and rejected, filled %.1f %%", 100 * report_.density);
  if (report_.cut > 0) text += concat(", ", report_.cut, " pairs cut to fit");
  if (report_.left_out > 0) {
    text += concat("; ", report_.left_out, " left out, whose answers would be cut off");
  }
  return text;
}

NamedTensors PairSource::get(int64_t index, std::optional<RandomKey> /*augmentation*/) const {
  TRIREME_ASSERT(index >= 0 && index < size(), "sample ", index, " of ", size());
  const int64_t T = options_.sequence_length;
  NamedTensors sample = {{"tokens", at::full({2, T}, 0, at::kLong)},
                         {"targets", at::full({2, T}, kNoTarget, at::kLong)}};
  if (options_.documents) {
    sample.emplace_back("documents", at::full({2, T}, kPaddingDocument, at::kLong));
  }
  const int64_t pair = kept_.empty() ? index : kept_[static_cast<size_t>(index)];
  std::vector<int64_t> tokens;
  for (int64_t side = 0; side < 2; ++side) {
    const int64_t document = 2 * pair + side;
    const auto [offset, size] = stream().file().document(document);
    const int64_t places = std::min(size - 1, T);
    TRIREME_CHECK(places >= 1, idx_path(stream().file().prefix()).string(), ": document ", document,
                  " has ", size,
                  " tokens; expected a prompt and an answer: make the files again with `trireme "
                  "data prepare`");
    const auto part = [&](size_t tensor) {
      return std::span(sample[tensor].second.mutable_data_ptr<int64_t>() + side * T,
                       static_cast<size_t>(places));
    };
    tokens.resize(static_cast<size_t>(places) + 1);
    stream().read(offset, tokens);
    std::ranges::copy(std::span(tokens).first(static_cast<size_t>(places)), part(0).begin());
    stream().copy_targets(offset, tokens, part(1), mark_of(document));
    TRIREME_CHECK(std::ranges::any_of(part(1), [](int64_t target) { return target != kNoTarget; }),
                  bin_path(loss_prefix(stream().file().prefix())).string(), ": document ", document,
                  " has no answer; make the files again with `trireme data prepare`");
    if (options_.documents) std::ranges::fill(part(2), document);
  }
  return sample;
}

}  // namespace trireme::dataset
