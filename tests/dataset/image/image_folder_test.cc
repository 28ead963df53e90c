#include "trireme/dataset/image/image_folder.h"

#include <set>
#include <utility>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "tests/dataset/image/encoded.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/image/pixels.h"

namespace trireme::dataset {
namespace {

namespace fs = std::filesystem;

class ImageFolder : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& content) {
    fs::create_directories((folder_ / name).parent_path());
    OutputFile(folder_ / name).write(content);
  }
  std::string error(const ImageOptions& options = {}, const ImageSource* like = nullptr) {
    return harness::message_of<ConfigError>([&] {
      const auto source = open_image_folder(folder_.path(), options, like);
      for (int64_t i = 0; i < source->size(); ++i) source->get(i, std::nullopt);
    });
  }
  static at::Tensor image_of(const ImageSource& source, int64_t index,
                             std::optional<RandomKey> key = {}) {
    return find_tensor(source.get(index, key), "image");
  }
  static int64_t label_of(const ImageSource& source, int64_t index) {
    return find_tensor(source.get(index, std::nullopt), "label").item<int64_t>();
  }

  harness::TemporaryFolder folder_;
};

// [H, W, 3] -> [3, H, W].
at::Tensor tensor_of(const Picture& picture) {
  return at::tensor(picture.values, at::kByte)
      .view({picture.height, picture.width, 3})
      .permute({2, 0, 1});
}

TEST_F(ImageFolder, HoldsAShareOfEachClassOut) {
  for (const auto& [name, count] : {std::pair{"cat", 25}, {"dog", 9}, {"owl", 1}}) {
    for (int i = 0; i < count; ++i) put(concat(name, "/", i, ".png"), png_of(picture(4, 4, i)));
  }
  const auto all = open_image_folder(folder_.path());
  const auto kept = open_image_folder(folder_.path(), {}, nullptr, {.share = 0.3});
  const auto out =
      open_image_folder(folder_.path(), {}, kept.get(), {.share = 0.3, .is_wanted = true});
  EXPECT_EQ(all->size(), 35);
  EXPECT_EQ(out->size(), 7 + 2);  // of 25 and 9
  EXPECT_EQ(kept->size(), 18 + 7 + 1);
  EXPECT_EQ(out->classes(), all->classes());
  // Together they are all, each once, and in no order of their names.
  const auto bytes = [](const ImageSource& source) {
    std::multiset<std::string> images;
    for (int64_t i = 0; i < source.size(); ++i) {
      const at::Tensor image = image_of(source, i).contiguous();
      images.insert(concat(label_of(source, i), ":",
                           std::string(static_cast<const char*>(image.const_data_ptr()),
                                       static_cast<size_t>(image.nbytes()))));
    }
    return images;
  };
  std::multiset<std::string> together = bytes(*kept);
  together.merge(bytes(*out));
  EXPECT_EQ(together, bytes(*all));
  EXPECT_NE(harness::message_of<ConfigError>([&] {
              open_image_folder(folder_.path(), {}, nullptr, {.share = 0.01, .is_wanted = true});
            }).find("too few images to hold out a share of 0.01"),
            std::string::npos);
}

TEST_F(ImageFolder, ClassesAndFilesAreSortedByName) {
  put("dog/10.png", png_of(picture(4, 5, 1)));
  put("dog/2.PNG", png_of(picture(4, 5, 2)));
  put("cat/z.png", png_of(picture(4, 5, 3)));
  put(".hidden/x", "");
  put(".hidden-file", "");
  put("cat/.DS_Store", "");
  const auto source = open_image_folder(folder_.path());
  EXPECT_EQ(source->size(), 3);
  EXPECT_EQ(source->num_left_out(), 3);
  EXPECT_EQ(source->shape(), (ImageShape{3, 4, 5}));
  EXPECT_EQ(source->classes(), (std::vector<std::string>{"cat", "dog"}));
  const uint64_t seeds[] = {3, 1, 2};
  const int64_t labels[] = {0, 1, 1};
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::equal(image_of(*source, i), tensor_of(picture(4, 5, seeds[i])))) << i;
    EXPECT_EQ(label_of(*source, i), labels[i]);
  }
}

TEST_F(ImageFolder, ASizeCutsTheMiddleOut) {
  put("a/1.png", png_of(picture(20, 30)));
  put("a/2.png", png_of(picture(8, 6)));
  const auto source = open_image_folder(folder_.path(), {.size = 10, .centre = 0.5});
  EXPECT_EQ(source->shape(), (ImageShape{3, 10, 10}));
  // Half of the shorter side: 10 x 10 pixels around the middle, as they are.
  EXPECT_TRUE(
      at::equal(image_of(*source, 0), tensor_of(picture(20, 30)).slice(1, 5, 15).slice(2, 10, 20)));
  EXPECT_EQ(image_of(*source, 1).sizes(), (std::vector<int64_t>{3, 10, 10}));
}

TEST_F(ImageFolder, AugmentsInTrainingAlone) {
  put("a/1.jpg", jpeg_of(picture(40, 60)));
  const ImageOptions options{
      .size = 16,
      .centre = 1,
      .augment = {.resized_crop = true, .crop_padding = 1, .horizontal_flip = true}};
  const auto source = open_image_folder(folder_.path(), options);
  const auto plain = open_image_folder(folder_.path(), {.size = 16, .centre = 1});
  EXPECT_TRUE(at::equal(image_of(*source, 0), image_of(*plain, 0)));
  EXPECT_TRUE(at::equal(image_of(*plain, 0, RandomKey{3}), image_of(*plain, 0)));
  EXPECT_TRUE(at::equal(image_of(*source, 0, RandomKey{3}), image_of(*source, 0, RandomKey{3})));
  EXPECT_FALSE(at::equal(image_of(*source, 0, RandomKey{3}), image_of(*source, 0, RandomKey{4})));
  EXPECT_FALSE(at::equal(image_of(*source, 0, RandomKey{3}), image_of(*source, 0)));
}

// What decoding only the cut gives is what cutting the whole decoded image gives.
TEST_F(ImageFolder, AugmentsAsAugmentedDoes) {
  put("a/1.jpg", jpeg_of(picture(90, 60)));
  const AugmentOptions augment{.resized_crop = true, .crop_padding = 2, .horizontal_flip = true};
  const auto source = open_image_folder(folder_.path(), {.augment = augment});
  const auto whole = augmented(open_image_folder(folder_.path()), augment);
  for (uint64_t n = 0; n < 20; ++n) {
    const RandomKey key = random_key(n, "test");
    EXPECT_TRUE(at::equal(image_of(*source, 0, key), image_of(*whole, 0, key))) << n;
  }
}

TEST_F(ImageFolder, ValidationTakesTheClassesOfTraining) {
  put("train/b/1.png", png_of(picture(4, 4)));
  put("train/a/1.png", png_of(picture(4, 4)));
  put("valid/b/1.png", png_of(picture(4, 4)));
  const auto training = open_image_folder(folder_ / "train");
  const auto validation = open_image_folder(folder_ / "valid", {}, training.get());
  EXPECT_EQ(validation->classes(), training->classes());
  EXPECT_EQ(label_of(*validation, 0), 1);
  put("valid/c/1.png", png_of(picture(4, 4)));
  EXPECT_NE(harness::message_of<ConfigError>([&] {
              open_image_folder(folder_ / "valid", {}, training.get());
            }).find("has the class \"c\", which the training data does not have"),
            std::string::npos);
  fs::remove_all(folder_ / "valid/c");
  put("valid/b/1.png", png_of(picture(4, 5)));
  EXPECT_NE(harness::message_of<ConfigError>([&] {
              open_image_folder(folder_ / "valid", {}, training.get());
            }).find("has images of 3 x 4 x 5 and the training data 3 x 4 x 4"),
            std::string::npos);
}

TEST_F(ImageFolder, FilesThatAreNoImagesAreLeftOutAndCounted) {
  put("a/1.png", png_of(picture(4, 4)));
  put("a/notes.txt", "");
  put("labels.csv", "");
  put("README", "");
  put("a/Thumbs.db", "");
  put("a/.DS_Store", "");
  auto source = open_image_folder(folder_.path());
  EXPECT_EQ(source->size(), 1);
  EXPECT_EQ(source->num_left_out(), 5);
  EXPECT_EQ(left_out_text(source->num_left_out()), "5 files that are not images");
  EXPECT_EQ(augmented(std::move(source), {.horizontal_flip = true})->num_left_out(), 5);
  source = open_image_folder(folder_.path());
  EXPECT_EQ(source->classes(), std::vector<std::string>{"a"});
}

TEST_F(ImageFolder, AFolderBesideTheClassesIsNone) {
  put("a/1.png", png_of(picture(4, 4)));
  put("val/a/1.png", png_of(picture(4, 4)));
  const auto source = open_image_folder(folder_.path(), {}, nullptr, {.no_class = "val"});
  EXPECT_EQ(source->classes(), std::vector<std::string>{"a"});
  EXPECT_EQ(source->num_left_out(), 0);
}

TEST_F(ImageFolder, WrongFoldersAreRefused) {
  EXPECT_NE(error().find("has no folders; expected one for each class"), std::string::npos);
  put("a/1.png", png_of(picture(4, 4)));
  EXPECT_EQ(error(), "");
  put("b/.keep", "");
  EXPECT_NE(error().find("/b has no images; fill the class or remove its folder"),
            std::string::npos);
  put("b/notes.txt", "");
  EXPECT_NE(error().find("/b has no images"), std::string::npos);
  put("b/1.WebP", "");
  EXPECT_NE(error().find("/b/1.WebP is an image in another format; expected .png"),
            std::string::npos);
  fs::remove_all(folder_ / "b");
  put("a/deeper/1.png", "");
  EXPECT_NE(error().find("/a/deeper is a folder; expected images"), std::string::npos);
  fs::remove_all(folder_ / "a/deeper");
  put("1.png", png_of(picture(4, 4)));
  EXPECT_NE(error().find("/1.png is in no class"), std::string::npos);
  fs::remove(folder_ / "1.png");
  put("x\ny/1.png", "");
  EXPECT_NE(error().find("has \"x?y\", a name with control characters; rename it"),
            std::string::npos);
  const std::string missing =
      harness::message_of<ConfigError>([&] { open_image_folder(folder_ / "missing"); });
  EXPECT_NE(missing.find("cannot read the folder " + (folder_ / "missing").string()),
            std::string::npos);
  EXPECT_NE(missing.find("No such file or directory"), std::string::npos);
}

TEST_F(ImageFolder, WrongImagesAreNamed) {
  put("a/1.png", png_of(picture(4, 4)));
  put("a/2.png", png_of(picture(4, 6)));
  EXPECT_NE(error().find("/a/2.png has 4 x 6 pixels and " + (folder_ / "a/1.png").string() +
                         " 4 x 4; state a size"),
            std::string::npos);
  EXPECT_EQ(error({.size = 4}), "");
  put("a/2.png", "text");
  EXPECT_NE(error().find("/a/2.png is neither a PNG nor a JPEG file"), std::string::npos);
  put("a/1.png", "");
  EXPECT_NE(error().find("/a/1.png is empty"), std::string::npos);
}

TEST_F(ImageFolder, OptionsOutOfRangeAreRefused) {
  put("a/1.png", png_of(picture(4, 4)));
  EXPECT_NE(error({.size = -1}).find("the images' size is -1"), std::string::npos);
  EXPECT_NE(error({.size = 1 << 20}).find("expected 0 (as they are) to 16384"), std::string::npos);
  EXPECT_NE(error({.size = 4, .centre = 0}).find("the centre crop takes 0"), std::string::npos);
  EXPECT_NE(error({.augment = {.crop_padding = -1}}).find("by up to -1"), std::string::npos);
}

}  // namespace
}  // namespace trireme::dataset
