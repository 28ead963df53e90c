#include "trireme/dataset/rows/image_rows.h"

#include <filesystem>

#include <ATen/ATen.h>

#include "tests/dataset/data.h"
#include "tests/dataset/image/encoded.h"
#include "tests/dataset/image/tar.h"
#include "tests/dataset/memory_store.h"
#include "tests/dataset/rows/collected.h"
#include "tests/harness/tensors.h"
#include "trireme/dataset/image/image_folder.h"

namespace trireme::dataset {
namespace {

namespace fs = std::filesystem;

class ImageRowsTest : public testing::Test {
 protected:
  ImageRowsTest() {
    for (int i = 0; i < 3; ++i) {
      put(concat("set/", i % 2 == 0 ? "a/" : "b/", i, ".png"), png_of(picture(9, 12, 7 + i)));
    }
  }
  std::string put(const std::string& name, const std::string& bytes) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    write_text(path, bytes);
    return path;
  }
  static std::vector<Row> read(const std::vector<std::string>& inputs,
                               const ImageRowOptions& options) {
    const auto rows = open_image_rows(inputs, options);
    std::vector<Row> all = collected(*rows);
    EXPECT_EQ(rows->num_done(), rows->num_total());
    return all;
  }

  TemporaryFolder folder_;
  const std::vector<std::string> set_ = {folder_ / "set"};
  const ImageRowOptions as_they_are_{.shape = {3, 9, 12}};
};

TEST_F(ImageRowsTest, ImagesAreThoseOfEvaluation) {
  for (const int64_t size : {int64_t{0}, int64_t{6}}) {
    const auto source = open_image_folder(folder_ / "set", {.size = size});
    const std::vector<Row> rows = read({folder_ / "set"}, {.shape = source->shape(), .size = size});
    ASSERT_EQ(std::ssize(rows), source->size());
    for (int64_t i = 0; i < source->size(); ++i) {
      const Row& row = rows[static_cast<size_t>(i)];
      EXPECT_EQ(row.number, 0) << "the file is the row";
      harness::assert_same_bits(tensor_of(row, "image"),
                                find_tensor(source->get(i, std::nullopt), "image"), row.path);
    }
    EXPECT_EQ(rows[1].path, (folder_ / "set/a/2.png").string());
  }
}

TEST_F(ImageRowsTest, FilesOfAStoreAreThoseOfADisk) {
  const auto store = std::make_shared<MemoryStore>();
  const std::string image = png_of(picture(9, 12, 7));
  const std::string archive =
      tar_entry("a.png", image) + tar_entry("b.png", image) + tar_entry("b.cls", "1") + tar_end();
  store->put("a.png", image);
  store->put("set.tar", archive);
  ImageRowOptions options = as_they_are_;
  options.stores = store;
  const std::vector<Row> here = read({put("a.png", image), put("set.tar", archive)}, options);
  const std::vector<Row> there = read({"s3://bucket/a.png", "s3://bucket/set.tar"}, options);
  ASSERT_EQ(there.size(), 3U);
  ASSERT_EQ(here.size(), 3U);
  for (size_t i = 0; i < here.size(); ++i) {
    harness::assert_same_bits(tensor_of(there[i], "image"), tensor_of(here[i], "image"),
                              there[i].path);
  }
  EXPECT_EQ(there[2].path, "s3://bucket/set.tar/b.png");
  expect_config_error([&] { read({"s3://bucket/none.png"}, options); },
                      {"none.png does not exist"});
  expect_config_error([&] { read({"s3://bucket/"}, options); }, {"is a folder of a store"});
  expect_config_error([&] { read({"s3://bucket/a.png"}, as_they_are_); }, {"is in a store"});
}

TEST_F(ImageRowsTest, OtherFilesAreLeftOutAndCounted) {
  put("set/notes.txt", "x");
  put("set/a/.hidden.png", "x");
  fs::create_directory_symlink(folder_ / "set", folder_ / "set" / "loop");
  auto rows = open_image_rows(set_, as_they_are_);
  EXPECT_EQ(rows->left_out(), "2 files that are not images");
  EXPECT_EQ(rows->num_total(), 3);
  put("set/b/thumbs.db", "x");
  rows = open_image_rows(set_, as_they_are_);
  EXPECT_EQ(rows->left_out(), "3 files that are not images");
}

TEST_F(ImageRowsTest, ReadsFilesOfRecords) {
  std::string idx("\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x03", 16);
  for (char value = 0; value < 12; ++value) idx += value;
  const std::vector<Row> grey = read({put("images-idx3-ubyte", idx)}, {.shape = {1, 2, 3}});
  ASSERT_EQ(grey.size(), 2U);
  EXPECT_EQ(grey[1].number, 2);
  EXPECT_EQ(tensor_of(grey[1], "image").flatten()[0].item<int64_t>(), 6);
  std::string cifar(1 + 3072, '\x05');
  const std::vector<Row> colours =
      read({put("batch.bin", cifar)}, {.shape = {3, 32, 32}, .num_classes = 10});
  ASSERT_EQ(colours.size(), 1U);
  EXPECT_EQ(tensor_of(colours[0], "image").sizes(), (at::IntArrayRef{3, 32, 32}));
  expect_config_error([&] { read({folder_ / "batch.bin"}, as_they_are_); },
                      {"batch.bin has images of 3 x 32 x 32", "takes 3 x 9 x 12"});
}

TEST_F(ImageRowsTest, ReadsTheImagesOfAnArchive) {
  const std::string image = png_of(picture(9, 12));
  const std::string path =
      put("shard.tar", tar_entry("a/one.png", image) + tar_entry("a/one.cls", "0") +
                           tar_entry("two.png", image) + std::string(1024, '\0'));
  const std::vector<Row> rows = read({path}, as_they_are_);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].path, path + "/a/one.png");
}

TEST_F(ImageRowsTest, AModelOfGreyImagesGetsGrey) {
  std::vector<uint8_t> values;
  for (int i = 0; i < 9 * 12; ++i) {
    for (int c = 0; c < 3; ++c) values.push_back(static_cast<uint8_t>(2 * i));
  }
  const std::vector<Row> rows =
      read({put("grey.png", png_of(9, 12, values))}, {.shape = {1, 9, 12}});
  const at::Tensor image = tensor_of(rows.at(0), "image");
  for (int i = 0; i < 9 * 12; ++i) {
    ASSERT_EQ(image.flatten()[i].item<int64_t>(), 2 * i) << "grey stays the same";
  }
}

TEST_F(ImageRowsTest, WrongInputsAreNamed) {
  const auto refuse = [&](const std::string& input, const std::vector<std::string>& parts) {
    expect_config_error([&] { read({input}, as_they_are_); }, parts);
  };
  refuse(put("text.png", "no image"), {"text.png"});
  refuse(put("cut.png", png_of(picture(9, 12)).substr(0, 90)), {"cut.png"});
  refuse(put("small.png", png_of(picture(8, 12))), {"small.png has 8 x 12", "9 x 12"});
  refuse(folder_ / "none.png", {"none.png"});
  fs::create_directory(folder_ / "empty");
  refuse(folder_ / "empty", {"empty has no images"});
}

}  // namespace
}  // namespace trireme::dataset
