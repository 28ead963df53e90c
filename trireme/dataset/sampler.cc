#include "trireme/dataset/sampler.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"

namespace trireme::dataset {

SequenceSampler::SequenceSampler(const IndexedFile& file, SamplerOptions options)
    : file_(file), options_(options) {
  TRIREME_CHECK(options.sequence_length >= 1, "sequence_length is ", options.sequence_length,
                ", expected at least 1");
  TRIREME_CHECK(file.num_tokens() > options.sequence_length, bin_path(file.prefix()).string(),
                " has ", file.num_tokens(),
                " tokens, expected at least sequence_length + 1 = ", options.sequence_length + 1,
                "; prepare more text or lower sequence_length");
  num_sequences_ = (file.num_tokens() - 1) / options.sequence_length;
}

int64_t SequenceSampler::sequence(int64_t n) const {
  TRIREME_ASSERT(n >= 0, "sample ", n);
  const int64_t epoch = n / num_sequences_;
  const int64_t position = n % num_sequences_;
  if (!options_.shuffle) return position;
  const RandomKey key = random_key(options_.seed, concat("data/epoch/", epoch));
  return static_cast<int64_t>(random_permutation(key, position, num_sequences_));
}

void SequenceSampler::sample(int64_t n, std::span<int64_t> out) const {
  TRIREME_ASSERT(static_cast<int64_t>(out.size()) == options_.sequence_length + 1, out.size(),
                 " tokens asked, a sample has ", options_.sequence_length + 1);
  const int64_t offset = sequence(n) * options_.sequence_length;
  file_.read(offset, out);
  if (options_.vocab_size == 0) return;
  for (size_t i = 0; i < out.size(); ++i)
    TRIREME_CHECK(out[i] >= 0 && out[i] < options_.vocab_size, bin_path(file_.prefix()).string(),
                  ": token ", out[i], " at position ", offset + static_cast<int64_t>(i),
                  " is outside the model's vocabulary of ", options_.vocab_size,
                  "; set vocab_size to the tokenizer's, or prepare the data again");
}

void SequenceSampler::documents(int64_t n, std::span<int64_t> out) const {
  const int64_t T = options_.sequence_length;
  TRIREME_ASSERT(static_cast<int64_t>(out.size()) == T, out.size(), " documents asked of ", T);
  const int64_t offset = sequence(n) * T;
  int64_t document = file_.document_at(offset);
  for (int64_t at = 0; at < T; ++document) {
    TRIREME_CHECK(document < file_.num_documents(), idx_path(file_.prefix()).string(),
                  " changed while it was read: no document has token ", offset + at,
                  "; make the files again with `trireme data prepare`");
    const auto [begin, size] = file_.document(document);
    const int64_t end = std::clamp(begin + size - offset, at, T);
    std::fill(out.begin() + at, out.begin() + end, document);
    at = end;
  }
}

}  // namespace trireme::dataset
