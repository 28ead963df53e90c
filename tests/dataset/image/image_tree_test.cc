#include "trireme/dataset/image/image_tree.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/dataset/image/encoded.h"
#include "tests/dataset/image/tar.h"
#include "tests/dataset/memory_store.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/image/image_folder.h"
#include "trireme/dataset/image/image_tar.h"

namespace trireme::dataset {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A folder, "x/", in a bucket and on a disk.
class ImageTreeTest : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& content) {
    store_->put("x/" + name, content);
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    OutputFile(path).write(content);
  }
  std::shared_ptr<const ImageTree> stored() const { return store_tree("s3://bucket/x/", store_); }
  std::shared_ptr<const ImageTree> local() const { return local_tree(folder_.path().string()); }
  // A web server, whose objects are those of the bucket by other URLs.
  class Web : public FileStore {
   public:
    explicit Web(std::shared_ptr<const MemoryStore> store) : store_(std::move(store)) {}
    std::unique_ptr<ByteSource> find(const std::string& name) const override {
      return store_->find("s3://bucket/" + name.substr(std::string("https://web/").size()));
    }
    std::unique_ptr<ByteSource> open(const std::string& name) const override { return find(name); }
    std::vector<std::unique_ptr<ByteSource>> list(const std::string& prefix) const override {
      throw ConfigError("cannot list " + prefix);
    }

   private:
    std::shared_ptr<const MemoryStore> store_;
  };
  std::shared_ptr<const ImageTree> web() const {
    return store_tree("https://web/x", std::make_shared<Web>(store_));
  }
  static void expect_same(const ImageSource& one, const ImageSource& other) {
    ASSERT_EQ(one.size(), other.size());
    EXPECT_EQ(one.classes(), other.classes());
    EXPECT_EQ(one.num_left_out(), other.num_left_out());
    EXPECT_EQ(one.shard_sizes(), other.shard_sizes());
    for (int64_t i = 0; i < one.size(); ++i) {
      const NamedTensors a = one.get(i, std::nullopt), b = other.get(i, std::nullopt);
      for (const char* name : {"image", "label"})
        harness::assert_same_bits(find_tensor(a, name), find_tensor(b, name), concat(name, i));
    }
  }
  static std::vector<std::string> names_of(const ImageTree& tree, const std::string& folder) {
    std::vector<std::string> names;
    for (const TreeItem& item : tree.items(folder))
      names.push_back(item.name + (item.is_folder ? "/" : ""));
    return names;
  }
  std::string shard(int first, int count, bool has_json = false) const {
    std::string entries;
    for (int i = first; i < first + count; ++i) {
      const std::string key = std::to_string(i), label = std::to_string(i % 3);
      entries += has_json ? tar_entry(key + ".json",
                                      concat("{\"caption\": \"x\", \"label\": ", label, "}"))
                          : tar_entry(key + ".cls", label);
      entries +=
          tar_entry(key + ".png", png_of(2, 2, std::vector<uint8_t>(12, static_cast<uint8_t>(i))));
    }
    return entries + tar_end();
  }

  harness::TemporaryFolder folder_;
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
};

TEST_F(ImageTreeTest, ABucketHasTheItemsOfADisk) {
  for (const char* name : {"a/1", "a.b/1", "a.b/c/2", "a-b", "b", "train/x/1.png"}) put(name, "1");
  store_->put("x/", "");
  store_->put("x/a/", "");
  store_->put("y/other", "1");
  for (const auto& tree : {local(), stored()}) {
    EXPECT_THAT(names_of(*tree, ""), ElementsAre("a/", "a-b", "a.b/", "b", "train/"));
    EXPECT_THAT(names_of(*tree, "a.b"), ElementsAre("1", "c/"));
    EXPECT_TRUE(tree->has_folder("train/x"));
    EXPECT_FALSE(tree->has_folder("tra"));
    EXPECT_FALSE(tree->has_folder("b"));
    EXPECT_TRUE(tree->has_file("a.b/c/2"));
    EXPECT_FALSE(tree->has_file("c"));
  }
  EXPECT_EQ(stored()->path_of("a/1"), "s3://bucket/x/a/1");
  EXPECT_THAT(harness::message_of<ConfigError>([&] { store_tree("s3://bucket/a.tar", store_); }),
              HasSubstr("is an archive"));
}

TEST_F(ImageTreeTest, FoldersOfImagesInABucketAreThoseOfADisk) {
  for (int i = 0; i < 12; ++i) {
    const std::vector<uint8_t> values(12, static_cast<uint8_t>(i));
    put(concat(i % 2 == 0 ? "a.b/" : "a/", i, ".png"), png_of(2, 2, values));
  }
  put("a/notes.txt", "x");
  put(".hidden", "x");
  const HeldOut held_out{.share = 0.4, .is_wanted = true};
  const auto bucket = open_image_folder(*stored(), "", {}, nullptr, held_out);
  expect_same(*bucket, *open_image_folder(*local(), "", {}, nullptr, held_out));
  expect_same(*open_image_folder(*stored(), ""), *open_image_folder(folder_.path()));
  EXPECT_EQ(bucket->num_left_out(), 2);
  put("a/5.png", "no image");
  const auto changed = open_image_folder(*stored(), "");
  const std::string message = harness::message_of<ConfigError>([&] {
    for (int64_t i = 0; i < changed->size(); ++i) changed->get(i, std::nullopt);
  });
  EXPECT_THAT(message, HasSubstr("s3://bucket/x/a/5.png"));
}

TEST_F(ImageTreeTest, ShardsInStoresAreThoseOfADisk) {
  put("train/0.tar", shard(0, 4));
  put("train/1.tar", shard(4, 5, /*has_json=*/true));
  put("train/readme.txt", "x");
  const auto disk = open_image_tar(*local(), "train");
  expect_same(*open_image_tar(*stored(), "train"), *disk);
  EXPECT_EQ(find_tensor(disk->get(8, std::nullopt), "label").item<int64_t>(), 2);
  store_->put("x/train/shards.txt", "1.tar\r\n\n0.tar\n");
  expect_same(*open_image_tar(*web(), "train"), *disk);
  EXPECT_TRUE(web()->has_folder("train"));
  EXPECT_FALSE(web()->has_folder("validation"));
}

TEST_F(ImageTreeTest, ASampleOfAShardIsOneRequestOfTheObjectThatWasOpened) {
  put("train/0.tar", shard(0, 4));
  const auto source = open_image_tar(*stored(), "train");
  const int before = store_->num_reads;
  source->get(2, std::nullopt);
  EXPECT_EQ(store_->num_reads, before + 1);
  store_->put("x/train/0.tar", shard(1, 4), "\"2\"");
  EXPECT_THAT(harness::message_of<ConfigError>([&] { source->get(2, std::nullopt); }),
              HasSubstr("s3://bucket/x/train/0.tar has changed"));
  store_->last_read = store_->num_reads.load();
  EXPECT_THROW(source->get(2, std::nullopt), CommError) << "no answer is no fault of the data";
}

TEST_F(ImageTreeTest, WrongListsOfShardsAreRefusedAtTheirLine) {
  put("train/0.tar", shard(0, 4));
  const auto refusal = [&](const std::string& list) {
    store_->put("x/train/shards.txt", list);
    return harness::message_of<ConfigError>([&] { open_image_tar(*web(), "train"); });
  };
  for (const char* name :
       {"../0.tar", "a/0.tar", "0.tar.gz", ".tar", "0 .tar", "0.tar?x", "\x1b[2J.tar", "%2e.tar"}) {
    const std::string message = refusal(concat("0.tar\n", name, "\n"));
    EXPECT_THAT(message, HasSubstr("train/shards.txt:2 has \"")) << name;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  EXPECT_THAT(refusal("0.tar\n1.tar\n"), HasSubstr(":2 has \"1.tar\", which does not exist"));
  EXPECT_THAT(refusal("0.tar\n0.tar\n"), HasSubstr("a second time"));
  EXPECT_THAT(refusal("\n"), HasSubstr("has no .tar files"));
  EXPECT_THAT(refusal(std::string(size_t{17} << 20, '\n')), HasSubstr("shards.txt"));
  store_->remove("x/train/shards.txt");
  EXPECT_THAT(harness::message_of<ConfigError>([&] { open_image_tar(*web(), "train"); }),
              HasSubstr("has no shards.txt"));
}

TEST_F(ImageTreeTest, ATruncatedShardNamesTheEntry) {
  const std::string whole = shard(0, 4);
  put("train/0.tar", whole.substr(0, whole.rfind("\x89PNG") + 20));
  EXPECT_THAT(harness::message_of<ConfigError>([&] { open_image_tar(*stored(), "train"); }),
              testing::AllOf(HasSubstr("s3://bucket/x/train/0.tar at byte"), HasSubstr("\"3.png\""),
                             HasSubstr("ends within it")));
}

}  // namespace
}  // namespace trireme::dataset
