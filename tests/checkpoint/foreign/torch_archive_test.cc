#include "trireme/checkpoint/foreign/torch_archive.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/foreign/forged.h"
#include "tests/checkpoint/saved.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"

namespace trireme::checkpoint {
namespace {

using harness::TemporaryFolder;
using ::testing::HasSubstr;

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

// The one tensor of a file of torch.save.
at::Tensor read_archive(const std::string& bytes) {
  const TemporaryFolder folder;
  overwrite(folder / "a.pt", bytes);
  const TorchArchive archive(std::make_shared<const InputFile>(folder / "a.pt"), 0, bytes.size());
  const Pickle pickle = archive.pickle();
  const auto tensor = archive.find_tensor(pickle.root());
  return tensor ? archive.read(*tensor) : at::Tensor();
}

at::Tensor read_tensor(const PickledTensor& tensor) {
  Pickler pickler;
  add_tensor(pickler, tensor);
  return read_archive(archive_of(pickler.finish()));
}

std::string error_of_tensor(const PickledTensor& tensor) {
  const std::string message = checkpoint_error([&] { read_tensor(tensor); });
  EXPECT_EQ(message.find('\n'), std::string::npos);
  return message;
}

TEST(TorchArchive, ViewsOfAStorageAreRead) {
  EXPECT_EQ(read_tensor(PickledTensor{}).sizes(), at::IntArrayRef({2, 3}));
  EXPECT_EQ(read_tensor({.offset = 2, .shape = {2, 2}, .strides = {1, 2}}).nbytes(), 16u);
  EXPECT_EQ(read_tensor({.offset = 6, .shape = {0, 9}, .strides = {9, 1}}).numel(), 0);
  EXPECT_EQ(read_tensor({.offset = 5, .shape = {}, .strides = {}}).dim(), 0);
  EXPECT_EQ(read_tensor({.shape = {1, 6}, .strides = {kLargest, 1}}).numel(), 6);
  EXPECT_EQ(read_tensor({.shape = {7}, .strides = {0}}).numel(), 7);
  EXPECT_FALSE(read_archive(archive_of("\x80\x02N.")).defined());
}

TEST(TorchArchive, ATensorOutsideItsStorageIsRefused) {
  const char* kWithin = "expected a tensor within its storage of 6 elements";
  EXPECT_THAT(error_of_tensor({.offset = 1}), HasSubstr(kWithin));
  EXPECT_THAT(error_of_tensor({.strides = {4, 1}}), HasSubstr(kWithin));
  EXPECT_THAT(error_of_tensor({.shape = {2, 4}}), HasSubstr(kWithin));
  EXPECT_THAT(error_of_tensor({.strides = {kLargest, 1}}), HasSubstr(kWithin));
  EXPECT_THAT(error_of_tensor({.shape = {3, 3}, .strides = {kLargest, 1}}), HasSubstr(kWithin));
  EXPECT_THAT(error_of_tensor({.shape = {2, 2}, .strides = {kLargest, 1}}), HasSubstr(kWithin));
  EXPECT_THAT(error_of_tensor({.shape = {2, 2}, .strides = {kLargest / 2 + 1, kLargest / 2 + 1}}),
              HasSubstr(kWithin));
  EXPECT_THAT(error_of_tensor({.offset = 7, .shape = {0}, .strides = {1}}), HasSubstr("0 to 6"));
  EXPECT_THAT(error_of_tensor({.offset = -1}), HasSubstr("from 0 to 6"));
  EXPECT_THAT(error_of_tensor({.offset = kLargest}), HasSubstr("from 0 to 6"));
  EXPECT_THAT(error_of_tensor({.strides = {-3, 1}}), HasSubstr("the integer -3"));
  EXPECT_THAT(error_of_tensor({.shape = {-2, 3}}), HasSubstr("the integer -2"));
  EXPECT_THAT(error_of_tensor({.shape = {2}}), HasSubstr("as many strides as dimensions"));
  EXPECT_THAT(error_of_tensor({.shape = {1L << 62, 4}, .strides = {0, 0}}),
              HasSubstr("2^63 - 1 bytes"));
  EXPECT_THAT(error_of_tensor({.shape = std::vector<int64_t>(65, 1), .strides = {}}),
              HasSubstr("at most 64 integers"));
}

TEST(TorchArchive, ElementsThatRepeatMayNotExceedTheFile) {
  EXPECT_THAT(error_of_tensor({.shape = {1L << 40}, .strides = {0}}),
              HasSubstr("save it without repeated elements"));
}

TEST(TorchArchive, AStorageThatIsNotInTheArchiveIsRefused) {
  EXPECT_THAT(error_of_tensor({.storage = "1"}), HasSubstr("no entry \"archive/data/1\""));
  EXPECT_THAT(error_of_tensor({.storage = "../../data.pkl"}), HasSubstr("no entry"));
  EXPECT_THAT(error_of_tensor({.storage_size = 7}), HasSubstr("a storage of 24 bytes"));
  EXPECT_THAT(error_of_tensor({.storage_size = kLargest}), HasSubstr("a storage of 24 bytes"));
  EXPECT_THAT(error_of_tensor({.storage_size = -6}), HasSubstr("the integer -6"));
  EXPECT_THAT(error_of_tensor({.type = "DoubleStorage"}), HasSubstr("a storage of 24 bytes"));
  EXPECT_THAT(error_of_tensor({.type = "Size"}),
              HasSubstr("torch.Size; expected a type of storage"));
}

TEST(TorchArchive, AnotherByteOrderOrAnotherArchiveIsRefused) {
  const auto error = [](const std::vector<harness::ZipEntry>& files) {
    return checkpoint_error([&] { read_archive(harness::make_zip(files).bytes); });
  };
  EXPECT_THAT(error({{"a/data.pkl", "\x80\x02N."}, {"a/byteorder", "big"}}),
              HasSubstr("its byte order is \"big\"; expected little"));
  EXPECT_THAT(error({{"a/text", "x"}}), HasSubstr("a zip archive without data.pkl"));
  EXPECT_THAT(error({{"a/b/data.pkl", "x"}}), HasSubstr("without data.pkl"));
  EXPECT_THAT(error({{"data.pkl", "x"}}), HasSubstr("without data.pkl"));
  EXPECT_THAT(error({{"a/data.pkl", "x"}}), HasSubstr("data.pkl: byte 0: not a pickle"));
}

}  // namespace
}  // namespace trireme::checkpoint
