// Samples of text and images: whole documents, with the images whose features take the places of
// their image tokens. The images are in a token file of their own, at images_prefix(): each is a
// document of 3 * S * S bytes, in the order of the image tokens in the text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/dataset/indexed_file.h"
#include "trireme/dataset/samples/packed_source.h"
#include "trireme/dataset/token_stream.h"

namespace trireme::dataset {

struct ImageTokenOptions {
  int64_t image_token = 0;       // stands num_tokens times for each image
  int64_t tokens_per_image = 1;  // P
  int64_t image_size = 1;        // S
};

// Beside the tensors of a PackedSource, a sample has `images`, [M, 3, S, S] fp32: its images in the
// order of their tokens, less CLIP's mean and divided by its standard deviation of each colour, and
// zeros behind them. M is the most that a sample of this source has, at least 1.
// Memory: 8 bytes per document
// Source: the constants: Radford et al. 2021, arXiv:2103.00020 (OPENAI_CLIP_MEAN and _STD)
class ImageTextSamples : public TokenSamples {
 public:
  // Reads every token once. place: where the images are; needed only in here
  // Throws: ConfigError when the images are missing, of another size, or not as many as their
  //         tokens; when a document with images is too long for a sample
  ImageTextSamples(std::shared_ptr<const PackedSource> samples, const TokenOptions& tokens,
                   const ImageTokenOptions& options, const FilePlace& place = local_files());

  std::string description() const override;
  int64_t size() const override { return samples_->size(); }
  const IndexedFile* images() const override { return images_.get(); }
  // Throws: as TokenStream
  NamedTensors get(int64_t index, std::optional<RandomKey> augmentation) const override;

 private:
  void count_images(const TokenOptions& tokens);

  std::shared_ptr<const PackedSource> samples_;
  ImageTokenOptions options_;
  std::shared_ptr<const IndexedFile> images_;
  std::vector<int64_t> first_image_;  // of each document, and behind the last
  int64_t most_ = 1;
};

}  // namespace trireme::dataset
