#include "trireme/tasks/vision/image_files.h"

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "tests/tasks/vision/record_files.h"
#include "trireme/base/error.h"

namespace trireme::tasks {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ImageFilesTest : public ::testing::Test {
 protected:
  ImageFiles config(const std::string& folder) const {
    ImageFiles config;
    config.data.path = (folder_ / folder).string();
    return config;
  }
  void write_cifar(const std::string& name, int64_t num_labels) {
    harness::write_bytes(folder_ / "cifar" / name,
                         std::string(static_cast<size_t>(2 * (num_labels + 3072)), '\1'));
  }
  static std::string refusal(const ImageFiles& config) {
    return harness::message_of<ConfigError>([&] { open_training_images(config); });
  }

  harness::TemporaryFolder folder_;
};

TEST_F(ImageFilesTest, FindsMnist) {
  harness::write_idx_set(folder_ / "mnist", 8, 4, 6, 4);
  const auto training = open_training_images(config("mnist"));
  EXPECT_EQ(training->size(), 8);
  EXPECT_EQ(training->shape(), (dataset::ImageShape{1, 6, 6}));
  EXPECT_EQ(open_validation_images(config("mnist"), *training)->size(), 4);
}

TEST_F(ImageFilesTest, FindsCifar) {
  std::filesystem::create_directory(folder_ / "cifar");
  for (int i = 1; i <= 5; ++i) write_cifar(concat("data_batch_", i, ".bin"), 1);
  write_cifar("test_batch.bin", 1);
  const auto ten = open_training_images(config("cifar"));
  EXPECT_EQ(ten->size(), 10);
  EXPECT_EQ(ten->classes().size(), 10U);
  EXPECT_EQ(open_validation_images(config("cifar"), *ten)->size(), 2);
  for (const char* name : {"train.bin", "test.bin"}) write_cifar(name, 2);
  ImageFiles hundred = config("cifar");
  hundred.data.format = ImageFormat::kCifar100;
  EXPECT_EQ(open_training_images(hundred)->classes().size(), 100U);
}

TEST_F(ImageFilesTest, AugmentsTrainingImagesAlone) {
  harness::write_idx_set(folder_ / "mnist", 8, 8, 6, 4);
  ImageFiles flips = config("mnist");
  flips.augment.flip = true;
  const auto plain = open_training_images(config("mnist")), training = open_training_images(flips);
  const auto validation = open_validation_images(flips, *training);
  int num_changed = 0;
  for (int64_t i = 0; i < 8; ++i) {
    const RandomKey key = random_key(1, std::to_string(i));
    num_changed += training->get(i, key)[0].second.equal(plain->get(i, key)[0].second) ? 0 : 1;
    EXPECT_TRUE(validation->get(i, key)[0].second.equal(plain->get(i, key)[0].second));
  }
  EXPECT_GT(num_changed, 0);
  EXPECT_LT(num_changed, 8);
}

TEST_F(ImageFilesTest, ValidationMayHaveAShorterName) {
  harness::write_idx_set(folder_ / "mnist", 8, 8, 6, 4);
  const auto training = open_training_images(config("mnist"));
  ImageFiles folders = config("images");
  folders.data.format = ImageFormat::kFolder;
  // Each is without classes, so the message says which one was read.
  for (const char* name : {"valid", "val", "validation"}) {
    std::filesystem::create_directories(folder_ / "images" / name);
    EXPECT_THAT(
        harness::message_of<ConfigError>([&] { open_validation_images(folders, *training); }),
        HasSubstr(concat("/images/", name, " has no folders")));
  }
}

TEST_F(ImageFilesTest, ClassesMayLieInTheFolderItself) {
  for (const char* name : {"cat", "dog"}) {
    std::filesystem::create_directories(folder_ / "flat" / name);
    for (int i = 0; i < 20; ++i) {
      harness::write_bytes(folder_ / "flat" / name / concat(i, ".png"), "no image");
    }
  }
  // It is looked at as such, and so is the first image of each part.
  EXPECT_THAT(refusal(config("flat")), HasSubstr("flat/cat/"));
  harness::write_idx_set(folder_ / "mnist", 8, 8, 6, 2);
  const auto training = open_training_images(config("mnist"));
  const auto validation_refusal = [&](const ImageFiles& flat) {
    return harness::message_of<ConfigError>([&] { open_validation_images(flat, *training); });
  };
  ImageFiles flat = config("flat");
  flat.data.validation_share = 0;
  EXPECT_THAT(validation_refusal(flat), HasSubstr("data.validation_share is 0"));
  // A folder for validation beside them is no class, and is taken whatever the share is.
  std::filesystem::create_directories(folder_ / "flat" / "val" / "cat");
  EXPECT_THAT(refusal(config("flat")), HasSubstr("flat/cat/"));
  EXPECT_THAT(validation_refusal(flat), HasSubstr("/flat/val has the class \"cat\""));
  // With train/, what is beside it is none either.
  std::filesystem::create_directories(folder_ / "flat" / "train" / "owl");
  EXPECT_THAT(refusal(config("flat")), HasSubstr("/flat/train/owl has no images"));
}

TEST_F(ImageFilesTest, AShareOfTrainIsHeldOutWhereNoFolderIsForValidation) {
  std::filesystem::create_directories(folder_ / "part/train/0");
  for (int i = 0; i < 20; ++i) {
    harness::write_bytes(folder_ / "part/train/0" / concat(i, ".png"), "no image");
  }
  harness::write_idx_set(folder_ / "mnist", 8, 8, 6, 2);
  const auto training = open_training_images(config("mnist"));
  ImageFiles part = config("part");
  const auto of_validation = [&] {
    return harness::message_of<ConfigError>([&] { open_validation_images(part, *training); });
  };
  // Each part is read, and begins with another file, which is named.
  part.data.validation_share = 0.5;
  EXPECT_THAT(refusal(part), HasSubstr("part/train/0/"));
  EXPECT_THAT(of_validation(), HasSubstr("part/train/0/"));
  EXPECT_NE(refusal(part), of_validation());
  part.data.validation_share = 0;
  EXPECT_THAT(of_validation(),
              AllOf(HasSubstr("no folder validation/"), HasSubstr("data.validation_share is 0")));
  std::filesystem::create_directories(folder_ / "part" / "val");
  EXPECT_THAT(of_validation(), HasSubstr("part/val has no folders"));
}

TEST_F(ImageFilesTest, SaysWhatItExpectsWhereNothingIs) {
  EXPECT_THAT(refusal(config("none")), AllOf(HasSubstr("data.path"), HasSubstr("not a folder")));
  std::filesystem::create_directory(folder_ / "empty");
  EXPECT_THAT(refusal(config("empty")), HasSubstr("train/CLASS/*.png"));
}

TEST_F(ImageFilesTest, ValidationImagesHaveTheShapeOfTraining) {
  harness::write_idx_set(folder_ / "small", 8, 4, 6, 4);
  harness::write_idx_set(folder_ / "large", 8, 4, 7, 4);
  const auto training = open_training_images(config("small"));
  EXPECT_THAT(
      harness::message_of<ConfigError>([&] { open_validation_images(config("large"), *training); }),
      AllOf(HasSubstr("1 x 7 x 7"), HasSubstr("1 x 6 x 6")));
}

TEST_F(ImageFilesTest, ValidationImagesHaveNoClassThatTrainingLacks) {
  harness::write_idx_set(folder_ / "few", 8, 4, 6, 2);
  harness::write_idx_set(folder_ / "many", 8, 8, 6, 4);
  const auto training = open_training_images(config("few"));
  EXPECT_THAT(
      harness::message_of<ConfigError>([&] { open_validation_images(config("many"), *training); }),
      AllOf(HasSubstr("4 classes"), HasSubstr("training has 2")));
}

}  // namespace
}  // namespace trireme::tasks
