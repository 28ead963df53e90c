#include "trireme/dataset/image/noised_images.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

// In fp32 in every precision, so that all train on the same noise.
at::Tensor draw_noise(RandomKey key, const ImageShape& shape) {
  const at::Tensor noise = at::empty({shape.channels, shape.height, shape.width}, at::kFloat);
  auto* const values = noise.mutable_data_ptr<float>();
  for (int64_t i = 0; i < shape.num_values(); ++i)
    values[i] = static_cast<float>(random_normal(key, static_cast<uint64_t>(i)));
  return noise;
}

class NoisedImages final : public ImageSource {
 public:
  NoisedImages(std::shared_ptr<const ImageSource> images, const NoiseDraws& draws)
      : images_(std::move(images)), draws_(draws) {
    TRIREME_ASSERT(images_ != nullptr && draws.timesteps > 0, "noise of ", draws.timesteps,
                   " timesteps");
    TRIREME_ASSERT(draws.class_dropout >= 0 && draws.class_dropout <= 1, "a class dropout of ",
                   draws.class_dropout);
  }

  int64_t size() const override { return images_->size(); }
  std::vector<int64_t> shard_sizes() const override { return images_->shard_sizes(); }
  ImageShape shape() const override { return images_->shape(); }
  const std::vector<std::string>& classes() const override { return images_->classes(); }
  int64_t num_left_out() const override { return images_->num_left_out(); }

  NamedTensors get(int64_t index, std::optional<RandomKey> augmentation) const override {
    NamedTensors sample = images_->get(index, augmentation);
    const RandomKey key =
        augmentation ? *augmentation : random_key(static_cast<uint64_t>(index), "noise/fixed");
    if (augmentation && draw(key, "noise/class") < draws_.class_dropout) {
      const auto label = std::ranges::find(sample, "label", &NamedTensor::first);
      TRIREME_ASSERT(label != sample.end(), "a sample without a class");
      label->second = number(draws_.null_class);
    }
    const double place = draw(key, "noise/timestep") * static_cast<double>(draws_.timesteps);
    sample.emplace_back("timestep",
                        number(std::min(static_cast<int64_t>(place), draws_.timesteps - 1)));
    sample.emplace_back("noise", draw_noise(random_key(key.value, "noise/values"), shape()));
    return sample;
  }

 private:
  static double draw(RandomKey key, const char* name) {
    return random_uniform(random_key(key.value, name), 0);
  }
  static at::Tensor number(int64_t value) { return at::scalar_tensor(value, at::kLong); }

  std::shared_ptr<const ImageSource> images_;
  NoiseDraws draws_;
};

}  // namespace

std::unique_ptr<ImageSource> noised(std::shared_ptr<const ImageSource> images,
                                    const NoiseDraws& draws) {
  return std::make_unique<NoisedImages>(std::move(images), draws);
}

at::Tensor sampling_noise(uint64_t seed, int64_t image, const ImageShape& shape) {
  return draw_noise(random_key(seed, concat("sample/", image)), shape);
}

}  // namespace trireme::dataset
