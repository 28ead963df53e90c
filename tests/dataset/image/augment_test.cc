#include "trireme/dataset/image/image_source.h"

#include <gtest/gtest.h>

#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/dataset/image/pixels.h"

namespace trireme::dataset {
namespace {

// Twenty images of slopes.
class Slopes : public ImageSource {
 public:
  explicit Slopes(const ImageShape& shape) : shape_(shape) {}
  int64_t size() const override { return 20; }
  ImageShape shape() const override { return shape_; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::vector<int64_t> shard_sizes() const override { return {15, 5}; }
  NamedTensors get(int64_t index, std::optional<RandomKey> /*augmentation*/) const override {
    const at::Tensor values = at::arange(shape_.num_values()) * 3 + index;
    return {{"image", values.remainder(251).to(at::kByte).view(
                          {shape_.channels, shape_.height, shape_.width})},
            {"label", at::tensor(index % 2)}};
  }

 private:
  ImageShape shape_;
  std::vector<std::string> classes_ = {"even", "odd"};
};

at::Tensor image_of(const ImageSource& source, int64_t index, std::optional<RandomKey> key) {
  return find_tensor(source.get(index, key), "image");
}

TEST(Augmented, ChangesNothingInEvaluation) {
  for (const int64_t channels : {1, 3}) {
    const auto plain = std::make_shared<Slopes>(ImageShape{channels, 10, 14});
    const auto source =
        augmented(plain, {.resized_crop = true, .crop_padding = 3, .horizontal_flip = true});
    EXPECT_EQ(source->size(), 20);
    EXPECT_EQ(source->shape(), plain->shape());
    EXPECT_EQ(source->classes(), plain->classes());
    EXPECT_EQ(source->shard_sizes(), plain->shard_sizes());
    for (int64_t i = 0; i < 20; ++i) {
      EXPECT_TRUE(at::equal(image_of(*source, i, {}), image_of(*plain, i, {})));
      EXPECT_EQ(find_tensor(source->get(i, RandomKey{1}), "label").item<int64_t>(), i % 2);
    }
  }
}

TEST(Augmented, FlipsAndShiftsAsItsRandomNumbersSay) {
  const auto plain = std::make_shared<Slopes>(ImageShape{3, 10, 14});
  const auto source = augmented(plain, {.crop_padding = 2, .horizontal_flip = true});
  for (uint64_t n = 0; n < 40; ++n) {
    const RandomKey key = random_key(n, "test");
    at::Tensor expected = image_of(*plain, 4, {});
    if (draw_flip(key)) expected = expected.flip(2);
    const Shift shift = draw_shift(key, 2);
    const at::Tensor padded = at::constant_pad_nd(expected, {2, 2, 2, 2});
    expected = padded.slice(1, 2 - shift.down, 12 - shift.down)
                   .slice(2, 2 - shift.right, 16 - shift.right);
    EXPECT_TRUE(at::equal(image_of(*source, 4, key), expected)) << n;
  }
}

TEST(Augmented, OneKindOfChangeLeavesTheDrawsOfOthers) {
  const auto plain = std::make_shared<Slopes>(ImageShape{1, 12, 12});
  const auto flips = augmented(plain, {.horizontal_flip = true});
  const auto both = augmented(plain, {.resized_crop = true, .horizontal_flip = true});
  const auto crops = augmented(plain, {.resized_crop = true});
  for (uint64_t n = 0; n < 10; ++n) {
    const RandomKey key = random_key(n, "test");
    const bool flip = !at::equal(image_of(*flips, 0, key), image_of(*plain, 0, {}));
    const at::Tensor crop = image_of(*crops, 0, key);
    EXPECT_TRUE(at::equal(image_of(*both, 0, key), flip ? crop.flip(2) : crop)) << n;
  }
}

TEST(Augmented, IsTheSameInEveryLayout) {
  const auto source =
      augmented(std::make_shared<Slopes>(ImageShape{3, 12, 9}), {.resized_crop = true,
                                                                 .crop_padding = 2,
                                                                 .padding = Padding::kEdge,
                                                                 .horizontal_flip = true});
  const auto step = [&](int data_size, int64_t micro_batch) {
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < data_size; ++rank) {
      const BatchLoader loader(*source, {12, micro_batch, rank, data_size});
      for (int64_t i = 0; i < loader.num_microbatches(0); ++i) {
        parts.push_back(loader.microbatch(3, i)["image"]);
      }
    }
    return at::cat(parts);
  };
  const at::Tensor expected = step(1, 12);
  for (const int data_size : {1, 2, 3, 4}) EXPECT_TRUE(at::equal(step(data_size, 1), expected));
}

TEST(Augmented, RefusesLimitsThatNoImageMeets) {
  EXPECT_THROW(augmented(std::make_shared<Slopes>(ImageShape{1, 2, 2}), {.smallest_area = 2}),
               ConfigError);
}

}  // namespace
}  // namespace trireme::dataset
