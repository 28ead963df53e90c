#include "trireme/dataset/image/image_records.h"

#include <gtest/gtest.h>

#include <string>

#include <ATen/ATen.h>

#include "tests/dataset/memory_store.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::dataset {
namespace {

// An IDX file with these sizes in front.
std::string idx(const std::vector<uint32_t>& sizes, const std::string& values) {
  std::string text = {0, 0, 8, static_cast<char>(sizes.size())};
  for (const uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(size >> shift & 0xff);
  }
  return text + values;
}

std::string counting(size_t num_bytes, int first = 0) {
  std::string text(num_bytes, '\0');
  for (size_t i = 0; i < num_bytes; ++i) text[i] = static_cast<char>(first + static_cast<int>(i));
  return text;
}

class ImageRecords : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& content) {
    write_file_atomically(folder_ / name, content);
    return folder_ / name;
  }

  std::string idx_error(const std::string& images, const std::string& labels) {
    const auto first = write("images", images);
    const auto second = write("labels", labels);
    return harness::message_of<ConfigError>([&] { open_idx(first, second); });
  }

  harness::TemporaryFolder folder_;
};

TEST_F(ImageRecords, LieInAStoreToo) {
  MemoryStore store;
  store.put("images", idx({3, 2, 4}, counting(24)));
  store.put("labels", idx({3}, std::string{1, 0, 1}));
  store.put("batch", counting(3073) + std::string(3073, '\2'));
  const auto source = open_idx("s3://bucket/images", "s3://bucket/labels", 0, nullptr, store);
  const int before = store.num_reads;
  const NamedTensors sample = source->get(2, std::nullopt);
  EXPECT_EQ(store.num_reads - before, 1);
  const at::Tensor expected = at::arange(16, 24).to(at::kByte).view({1, 2, 4});
  EXPECT_TRUE(at::equal(find_tensor(sample, "image"), expected));
  EXPECT_EQ(open_idx_images("s3://bucket/images", store)->size(), 3);
  EXPECT_EQ(open_cifar({"s3://bucket/batch"}, Cifar::k10, store)->size(), 2);
  store.put("images", "other", "\"2\"");
  EXPECT_EQ(harness::message_of<ConfigError>([&] { source->get(0, std::nullopt); }),
            "s3://bucket/images has changed");
}

TEST_F(ImageRecords, IdxHasImagesAndLabels) {
  const auto images = write("images", idx({3, 2, 4}, counting(24)));
  const auto labels = write("labels", idx({3}, std::string{5, 0, 2}));
  const auto source = open_idx(images, labels);
  EXPECT_EQ(source->size(), 3);
  EXPECT_EQ(source->shape(), (ImageShape{1, 2, 4}));
  EXPECT_EQ(source->classes(), (std::vector<std::string>{"0", "1", "2", "3", "4", "5"}));
  EXPECT_EQ(open_idx(images, labels, 10)->classes().size(), 10U);
  for (int64_t i = 0; i < 3; ++i) {
    const NamedTensors sample = source->get(i, std::nullopt);
    const at::Tensor expected = at::arange(i * 8, i * 8 + 8).to(at::kByte).view({1, 2, 4});
    EXPECT_TRUE(at::equal(find_tensor(sample, "image"), expected));
  }
  EXPECT_EQ(find_tensor(source->get(2, std::nullopt), "label").item<int64_t>(), 2);
}

TEST_F(ImageRecords, BrokenIdxFilesAreRefused) {
  const std::string images = idx({2, 1, 1}, "ab");
  const std::string labels = idx({2}, std::string{0, 1});
  EXPECT_EQ(idx_error(images, labels), "");
  EXPECT_NE(idx_error("", labels).find("images has 0 bytes; expected an IDX file"),
            std::string::npos);
  EXPECT_NE(idx_error("\x1f\x8b\x08.more", labels).find("is compressed; unpack it with gunzip"),
            std::string::npos);
  EXPECT_NE(idx_error(labels, labels).find("does not begin with 0 0 8 3"), std::string::npos);
  EXPECT_NE(idx_error(images.substr(0, 9), labels).find("ends in its header"), std::string::npos);
  EXPECT_NE(idx_error(images + "c", labels).find("has 19 bytes and its header says 18"),
            std::string::npos);
  EXPECT_NE(idx_error(images, idx({3}, "abc")).find("has 3 labels and"), std::string::npos);
  EXPECT_NE(idx_error(idx({2, 0, 1}, ""), labels).find("has 2 images of 0 x 1"), std::string::npos);
  // 2^96 values.
  EXPECT_NE(idx_error(idx({~0U, ~0U, ~0U}, ""), labels).find("expected at least one, of 1 to"),
            std::string::npos);
  EXPECT_NE(idx_error(idx({~0U, 16384, 16384}, ""), labels).find("and its header says"),
            std::string::npos);
}

TEST_F(ImageRecords, AFileThatShrinksIsNamed) {
  const auto images = write("images", idx({3, 2, 4}, counting(24)));
  const auto labels = write("labels", idx({3}, std::string{5, 0, 2}));
  const auto source = open_idx(images, labels);
  std::filesystem::resize_file(images, 30);
  source->get(0, std::nullopt);
  const std::string error = harness::message_of<ConfigError>([&] { source->get(2, std::nullopt); });
  EXPECT_NE(error.find(images.string()), std::string::npos) << error;
  EXPECT_NE(error.find("must stay as it is during a run"), std::string::npos) << error;
}

TEST_F(ImageRecords, CifarGoesThroughItsFiles) {
  const auto record = [](int label, int first) {
    return static_cast<char>(label) + counting(3072, first);
  };
  const auto a = write("a.bin", record(3, 0) + record(9, 1));
  const auto b = write("b.bin", record(0, 2));
  const auto source = open_cifar({a, b}, Cifar::k10);
  EXPECT_EQ(source->size(), 3);
  EXPECT_EQ(source->classes().size(), 10U);
  const int64_t labels[] = {3, 9, 0};
  for (int64_t i = 0; i < 3; ++i) {
    const NamedTensors sample = source->get(i, std::nullopt);
    const at::Tensor image = find_tensor(sample, "image");
    EXPECT_EQ(image.sizes(), (std::vector<int64_t>{3, 32, 32}));
    EXPECT_TRUE(at::equal(image.flatten(), at::arange(i, i + 3072).to(at::kByte)));
    EXPECT_EQ(find_tensor(sample, "label").item<int64_t>(), labels[i]);
  }
}

TEST_F(ImageRecords, Cifar100HasTwoLabels) {
  const auto path = write("train.bin", std::string{7, 42} + counting(3072));
  const auto label = [&](Cifar kind) {
    return find_tensor(open_cifar({path}, kind)->get(0, std::nullopt), "label").item<int64_t>();
  };
  EXPECT_EQ(label(Cifar::k100), 42);
  EXPECT_EQ(label(Cifar::k100Coarse), 7);
  EXPECT_EQ(open_cifar({path}, Cifar::k100)->classes().size(), 100U);
  EXPECT_EQ(open_cifar({path}, Cifar::k100Coarse)->classes().size(), 20U);
}

TEST_F(ImageRecords, BrokenCifarFilesAreRefused) {
  const auto error = [&](const std::string& content, Cifar kind) {
    const auto path = write("x.bin", content);
    return harness::message_of<ConfigError>(
        [&] { open_cifar({path}, kind)->get(0, std::nullopt); });
  };
  EXPECT_NE(error("", Cifar::k10).find("has 0 bytes; expected records of 3073"), std::string::npos);
  EXPECT_NE(error(counting(3074), Cifar::k10).find("has 3074 bytes"), std::string::npos);
  EXPECT_NE(error(std::string{0} + static_cast<char>(100) + counting(3072), Cifar::k100)
                .find("record 0 has the label 100; expected 0 to 99"),
            std::string::npos);
  EXPECT_NE(harness::message_of<ConfigError>([] { open_cifar({}, Cifar::k10); }).find("no CIFAR"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::dataset
