#include "trireme/dataset/token_stream.h"

#include <algorithm>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::dataset {

std::string loss_prefix(const std::string& prefix) { return prefix + ".loss"; }

TokenStream::TokenStream(const std::string& prefix, int64_t vocab_size)
    : file_(std::make_shared<const IndexedFile>(prefix)), vocab_size_(vocab_size) {
  const std::string own = loss_prefix(prefix);
  // A mask of which one file is lost must not silently become none.
  if (!is_file(idx_path(own)) && !is_file(bin_path(own))) return;
  mask_ = std::make_shared<const IndexedFile>(own);
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

void TokenStream::copy_targets(int64_t offset, std::span<const int64_t> tokens,
                               std::span<int64_t> targets) const {
  TRIREME_ASSERT(tokens.size() == targets.size() + 1, targets.size(), " targets of ", tokens.size(),
                 " tokens");
  if (!mask_) {
    std::ranges::copy(tokens.subspan(1), targets.begin());
    return;
  }
  mask_->read(offset + 1, targets);
  for (size_t i = 0; i < targets.size(); ++i) {
    TRIREME_CHECK(targets[i] == 0 || targets[i] == 1, bin_path(mask_->prefix()).string(), ": byte ",
                  targets[i], " at position ", offset + 1 + static_cast<int64_t>(i),
                  "; expected 0 or 1: make the files again with `trireme data prepare`");
    targets[i] = targets[i] == 1 ? tokens[i + 1] : kNoTarget;
  }
}

}  // namespace trireme::dataset
