#include "trireme/checkpoint/foreign/dcp_source.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/foreign/forged.h"
#include "tests/checkpoint/foreign/torch_files.h"
#include "tests/checkpoint/saved.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"

namespace trireme::checkpoint {
namespace {

using harness::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr const char* kModule = "torch.distributed.checkpoint.metadata";

TEST(DcpSource, ReadsWhatPyTorchSavesFromTwoRanks) {
  const TemporaryFolder folder;
  run_torch("dcp " + folder.path().string());
  const auto source = open_tensors(folder / "checkpoint");
  EXPECT_EQ(source->kind(), "a distributed checkpoint of PyTorch");
  expect_tensors(*source, folder / "checkpoint");
  EXPECT_THAT(checkpoint_error([&] { source->read("none"); }), HasSubstr("no tensor \"none\""));
}

struct Chunk {
  std::vector<int64_t> offset{};
  std::vector<int64_t> size{};
};

struct Place {
  std::vector<int64_t> offset{};  // of the chunk
  std::string file = "__0_0.distcp";
  int64_t begin = 0;
  int64_t size = 0;
};

// A checkpoint of one tensor "w" of float32, as tests forge it.
struct Forged {
  std::vector<int64_t> shape{4, 3};
  std::vector<Chunk> chunks{{{0, 0}, {2, 3}}, {{2, 0}, {2, 3}}};
  std::vector<Place> places{};
};

void add_size(Pickler& pickler, const std::vector<int64_t>& values) {
  pickler.global("torch", "Size").mark().integers(values).tuple().call();
}

std::string metadata_of(const Forged& forged) {
  Pickler pickler;
  const auto object = [&](const char* module, const char* name) -> Pickler& {
    return pickler.global(module, name).empty_tuple().new_object();
  };
  object(kModule, "Metadata").empty_dict().mark().text("state_dict_metadata").empty_dict().mark();
  pickler.text("w");
  object(kModule, "TensorStorageMetadata").empty_dict().mark().text("properties");
  object(kModule, "TensorProperties").mark().global("torch", "float32");
  pickler.none().boolean(false).none().boolean(false).tuple().set_state();
  add_size(pickler.text("size"), forged.shape);
  pickler.text("chunks").empty_list();
  for (const Chunk& chunk : forged.chunks) {
    object(kModule, "ChunkStorageMetadata").empty_dict().mark();
    add_size(pickler.text("offsets"), chunk.offset);
    add_size(pickler.text("sizes"), chunk.size);
    pickler.set_items().set_state().append();
  }
  pickler.set_items().set_state().set_items().text("storage_data").empty_dict().mark();
  for (const Place& place : forged.places) {
    object(kModule, "MetadataIndex").empty_dict().mark().text("fqn").text("w");
    add_size(pickler.text("offset"), place.offset);
    pickler.text("index").none().set_items().set_state();
    object("torch.distributed.checkpoint.filesystem", "_StorageInfo").empty_dict().mark();
    pickler.text("relative_path").text(place.file).text("offset").integer(place.begin);
    pickler.text("length").integer(place.size).set_items().set_state();
  }
  return pickler.set_items().set_items().set_state().finish();
}

// A folder with a forged checkpoint whose chunks are the halves of a tensor.
class Folder {
 public:
  Folder() {
    Pickler pickler;
    add_tensor(pickler, {});
    part_ = archive_of(pickler.finish());
    overwrite(folder_ / "__0_0.distcp", part_ + part_);
    const auto size = static_cast<int64_t>(part_.size());
    valid_.places = {{.offset = {0, 0}, .size = size},
                     {.offset = {2, 0}, .begin = size, .size = size}};
  }
  const Forged& valid() const { return valid_; }
  int64_t part_bytes() const { return static_cast<int64_t>(part_.size()); }
  const std::filesystem::path& path() const { return folder_.path(); }

  std::unique_ptr<TensorSource> open(const Forged& forged) const {
    overwrite(folder_ / ".metadata", metadata_of(forged));
    return open_tensors(folder_.path());
  }
  template <typename Change>
  std::string error_after(Change change) const {
    Forged forged = valid_;
    change(forged);
    const std::string message = checkpoint_error([&] { open(forged)->read("w"); });
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message;
  }

 private:
  TemporaryFolder folder_;
  std::string part_;
  Forged valid_;
};

TEST(DcpSource, AForgedCheckpointReadsBeforeItIsDamaged) {
  const Folder folder;
  EXPECT_EQ(folder.open(folder.valid())->read("w").sizes(), at::IntArrayRef({4, 3}));
}

TEST(DcpSource, ChunksThatOverlapMissOrReachOutAreRefused) {
  const Folder folder;
  EXPECT_THAT(folder.error_after([](Forged& bad) { bad.chunks.pop_back(); }),
              HasSubstr("tensor \"w\": element [2, 0] lies in 0 pieces"));
  EXPECT_THAT(folder.error_after([](Forged& bad) { bad.chunks[1] = bad.chunks[0]; }),
              HasSubstr("lies in 2 pieces"));
  EXPECT_THAT(folder.error_after([](Forged& bad) {
    bad.chunks[1].offset = bad.places[1].offset = {1, 0};
  }),
              HasSubstr("element [1, 0] lies in 2 pieces"));
  EXPECT_THAT(folder.error_after([](Forged& bad) {
    bad.chunks[1].size = {3, 3};
  }),
              HasSubstr("reaches outside the shape"));
  EXPECT_THAT(folder.error_after([](Forged& bad) {
    bad.chunks[1].size = {kMost, 3};
  }),
              HasSubstr("a chunk of at most the"));
  EXPECT_THAT(folder.error_after([](Forged& bad) {
    bad.chunks[1].offset = bad.places[1].offset = {kMost, 0};
  }),
              HasSubstr("reaches outside the shape"));
  EXPECT_THAT(folder.error_after([](Forged& bad) { bad.chunks[1].size = {2}; }),
              HasSubstr("reaches outside the shape"));
  EXPECT_THAT(folder.error_after([](Forged& bad) { bad.chunks.push_back(bad.chunks[0]); }),
              HasSubstr("as many chunks of \"w\" as places"));
  EXPECT_THAT(folder.error_after([](Forged& bad) {
    bad.shape = {kMost, kMost};
  }),
              HasSubstr("2^63 - 1 bytes"));
  EXPECT_THAT(folder.error_after([](Forged& bad) {
    bad.chunks[0].offset = {-1, 0};
  }),
              HasSubstr("the integer -1"));
  EXPECT_THAT(folder.error_after([](Forged& bad) { bad.places.pop_back(); }),
              HasSubstr("with a place, not one at [2, 0]"));
  EXPECT_THAT(folder.error_after([](Forged& bad) { bad.places.push_back(bad.places[0]); }),
              HasSubstr("one place for the chunk of \"w\" at [0, 0]"));
}

TEST(DcpSource, PlacesOutsideTheFileOrTwiceAreRefused) {
  const Folder folder;
  const int64_t size = folder.part_bytes();
  for (const auto& [begin, length] : {std::pair<int64_t, int64_t>(2 * size, 1),
                                      {size, size + 1},
                                      {-1, size},
                                      {kMost, kMost},
                                      {size, kMost},
                                      {size, -1}}) {
    EXPECT_THAT(folder.error_after([&](Forged& bad) {
      bad.places[1].begin = begin;
      bad.places[1].size = length;
    }),
                HasSubstr("expected an integer from 0 to"))
        << begin << " " << length;
  }
  EXPECT_THAT(folder.error_after([](Forged& bad) { bad.places[1].begin = 0; }),
              HasSubstr("two chunks overlap at byte 0"));
  EXPECT_THAT(folder.error_after([](Forged& bad) { bad.places[1].begin -= 1; }),
              HasSubstr("two chunks overlap"));
  // Nothing is allocated for a tensor that its file has no room for.
  EXPECT_THAT(folder.error_after([](Forged& bad) {
    bad.shape = {1L << 40, 3};
    bad.chunks = {{{0, 0}, {1L << 40, 3}}};
  }),
              HasSubstr("a chunk of at most the"));
  EXPECT_THAT(folder.error_after([&](Forged& bad) { bad.places[1].size -= 1; }),
              HasSubstr("truncated or damaged"));
}

TEST(DcpSource, FilesOutsideTheFolderAreRefused) {
  const Folder folder;
  const TemporaryFolder elsewhere;
  std::filesystem::copy(folder.path() / "__0_0.distcp", elsewhere / "a");
  std::filesystem::create_symlink(elsewhere / "a", folder.path() / "link");
  std::filesystem::create_symlink("__0_0.distcp", folder.path() / "inside");
  std::filesystem::create_directory(folder.path() / "folder");
  const auto error = [&](const std::string& name) {
    return folder.error_after([&](Forged& bad) { bad.places[1].file = name; });
  };
  for (const std::string name :
       {"../a", "/etc/passwd", "", ".", "..", "folder/a", ".metadata", "a\nb"}) {
    EXPECT_THAT(error(name), HasSubstr("expected a file of this folder")) << name;
  }
  EXPECT_THAT(error("link"), HasSubstr("a link that leads out of its folder"));
  EXPECT_EQ(error("inside"), "");
  EXPECT_THAT(error("folder"), HasSubstr("not a regular file"));
  EXPECT_THAT(error("none"), HasSubstr("No such file"));
}

TEST(DcpSource, AChunkOfAnotherTensorIsRefused) {
  const Folder folder;
  EXPECT_THAT(folder.error_after([](Forged& bad) {
    bad.shape = {3, 3};
    bad.chunks[1].size = {1, 3};
  }),
              AllOf(HasSubstr("is Float [2, 3]; expected Float [1, 3]"), HasSubstr("__0_0")));
}

TEST(DcpSource, CodeInTheMetadataIsRefused) {
  const TemporaryFolder folder;
  overwrite(folder / ".metadata",
            "\x80\x02"
            "cposix\nsystem\nX\x02" +
                std::string(3, '\0') + "ls\x85R.");
  EXPECT_THAT(checkpoint_error([&] { open_tensors(folder.path()); }),
              HasSubstr("refers to posix.system"));
  overwrite(folder / ".metadata", "\x80\x02}.");
  EXPECT_THAT(checkpoint_error([&] { open_tensors(folder.path()); }),
              HasSubstr("a dict; expected torch.distributed.checkpoint.metadata.Metadata"));
}

}  // namespace
}  // namespace trireme::checkpoint
