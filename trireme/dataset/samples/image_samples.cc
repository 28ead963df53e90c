#include "trireme/dataset/samples/image_samples.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

constexpr double kMean[] = {0.48145466, 0.4578275, 0.40821073};
constexpr double kDeviation[] = {0.26862954, 0.26130258, 0.27577711};
constexpr int64_t kColours = 3;

}  // namespace

ImageTextSamples::ImageTextSamples(std::shared_ptr<const PackedSource> samples,
                                   const TokenOptions& tokens, const ImageTokenOptions& options,
                                   const FilePlace& place)
    : TokenSamples(samples->stream()), samples_(std::move(samples)), options_(options) {
  count_images(tokens);
  const std::string& prefix = stream().file().prefix();
  const int64_t num_images = first_image_.back();
  TRIREME_CHECK(num_images > 0, bin_path(prefix).string(), " has no image token (",
                options_.image_token,
                "); prepare it with `trireme data prepare --image-size`, or train a model of text");
  images_ = std::make_shared<const IndexedFile>(images_prefix(prefix), place);
  TRIREME_CHECK(images_->num_documents() == num_images, idx_path(images_->prefix()).string(),
                " has ", images_->num_documents(), " images, and the image tokens of ",
                bin_path(prefix).string(), " are those of ", num_images,
                "; set vision.image_size and vision.patch_size as in `trireme data prepare`");
  const int64_t values = kColours * options_.image_size * options_.image_size;
  for (int64_t i = 0; i < num_images; ++i) {
    TRIREME_CHECK(images_->document(i).size == values, idx_path(images_->prefix()).string(),
                  ": image ", i, " has ", images_->document(i).size, " values; expected ", values,
                  " with vision.image_size ", options_.image_size,
                  ": prepare the data with the same size");
  }
  for (int64_t index = 0; index < size(); ++index) {
    int64_t count = 0;
    for (const uint32_t document : samples_->documents_of(index)) {
      count += first_image_[document + 1] - first_image_[document];
    }
    most_ = std::max(most_, count);
  }
}

void ImageTextSamples::count_images(const TokenOptions& tokens) {
  const IndexedFile& file = stream().file();
  const int64_t P = options_.tokens_per_image, most = tokens.sequence_length + tokens.ahead;
  first_image_.push_back(0);
  std::vector<int64_t> read;
  for (int64_t document = 0; document < file.num_documents(); ++document) {
    const auto [offset, size] = file.document(document);
    read.resize(static_cast<size_t>(size));
    stream().read(offset, read);
    const int64_t count = std::ranges::count(read, options_.image_token);
    TRIREME_CHECK(count % P == 0, bin_path(file.prefix()).string(), ": document ", document,
                  " has ", count, " image tokens (", options_.image_token, "); expected ", P,
                  " for each image: set vision.image_size and vision.patch_size as in `trireme "
                  "data prepare`");
    TRIREME_CHECK(count == 0 || size <= most, bin_path(file.prefix()).string(), ": document ",
                  document, " has ", size, " tokens, ", count,
                  " of them of images, which cannot be cut; expected at most ", most,
                  ": raise model.sequence_length, or leave it out");
    first_image_.push_back(first_image_.back() + count / P);
  }
}

std::string ImageTextSamples::description() const {
  return concat(samples_->description(), ", ", first_image_.back(), " images, at most ", most_,
                " in a sequence");
}

NamedTensors ImageTextSamples::get(int64_t index, std::optional<RandomKey> augmentation) const {
  NamedTensors sample = samples_->get(index, augmentation);
  const int64_t S = options_.image_size;
  const at::Tensor images = at::zeros({most_, kColours, S, S}, at::kFloat);
  std::vector<int64_t> pixels(static_cast<size_t>(kColours * S * S));
  int64_t place = 0;
  for (const uint32_t document : samples_->documents_of(index)) {
    for (int64_t i = first_image_[document]; i < first_image_[document + 1]; ++i) {
      images_->read(images_->document(i).offset, pixels);
      const at::Tensor values =
          at::from_blob(pixels.data(), {kColours, S, S}, at::kLong).to(at::kDouble).div(255);
      const at::Tensor image = images.select(0, place++);
      for (int64_t colour = 0; colour < kColours; ++colour) {
        image.select(0, colour).copy_(
            values.select(0, colour).sub(kMean[colour]).div(kDeviation[colour]));
      }
    }
  }
  sample.emplace_back("images", images);
  return sample;
}

}  // namespace trireme::dataset
