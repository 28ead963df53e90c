#include "trireme/dataset/labelled/labelled_source.h"

#include <algorithm>
#include <span>
#include <utility>

#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/dataset/samples/packed_source.h"

namespace trireme::dataset {

LabelledSource::LabelledSource(TokenStream stream, const TokenOptions& options, int64_t classes)
    : TokenSamples(std::move(stream)), T_(options.sequence_length), classes_(classes) {
  TRIREME_CHECK(T_ >= 2, "model.sequence_length is ", T_,
                "; expected at least 2, for the tokens that begin and end a text");
  const IndexedFile& file = TokenSamples::stream().file();
  TRIREME_CHECK(TokenSamples::stream().labels() != nullptr && file.num_documents() > 0,
                idx_path(file.prefix()).string(), " has ", file.num_documents(),
                " texts and its labels are ",
                TokenSamples::stream().labels() == nullptr ? "missing" : "there",
                "; make both with `trireme data prepare --format labelled`");
  int64_t filled = 0;
  for (const int64_t size : file.document_sizes()) {
    cut_ += size > T_ ? 1 : 0;
    filled += std::min(size, T_);
  }
  density_ = static_cast<double>(filled) / (static_cast<double>(T_) * static_cast<double>(size()));
}

std::string LabelledSource::description() const {
  std::string text = format("a text each, filled %.1f %%", 100 * density_);
  if (cut_ > 0) text += concat(", ", cut_, " of ", size(), " texts cut to fit");
  return text;
}

NamedTensors padded_text(std::span<const int32_t> tokens, int64_t T) {
  const at::Tensor tokens_T = at::full({T}, 0, at::kLong);
  const at::Tensor documents_T = at::full({T}, kPaddingDocument, at::kLong);
  const auto places = static_cast<size_t>(std::min(std::ssize(tokens), T));
  auto* const out = tokens_T.mutable_data_ptr<int64_t>();
  std::ranges::copy(tokens.first(places), out);
  if (std::ssize(tokens) > T) out[T - 1] = tokens.back();
  std::fill_n(documents_T.mutable_data_ptr<int64_t>(), places, 0);
  return {{"tokens", tokens_T}, {"documents", documents_T}};
}

NamedTensors LabelledSource::get(int64_t index, std::optional<RandomKey> /*augmentation*/) const {
  TRIREME_ASSERT(index >= 0 && index < size(), "sample ", index, " of ", size());
  const auto [offset, size] = stream().file().document(index);
  TRIREME_CHECK(size >= 1, idx_path(stream().file().prefix()).string(), ": text ", index,
                " has no tokens; make the files again with `trireme data prepare`");
  const at::Tensor tokens_T = at::full({T_}, 0, at::kLong);
  const at::Tensor documents_T = at::full({T_}, kPaddingDocument, at::kLong);
  const auto places = static_cast<size_t>(std::min(size, T_));
  const std::span tokens(tokens_T.mutable_data_ptr<int64_t>(), places);
  stream().read(offset, tokens);
  if (size > T_) stream().read(offset + size - 1, tokens.last(1));
  std::fill_n(documents_T.mutable_data_ptr<int64_t>(), places, 0);
  int64_t label = -1;
  stream().labels()->read(index, std::span(&label, 1));
  TRIREME_CHECK(label >= 0 && label < classes_, bin_path(stream().labels()->prefix()).string(),
                ": the label of text ", index, " is ", label, "; expected one of ", classes_,
                " classes, from 0: make the files again with `trireme data prepare`");
  return {{"tokens", tokens_T},
          {"targets", at::scalar_tensor(label, at::TensorOptions().dtype(at::kLong))},
          {"documents", documents_T}};
}

}  // namespace trireme::dataset
