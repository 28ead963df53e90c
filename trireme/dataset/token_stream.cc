#include "trireme/dataset/token_stream.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/random/random.h"

namespace trireme::dataset {

std::string loss_prefix(const std::string& prefix) { return prefix + ".loss"; }
std::string images_prefix(const std::string& prefix) { return prefix + ".images"; }
std::string label_prefix(const std::string& prefix) { return prefix + ".label"; }

bool is_beside_tokens(const std::string& prefix) {
  return prefix.ends_with(loss_prefix("")) || prefix.ends_with(images_prefix("")) ||
         prefix.ends_with(label_prefix(""));
}

TokenStream::TokenStream(const std::string& prefix, int64_t vocab_size, const FilePlace& place)
    : file_(std::make_shared<const IndexedFile>(prefix, place)), vocab_size_(vocab_size) {
  const std::string own = loss_prefix(prefix);
  mask_ = IndexedFile::find(own, place);
  labels_ = IndexedFile::find(label_prefix(prefix), place);
  const int64_t documents = file_->num_documents();
  TRIREME_CHECK(
      !labels_ || (labels_->num_documents() == documents && labels_->num_tokens() == documents),
      idx_path(label_prefix(prefix)).string(), " has ", labels_ ? labels_->num_tokens() : 0,
      " labels and ", idx_path(prefix).string(), " ", documents,
      " texts; expected one for each: make both again with `trireme data prepare`");
  if (!mask_) return;
  TRIREME_CHECK(mask_->token_type() == TokenType::kUint8, idx_path(own).string(), " has tokens of ",
                token_type_bytes(mask_->token_type()),
                " bytes; expected a loss mask, of 1: make both again with `trireme data prepare`");
  TRIREME_CHECK(mask_->has_documents_of(*file_), idx_path(own).string(), " has ",
                mask_->num_documents(), " documents of ", mask_->num_tokens(), " tokens and ",
                idx_path(prefix).string(), " ", file_->num_documents(), " of ", file_->num_tokens(),
                "; expected the same sizes: make both again with `trireme data prepare`");
}

void TokenStream::read(int64_t offset, std::span<int64_t> out) const {
  file_->read(offset, out);
  if (vocab_size_ == 0) return;
  for (size_t i = 0; i < out.size(); ++i) {
    TRIREME_CHECK(out[i] >= 0 && out[i] < vocab_size_, bin_path(file_->prefix()).string(),
                  ": token ", out[i], " at position ", offset + static_cast<int64_t>(i),
                  " is outside the model's vocabulary of ", vocab_size_,
                  "; set vocab_size to the tokenizer's, or prepare the data again");
  }
}

bool TokenStream::has_pairs() const {
  if (!mask_ || mask_->num_documents() < 2) return false;
  const auto [offset, size] = mask_->document(1);
  std::vector<int64_t> marks(static_cast<size_t>(size));
  mask_->read(offset, marks);
  return std::ranges::find(marks, kRejectedToken) != marks.end();
}

void TokenStream::copy_targets(int64_t offset, std::span<const int64_t> tokens,
                               std::span<int64_t> targets, int64_t mark) const {
  const size_t ahead = tokens.size() - targets.size();
  TRIREME_ASSERT(ahead <= 1, targets.size(), " targets of ", tokens.size(), " tokens");
  if (!mask_) {
    std::ranges::copy(tokens.subspan(ahead), targets.begin());
    return;
  }
  const int64_t first = offset + static_cast<int64_t>(ahead);
  mask_->read(first, targets);
  for (size_t i = 0; i < targets.size(); ++i) {
    TRIREME_CHECK(targets[i] == 0 || targets[i] == mark, bin_path(mask_->prefix()).string(),
                  ": byte ", targets[i], " at position ", first + static_cast<int64_t>(i),
                  "; expected 0 or ", mark, ": make the files again with `trireme data prepare`");
    targets[i] = targets[i] == mark ? tokens[i + ahead] : kNoTarget;
  }
}

MaskedSamples::MaskedSamples(std::shared_ptr<const TokenSamples> samples,
                             const MaskOptions& options)
    : TokenSamples(samples->stream()), samples_(std::move(samples)), options_(options) {
  TRIREME_ASSERT(options.share > 0 && options.share <= 1, "a masked share of ", options.share);
  TRIREME_ASSERT(options.mask_token >= 0 && options.mask_token < options.vocab_size, "mask token ",
                 options.mask_token, " of ", options.vocab_size);
}

std::string MaskedSamples::description() const {
  const std::string inner = samples_->description();
  return concat(inner, inner.empty() ? "" : "; ", format("%g %% masked", 100 * options_.share));
}

NamedTensors MaskedSamples::get(int64_t index, std::optional<RandomKey> augmentation) const {
  constexpr double kWords = 0x1p32;
  NamedTensors sample = samples_->get(index, augmentation);
  const RandomKey key = augmentation ? *augmentation : random_key(0, concat("data/masks/", index));
  const at::Tensor tokens_T = find_tensor(sample, "tokens");
  auto* tokens = tokens_T.mutable_data_ptr<int64_t>();
  auto* targets = find_tensor(sample, "targets").mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < tokens_T.numel(); ++i) {
    if (targets[i] == kNoTarget) continue;
    const auto bits = random_bits(key, static_cast<uint64_t>(i));
    if (bits[0] >= options_.share * kWords) {
      targets[i] = kNoTarget;
    } else if (bits[1] < 0.8 * kWords) {
      tokens[i] = options_.mask_token;
    } else if (bits[1] < 0.9 * kWords) {
      const uint64_t word = (static_cast<uint64_t>(bits[3]) << 32) | bits[2];
      tokens[i] = static_cast<int64_t>(word % static_cast<uint64_t>(options_.vocab_size));
    }
  }
  return sample;
}

}  // namespace trireme::dataset
