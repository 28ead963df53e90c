#include "trireme/dataset/image/image_tar.h"

#include <gtest/gtest.h>

#include <set>

#include <ATen/ATen.h>

#include "tests/dataset/image/encoded.h"
#include "tests/dataset/image/tar.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/batch_reader.h"

namespace trireme::dataset {
namespace {

namespace fs = std::filesystem;

class ImageTar : public ::testing::Test {
 protected:
  fs::path put(const std::string& name, const std::string& content) {
    OutputFile(folder_ / name).write(content);
    return folder_ / name;
  }
  std::string error(const std::string& entries, const ImageSource* like = nullptr) {
    const fs::path path = put("a.tar", entries + tar_end());
    return harness::message_of<ConfigError>([&] {
      const auto source = open_image_tar({path}, {}, like);
      for (int64_t i = 0; i < source->size(); ++i) source->get(i, std::nullopt);
    });
  }
  // A shard of one grey value per image: `first`, `first` + 1, ...
  fs::path put_shard(const std::string& name, int first, int count) {
    std::string entries;
    for (int i = first; i < first + count; ++i) {
      const std::string key = std::to_string(i);
      const std::vector<uint8_t> values(12, static_cast<uint8_t>(i));
      entries += tar_entry(key + ".cls", std::to_string(i % 3)) +
                 tar_entry(key + ".png", png_of(2, 2, values));
    }
    return put(name, entries + tar_end());
  }

  harness::TemporaryFolder folder_;
  std::string image_ = png_of(picture(4, 5));
};

int64_t value_of(const NamedTensors& sample) {
  return find_tensor(sample, "image")[0][0][0].item<int64_t>();
}

TEST_F(ImageTar, ASampleIsTheFilesOfOneName) {
  const fs::path path =
      put("a.tar", tar_entry("x/", "", {.type = '5'}) + tar_entry("x/1.cls", "2\n") +
                       tar_entry("x/1.json", "{}") + tar_entry("x/1.jpg", image_) +
                       tar_entry("x/1.seg.png", "other") + tar_entry("x/._1.png", "hidden") +
                       tar_entry("y.z/1.JPEG", jpeg_of(picture(4, 5))) +
                       tar_entry("y.z/1.cls", "0") + tar_end());
  const auto source = open_image_tar({path});
  EXPECT_EQ(source->size(), 2);
  EXPECT_EQ(source->shape(), (ImageShape{3, 4, 5}));
  EXPECT_EQ(source->classes(), (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(source->shard_sizes(), std::vector<int64_t>{2});
  EXPECT_EQ(find_tensor(source->get(0, std::nullopt), "label").item<int64_t>(), 2);
  EXPECT_EQ(find_tensor(source->get(1, std::nullopt), "label").item<int64_t>(), 0);
  const at::Tensor image = find_tensor(source->get(0, std::nullopt), "image");
  const Picture made = picture(4, 5);
  EXPECT_EQ(image[1][2][3].item<int64_t>(), made.at(2, 3, 1));
}

TEST_F(ImageTar, ShardsFollowEachOther) {
  const fs::path b = put_shard("b.tar", 3, 4);
  const fs::path a = put_shard("a.tar", 0, 3);
  put("notes.txt", "");
  for (const auto& source : {open_image_tar({a, b}), open_image_tar({folder_.path()})}) {
    EXPECT_EQ(source->shard_sizes(), (std::vector<int64_t>{3, 4}));
    for (int64_t i = 0; i < 7; ++i) {
      EXPECT_EQ(value_of(source->get(i, std::nullopt)), i);
      EXPECT_EQ(find_tensor(source->get(i, std::nullopt), "label").item<int64_t>(), i % 3);
    }
  }
}

// More shards than stay open, read by several threads.
TEST_F(ImageTar, EveryEpochReadsEverySampleOnce) {
  std::vector<fs::path> paths;
  for (int i = 0; i < 40; ++i) {
    paths.push_back(put_shard(std::to_string(i) + ".tar", 5 * i, 5));
  }
  const auto source = open_image_tar(paths);
  BatchReader reader(*source, {.global_batch = 20, .micro_batch = 10},
                     {.num_workers = 3, .num_ahead = 2, .num_steps = 20});
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::multiset<int64_t> found;
    for (int64_t step = 0; step < 10; ++step) {
      for (int64_t i = 0; i < 2; ++i) {
        const at::Tensor images = reader.read(epoch * 10 + step, i)["image"];
        for (int64_t b = 0; b < 10; ++b) found.insert(images[b][0][0][0].item<int64_t>());
      }
    }
    EXPECT_EQ(found.size(), 200U);
    EXPECT_EQ(std::set<int64_t>(found.begin(), found.end()).size(), 200U);
  }
}

TEST_F(ImageTar, ValidationTakesTheClassesOfTraining) {
  const auto training = open_image_tar({put_shard("train.tar", 0, 3)});
  EXPECT_EQ(open_image_tar({put_shard("valid.tar", 0, 1)}, {}, training.get())->classes(),
            training->classes());
  const std::string found =
      error(tar_entry("1.png", png_of(2, 2, std::vector<uint8_t>(12))) + tar_entry("1.cls", "3"),
            training.get());
  EXPECT_NE(found.find("a.tar at byte 512 has the class 3, and the training data 3 classes"),
            std::string::npos)
      << found;
}

// A wrong number would give the model a million classes.
TEST_F(ImageTar, NumbersWithLargeGapsAreRefused) {
  const auto with_labels = [&](const std::vector<int>& labels) {
    std::string entries;
    for (size_t i = 0; i < labels.size(); ++i) {
      entries += tar_entry(concat(i, ".cls"), std::to_string(labels[i])) +
                 tar_entry(concat(i, ".png"), image_);
    }
    return error(entries);
  };
  EXPECT_EQ(with_labels({0, 999}), "") << "part of ImageNet";
  const std::string found = with_labels({0, 1, 1048575});
  EXPECT_NE(found.find(" has 3 classes, with numbers up to 1048575"), std::string::npos) << found;
  EXPECT_NE(found.find("renumber them"), std::string::npos) << found;
}

TEST_F(ImageTar, WrongSamplesAreRefusedAtTheirByte) {
  const std::string image = tar_entry("1.png", image_), label = tar_entry("1.cls", "0");
  EXPECT_EQ(error(image + label), "");
  EXPECT_NE(error("").find("a.tar has no samples"), std::string::npos);
  EXPECT_NE(error(image).find("a.tar at byte 0: the sample \"1\" has no .cls"), std::string::npos);
  EXPECT_NE(error(label).find("a.tar at byte 0: the sample \"1\" has no .png"), std::string::npos);
  EXPECT_NE(error(label + image + tar_entry("2.cls", "0")).find("the sample \"2\" has no .png"),
            std::string::npos);
  EXPECT_NE(error(label + image + label).find("the sample \"1\" has a second class"),
            std::string::npos);
  EXPECT_NE(
      error(label + image + tar_entry("1.jpg", image_)).find("the sample \"1\" has a second image"),
      std::string::npos);
  EXPECT_NE(error(label + image + tar_entry("2.cls", "0") + tar_entry("2.png", image_) + image)
                .find("the sample \"1\" occurs a second time"),
            std::string::npos);
  for (const char* text : {"", "x", "-1", "1.5", "1048576", "99999999999",
                           "1                                              "}) {
    EXPECT_NE(error(tar_entry("1.cls", text) + image)
                  .find("at byte 0: \"1.cls\" has no class; expected a number from 0"),
              std::string::npos)
        << text;
  }
}

TEST_F(ImageTar, AClassMayBeInJson) {
  const std::string image = tar_entry("1.png", image_);
  for (const char* text : {R"({"cls": 2})", R"({"label": 2, "caption": "x"})"}) {
    const auto source =
        open_image_tar({put("a.tar", tar_entry("1.json", text) + image + tar_end())});
    EXPECT_EQ(find_tensor(source->get(0, std::nullopt), "label").item<int64_t>(), 2) << text;
  }
  EXPECT_EQ(error(tar_entry("1.json", "no JSON") + image + tar_entry("1.cls", "0")), "")
      << "the class is beside it";
  const std::pair<const char*, const char*> wrong[] = {
      {"no JSON", "not valid JSON"},
      {"{}", "has neither \"cls\" nor \"label\""},
      {"[1]", "has neither"},
      {R"({"label": -1})", "\"label\" is -1; expected a number from 0"},
      {R"({"label": 1.5})", "\"label\" is 1.5"},
      {R"({"cls": "cat"})", "\"cls\" is"},
      {R"({"label": 18446744073709551615})", "\"label\" is 18446744073709551615"}};
  for (const auto& [text, words] : wrong) {
    const std::string found = error(tar_entry("1.json", text) + image);
    EXPECT_NE(found.find("a.tar/1.json"), std::string::npos) << found;
    EXPECT_NE(found.find(words), std::string::npos) << found;
  }
  EXPECT_NE(error(tar_entry("1.json", std::string((1 << 20) + 1, ' ')) + image)
                .find("a.tar/1.json has 1048577 bytes; expected at most 1048576"),
            std::string::npos);
  EXPECT_NE(error(tar_entry("1.json", "{}") + tar_entry("1.json", "{}") + image)
                .find("has a second .json"),
            std::string::npos);
}

TEST_F(ImageTar, WrongImagesAreNamedByTheirPlace) {
  const std::string label = tar_entry("1.cls", "0");
  EXPECT_NE(error(label + tar_entry("1.png", "text"))
                .find("a.tar at byte 1536 is neither a PNG nor a JPEG file"),
            std::string::npos);
  EXPECT_NE(error(label + tar_entry("1.png", image_) + tar_entry("2.cls", "0") +
                  tar_entry("2.png", png_of(picture(5, 5))))
                .find(" has 5 x 5 pixels and " + (folder_ / "a.tar").string() +
                      " at byte 1536 4 x 5; state a size"),
            std::string::npos);
}

TEST_F(ImageTar, AShardThatShrinksIsNamed) {
  const fs::path path = put_shard("a.tar", 0, 5);
  const auto source = open_image_tar({path});
  fs::resize_file(path, 3000);
  const std::string error = harness::message_of<ConfigError>([&] { source->get(4, std::nullopt); });
  EXPECT_NE(error.find(path.string()), std::string::npos) << error;
  EXPECT_NE(error.find("must stay as it is during a run"), std::string::npos) << error;
}

TEST_F(ImageTar, MissingShardsAreNamed) {
  const auto error = [](const std::vector<fs::path>& paths) {
    return harness::message_of<ConfigError>([&] { open_image_tar(paths); });
  };
  EXPECT_NE(error({}).find("no tar archive is given"), std::string::npos);
  EXPECT_NE(error({folder_.path()}).find("has no .tar files"), std::string::npos);
  EXPECT_NE(error({folder_ / "x.tar"}).find((folder_ / "x.tar").string()), std::string::npos);
}

}  // namespace
}  // namespace trireme::dataset
