#include "trireme/dataset/samples/image_samples.h"

#include <memory>

#include <ATen/ATen.h>

#include "tests/dataset/data.h"

namespace trireme::dataset {
namespace {

constexpr int32_t kImage = 9;  // stands twice for each image

class ImageSamplesTest : public testing::Test {
 protected:
  // images: the value of all pixels of each; side: theirs
  void write(const std::vector<std::vector<int32_t>>& documents, const std::vector<int32_t>& images,
             int32_t side = 2) const {
    write_token_file(prefix_, documents);
    std::vector<std::vector<int32_t>> pixels;
    for (const int32_t value : images) {
      pixels.emplace_back(static_cast<size_t>(3 * side * side), value);
    }
    write_token_file(images_prefix(prefix_), pixels, 256);
  }
  ImageTextSamples samples(int64_t T = 6) const {
    const TokenOptions options{.sequence_length = T, .documents = true};
    return {std::make_shared<const PackedSource>(TokenStream(prefix_, 0), options),
            options,
            {.image_token = kImage, .tokens_per_image = 2, .image_size = 2}};
  }
  TemporaryFolder folder_;
  std::string prefix_ = folder_ / "a";
};

// The red pixel at the top left of each image of a sample.
std::vector<double> reds(const NamedTensors& sample) {
  std::vector<double> found;
  const at::Tensor images = find_tensor(sample, "images");
  for (int64_t i = 0; i < images.size(0); ++i) found.push_back(images[i][0][0][0].item<float>());
  return found;
}
double red(int value) { return (value / 255.0 - 0.48145466) / 0.26862954; }

TEST_F(ImageSamplesTest, ASampleHasTheImagesOfItsDocumentsInTheirOrder) {
  write({{1, 9, 9, 2}, {3, 4}, {9, 9, 9, 9, 5}, {9, 9, 6}}, {10, 20, 30, 40});
  const ImageTextSamples source = samples();
  ASSERT_EQ(source.size(), 2);
  EXPECT_EQ(source.images()->num_documents(), 4);
  EXPECT_EQ(source.description(),
            "4 whole documents fill 83.3 %, 4 images, at most 3 in a sequence");
  for (int64_t index = 0; index < 2; ++index) {
    const NamedTensors sample = source.get(index, {});
    const at::Tensor tokens = find_tensor(sample, "tokens");
    const bool has_three = tokens[0].item<int64_t>() == 9;
    const std::vector<double> found = reds(sample);
    ASSERT_EQ(found.size(), 3);
    const std::vector<double> wanted =
        has_three ? std::vector{red(20), red(30), red(40)} : std::vector{red(10), 0.0, 0.0};
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(found[i], wanted[i], 1e-6) << index << " " << i;
  }
}

// Every colour has numbers of its own.
TEST_F(ImageSamplesTest, PixelsAreNormalisedAsClipDoesAndNothingIsBehindThem) {
  write({{9, 9, 9, 9, 1}, {9, 9, 1, 1, 1}}, {0, 255, 128});
  const ImageTextSamples source = samples(4);
  for (int64_t index = 0; index < 2; ++index) {
    const at::Tensor images = find_tensor(source.get(index, {}), "images");
    ASSERT_EQ(images.sizes(), (std::vector<int64_t>{2, 3, 2, 2}));
    if (images[1].count_nonzero().item<int64_t>() > 0) continue;
    const double values[] = {(128 / 255.0 - 0.48145466) / 0.26862954,
                             (128 / 255.0 - 0.4578275) / 0.26130258,
                             (128 / 255.0 - 0.40821073) / 0.27577711};
    for (int colour = 0; colour < 3; ++colour) {
      EXPECT_NEAR(images[0][colour][1][1].item<float>(), values[colour], 1e-6);
    }
    return;
  }
  ADD_FAILURE() << "no sample has one image";
}

TEST_F(ImageSamplesTest, ImagesThatDoNotFitTheirTokensAreRefused) {
  write({{1, 9, 9, 2}}, {10, 20});
  expect_config_error([&] { samples(); }, {"a.images.idx has 2 images", "those of 1"});
  write({{1, 9, 9, 9, 2}}, {10});
  expect_config_error([&] { samples(); },
                      {"a.bin: document 0 has 3 image tokens (9)", "expected 2"});
  write({{1, 9, 9, 2}}, {10}, 3);
  expect_config_error([&] { samples(); }, {"a.images.idx: image 0 has 27 values; expected 12"});
  write({{1, 2, 3}}, {});
  expect_config_error([&] { samples(); }, {"a.bin has no image token (9)"});
  write({{1, 9, 9, 2}, {9, 9, 1, 2, 3, 4, 5}}, {10, 20});
  expect_config_error([&] { samples(5); }, {"document 1 has 7 tokens", "model.sequence_length"});
  write_token_file(prefix_, {{1, 9, 9, 2}});
  std::filesystem::remove(folder_ / "a.images.bin");
  expect_config_error([&] { samples(); }, {"a.images.bin"});
}

}  // namespace
}  // namespace trireme::dataset
