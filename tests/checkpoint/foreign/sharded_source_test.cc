#include "trireme/checkpoint/foreign/safetensors_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::checkpoint {
namespace {

using harness::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::map<std::string, at::Tensor>& sharded_tensors() {
  static const std::map<std::string, at::Tensor> tensors = {
      {"a", random_tensor("a", {3, 5}, at::kFloat)},
      {"b", random_tensor("b", {7}, at::kBFloat16)},
      {"c", random_tensor("c", {}, at::kLong)}};
  return tensors;
}

// A folder with a and b in one file and c in another.
class ShardedFolder {
 public:
  ShardedFolder() {
    const auto& tensors = sharded_tensors();
    write_safetensors(folder_ / "1.safetensors", {{"a", tensors.at("a")}, {"b", tensors.at("b")}});
    write_safetensors(folder_ / "2.safetensors", {{"c", tensors.at("c")}});
  }

  std::unique_ptr<TensorSource> open(const std::string& weight_map) const {
    overwrite(folder_ / "model.safetensors.index.json",
              R"({"metadata": {"total_size": 82}, "weight_map": )" + weight_map + "}");
    return open_tensors(folder_.path());
  }
  std::string error(const std::string& weight_map) const {
    return checkpoint_error([&] { open(weight_map); });
  }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

constexpr const char* kMap =
    R"({"a": "1.safetensors", "b": "1.safetensors", "c": "2.safetensors"})";

TEST(ShardedSource, ReadsEachTensorFromItsFile) {
  const auto source = ShardedFolder().open(kMap);
  EXPECT_EQ(source->kind(), "a Hugging Face folder");
  ASSERT_EQ(source->tensors().size(), sharded_tensors().size());
  for (const auto& [name, tensor] : sharded_tensors()) {
    EXPECT_EQ(source->tensors().at(name).dtype, tensor.scalar_type());
    EXPECT_EQ(source->tensors().at(name).shape, tensor.sizes().vec());
    harness::assert_same_bits(source->read(name), tensor, name);
  }
  EXPECT_THAT(checkpoint_error([&] { source->read("d"); }),
              AllOf(HasSubstr("index.json"), HasSubstr("no tensor \"d\"")));
}

TEST(ShardedSource, AFileMayBeALinkAsInHuggingFacesCache) {
  const TemporaryFolder cache;
  const ShardedFolder folder;
  std::filesystem::rename(folder.path() / "2.safetensors", cache / "blob");
  std::filesystem::create_symlink(cache / "blob", folder.path() / "2.safetensors");
  harness::assert_same_bits(folder.open(kMap)->read("c"), sharded_tensors().at("c"), "c");
}

TEST(ShardedSource, AnIndexThatDiffersFromTheFilesIsRefused) {
  const ShardedFolder folder;
  EXPECT_THAT(folder.error(R"({"a": "1.safetensors", "c": "2.safetensors"})"),
              HasSubstr("lists the tensor \"b\" in no file, but 1.safetensors holds it"));
  EXPECT_THAT(folder.error(R"({"a": "1.safetensors", "b": "2.safetensors"})"),
              HasSubstr("lists the tensor \"b\" in 2.safetensors, which does not hold it"));
  EXPECT_THAT(folder.error(R"({"a": "1.safetensors", "b": "1.safetensors", "d": "3"})"),
              HasSubstr("/3: No such file"));
  write_safetensors(folder.path() / "2.safetensors",
                    {{"b", sharded_tensors().at("b")}, {"c", sharded_tensors().at("c")}});
  EXPECT_THAT(folder.error(kMap),
              HasSubstr("lists the tensor \"b\" in 1.safetensors, but 2.safetensors holds it"));
}

TEST(ShardedSource, AFileOutsideTheFolderIsRefused) {
  const ShardedFolder folder;
  const std::string path = (folder.path() / "1.safetensors").string();
  for (const std::string& name : {std::string("../1.safetensors"), path, std::string("."),
                                  std::string(".."), std::string(), std::string("a/1.safetensors"),
                                  std::string("1.safetensors\\u0000"), std::string(300, 'a')}) {
    EXPECT_THAT(folder.error("{\"a\": \"" + name + "\"}"),
                AllOf(HasSubstr("weight_map.a is "), HasSubstr("a file of this folder")))
        << name;
  }
}

TEST(ShardedSource, ADamagedIndexIsRefused) {
  const ShardedFolder folder;
  EXPECT_THAT(folder.error("3"), HasSubstr("weight_map is 3; expected an object"));
  EXPECT_THAT(folder.error("{\"a\": 3}"), HasSubstr("weight_map.a is 3; expected a string"));
  EXPECT_THAT(folder.error(R"({"a": "1.safetensors", "a": "2.safetensors"})"),
              HasSubstr("\"a\" twice"));
  EXPECT_THAT(folder.error(std::string(100'000, '[')), HasSubstr("deep"));
  std::string many;
  for (int i = 0; i < 8193; ++i) {
    const std::string name = "x" + std::to_string(i);
    many += (i == 0 ? "{\"" : ",\"") + name + "\": \"" + name + "\"";
  }
  const auto nothing = [](const std::filesystem::path& path) {
    class One : public TensorSource {
     public:
      explicit One(const std::string& name) { tensors_[name]; }
      const std::map<std::string, SourceTensor>& tensors() const override { return tensors_; }
      at::Tensor read(const std::string&) const override { return {}; }
      std::string kind() const override { return ""; }

     private:
      std::map<std::string, SourceTensor> tensors_;
    };
    return std::make_unique<One>(path.filename());
  };
  overwrite(folder.path() / "index", R"({"weight_map": )" + many + "}}");
  EXPECT_THAT(checkpoint_error([&] { ShardedSource(folder.path() / "index", nothing); }),
              HasSubstr("lists more than 8192 files"));
}

}  // namespace
}  // namespace trireme::checkpoint
