#include "trireme/dataset/token_source.h"

#include <algorithm>
#include <vector>

#include <ATen/ops/empty.h>

#include "trireme/base/error.h"

namespace trireme::dataset {

TokenSource::TokenSource(TokenStream stream, const TokenOptions& options)
    : TokenSamples(std::move(stream)), options_(options) {
  const IndexedFile& file = TokenSamples::stream().file();
  TRIREME_CHECK(options.sequence_length >= 1, "sequence_length is ", options.sequence_length,
                ", expected at least 1");
  TRIREME_CHECK(file.num_tokens() > options.sequence_length, bin_path(file.prefix()).string(),
                " has ", file.num_tokens(),
                " tokens, expected at least sequence_length + 1 = ", options.sequence_length + 1,
                "; prepare more text or lower sequence_length");
  size_ = (file.num_tokens() - 1) / options.sequence_length;
}

NamedTensors TokenSource::get(int64_t index, std::optional<RandomKey> /*augmentation*/) const {
  const int64_t T = options_.sequence_length;
  std::vector<int64_t> sequence(static_cast<size_t>(T + 1));
  read_tokens(index, sequence);
  NamedTensors sample = {{"tokens", at::empty({T}, at::kLong)},
                         {"targets", at::empty({T}, at::kLong)}};
  std::copy_n(sequence.begin(), T, sample[0].second.mutable_data_ptr<int64_t>());
  stream().copy_targets(index * T, std::span(sequence).first(T + options_.ahead),
                        {sample[1].second.mutable_data_ptr<int64_t>(), static_cast<size_t>(T)});
  if (options_.documents) {
    const at::Tensor documents_T = at::empty({T}, at::kLong);
    read_documents(index, {documents_T.mutable_data_ptr<int64_t>(), static_cast<size_t>(T)});
    sample.emplace_back("documents", documents_T);
  }
  return sample;
}

void TokenSource::read_tokens(int64_t index, std::span<int64_t> out) const {
  TRIREME_ASSERT(index >= 0 && index < size_, "sequence ", index, " of ", size_);
  TRIREME_ASSERT(static_cast<int64_t>(out.size()) == options_.sequence_length + 1, out.size(),
                 " tokens asked, a sample has ", options_.sequence_length + 1);
  stream().read(index * options_.sequence_length, out);
}

void TokenSource::read_documents(int64_t index, std::span<int64_t> out) const {
  const IndexedFile& file = stream().file();
  const int64_t T = options_.sequence_length;
  TRIREME_ASSERT(static_cast<int64_t>(out.size()) == T, out.size(), " documents asked of ", T);
  const int64_t offset = index * T;
  int64_t document = file.document_at(offset);
  for (int64_t at = 0; at < T; ++document) {
    TRIREME_CHECK(document < file.num_documents(), idx_path(file.prefix()).string(),
                  " changed while it was read: no document has token ", offset + at,
                  "; make the files again with `trireme data prepare`");
    const auto [begin, size] = file.document(document);
    const int64_t end = std::clamp(begin + size - offset, at, T);
    std::fill(out.begin() + at, out.begin() + end, document);
    at = end;
  }
}

}  // namespace trireme::dataset
