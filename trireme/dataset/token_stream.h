// What language models train on: a token file and, beside it, a loss mask, a second file of the
// same form in which byte i says whether token i is one to learn. `trireme data prepare --format
// chat` and `preference` write both. Layout: docs/design/token-files.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "trireme/dataset/indexed_file.h"
#include "trireme/dataset/source.h"

namespace trireme::dataset {

// The prefix of the loss mask that belongs to the token file `prefix`.
std::string loss_prefix(const std::string& prefix);

// And that of its images (samples/image_samples.h).
std::string images_prefix(const std::string& prefix);
// The prefix of the labels that belong to the token file `prefix`: a file of the same form, in
// which document i is the class of text i. `trireme data prepare --format labelled` writes it.
std::string label_prefix(const std::string& prefix);

// Whether it is the prefix of such a file beside the tokens.
bool is_beside_tokens(const std::string& prefix);

// A target that is in no loss: PyTorch's and this library's kIgnoredTarget.
inline constexpr int64_t kNoTarget = -100;

// The bytes of a loss mask for tokens to learn, and those for the rejected answer of a pair. All
// others are 0.
inline constexpr int64_t kLearntToken = 1;
inline constexpr int64_t kRejectedToken = 2;

// Thread safe: nothing changes after construction.
class TokenStream {
 public:
  // Opens the mask and the labels too, if one of their files is there.
  // vocab_size: larger tokens are an error; 0 checks nothing. place: needed only in here
  // Throws: ConfigError when a file is missing or damaged, the mask has other documents, or there
  //         is not one label for each
  TokenStream(const std::string& prefix, int64_t vocab_size,
              const FilePlace& place = local_files());
  // Without a mask: every token is one to learn.
  TokenStream(std::shared_ptr<const IndexedFile> file, int64_t vocab_size)
      : file_(std::move(file)), vocab_size_(vocab_size) {}

  const IndexedFile& file() const { return *file_; }
  const IndexedFile* mask() const { return mask_.get(); }      // null: there is none
  const IndexedFile* labels() const { return labels_.get(); }  // null: there are none

  // Copies tokens [offset, offset + out.size()) into `out`.
  // Throws: ConfigError for a token outside the vocabulary, with its position, and as
  //         IndexedFile::read()
  void read(int64_t offset, std::span<int64_t> out) const;

  // Whether documents come in pairs: the second one has tokens of a rejected answer.
  // Throws: as IndexedFile::read()
  bool has_pairs() const;

  // Copies the targets of tokens [offset, offset + targets.size()), of which read() has given
  // `tokens`. With one more than there are targets these are the tokens one further on, with as
  // many the tokens themselves. Those that the mask does not mark with `mark` become kNoTarget.
  // Throws: ConfigError with the position of a byte of the mask that is neither 0 nor `mark`
  void copy_targets(int64_t offset, std::span<const int64_t> tokens, std::span<int64_t> targets,
                    int64_t mark = kLearntToken) const;

 private:
  std::shared_ptr<const IndexedFile> file_;
  std::shared_ptr<const IndexedFile> mask_;
  std::shared_ptr<const IndexedFile> labels_;
  int64_t vocab_size_ = 0;
};

// Samples made of a stream's tokens: each has `tokens` and `targets`, the token that follows each
// or itself, and on request `documents`, equal for two tokens in the same document; each [T] int64.
class TokenSamples : public Source {
 public:
  explicit TokenSamples(TokenStream stream) : stream_(std::move(stream)) {}

  const TokenStream& stream() const { return stream_; }
  // For people, how the tokens become samples; "" when nothing is to be said.
  virtual std::string description() const { return ""; }
  // A document for each of their images; null: they have none.
  virtual const IndexedFile* images() const { return nullptr; }

 private:
  TokenStream stream_;
};

struct MaskOptions {
  double share = 0;        // of the tokens that become targets, above 0
  int64_t mask_token = 0;  // takes the place of most of them
  int64_t vocab_size = 0;  // random tokens are drawn from [0, vocab_size)
};

// Samples for masked language modelling. Of the tokens that are targets of `samples`, themselves,
// each remains one with probability `share`. Of these 80 % are replaced by the mask token, 10 % by
// a random token, and 10 % stay as they are. Position i of a sample draws with random_bits(key, i):
// it is chosen if word 0 is below share * 2^32, replaced by the mask token if word 1 is below 0.8 *
// 2^32, by a random token if it is below 0.9 * 2^32, which is words 2 and 3 (the high one) modulo
// vocab_size. The key is the sample's augmentation, so that every epoch hides other tokens; in
// evaluation random_key(0, "data/masks/<index>"), so that all evaluations hide the same.
// Source: Devlin et al. 2018, arXiv:1810.04805, section 3.1 (task 1); new masks in each epoch: Liu
//         et al. 2019, arXiv:1907.11692, section 4.1
class MaskedSamples : public TokenSamples {
 public:
  // samples: whose targets are the tokens themselves
  // Throws: InternalError when an option is out of range
  MaskedSamples(std::shared_ptr<const TokenSamples> samples, const MaskOptions& options);

  std::string description() const override;
  int64_t size() const override { return samples_->size(); }
  // Throws: as `samples` do
  NamedTensors get(int64_t index, std::optional<RandomKey> augmentation) const override;

 private:
  std::shared_ptr<const TokenSamples> samples_;
  MaskOptions options_;
};

}  // namespace trireme::dataset
