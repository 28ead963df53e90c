#include "trireme/checkpoint/foreign/dcp_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/foreign/torch_files.h"
#include "tests/checkpoint/saved.h"
#include "tests/harness/file_size_limit.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/checkpoint/foreign/tensor_source.h"

namespace trireme::checkpoint {
namespace {

using harness::TemporaryFolder;
using ::testing::HasSubstr;

std::vector<std::pair<std::string, SourceTensor>> infos_of(
    const std::map<std::string, at::Tensor>& tensors) {
  std::vector<std::pair<std::string, SourceTensor>> infos;
  for (const auto& [name, tensor] : tensors)
    infos.push_back({name, {.dtype = tensor.scalar_type(), .shape = tensor.sizes().vec()}});
  return infos;
}

void write_folder(const std::filesystem::path& folder,
                  const std::map<std::string, at::Tensor>& tensors,
                  uint64_t most_chunk_bytes = kDcpChunkBytes) {
  write_dcp(
      folder, infos_of(tensors),
      [&](const std::string& name, const mesh::Box& part) {
        return view_box(tensors.at(name), part);
      },
      most_chunk_bytes);
}

std::map<std::string, at::Tensor> written_tensors() {
  std::map<std::string, at::Tensor> tensors;
  for (const at::ScalarType dtype :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
        at::kChar, at::kByte, at::kBool, at::kComplexFloat, at::kFloat8_e4m3fn, at::kUInt16}) {
    const std::string name = concat("model.layers.0.", c10::toString(dtype));
    tensors[name] = random_tensor(name, {5, 3}, dtype);
    tensors[name + ".scalar"] = random_tensor(name + ".scalar", {}, dtype);
    tensors[name + ".empty"] = random_tensor(name + ".empty", {0, 4}, dtype);
  }
  tensors["transposed"] = random_tensor("transposed", {4, 6}, at::kFloat).t();
  tensors["ünicode"] = random_tensor("u", {300}, at::kFloat);
  return tensors;
}

// What torch_files.py compares with.
void write_expected(const std::filesystem::path& path,
                    const std::map<std::string, at::Tensor>& tensors) {
  std::map<std::string, at::Tensor> bytes;
  std::map<std::string, std::string> words;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor whole = tensor.contiguous();
    bytes[name] = at::empty({static_cast<int64_t>(whole.nbytes())}, at::kByte);
    if (whole.nbytes() > 0)
      std::memcpy(bytes[name].mutable_data_ptr(), whole.const_data_ptr(), whole.nbytes());
    words[name] =
        concat(find_torch_name(tensor.scalar_type())->name, " ", shown_shape(tensor.sizes()));
  }
  write_safetensors(path.string() + ".expected", bytes, words);
}

// 40 bytes cut most of the tensors into several chunks.
TEST(DcpWriter, PyTorchLoadsTheSameBitsOnOneRankAndOnTwo) {
  for (const uint64_t most_chunk_bytes : {kDcpChunkBytes, uint64_t{40}}) {
    const TemporaryFolder folder;
    write_folder(folder / "dcp", written_tensors(), most_chunk_bytes);
    write_expected(folder / "dcp", written_tensors());
    run_torch("load_dcp " + (folder / "dcp").string() + " " + (folder / "dcp.expected").string());
  }
}

TEST(DcpWriter, WeReadTheSameBits) {
  for (const uint64_t most_chunk_bytes : {kDcpChunkBytes, uint64_t{40}, uint64_t{1}}) {
    const TemporaryFolder folder;
    write_folder(folder / "dcp", written_tensors(), most_chunk_bytes);
    write_expected(folder / "dcp", written_tensors());
    expect_tensors(*open_tensors(folder / "dcp"), folder / "dcp");
  }
  const TemporaryFolder folder;
  write_folder(folder / "none", {});
  EXPECT_TRUE(open_tensors(folder / "none")->tensors().empty());
}

TEST(DcpWriter, NothingIsLeftWhenItFails) {
  const TemporaryFolder folder;
  EXPECT_THAT(harness::message_of([&] {
                write_dcp(folder / "dcp", infos_of(written_tensors()),
                          [](const std::string& name, const mesh::Box&) {
                            if (name == "transposed") throw CheckpointError("no such tensor");
                            return written_tensors().at(name);
                          });
              }),
              HasSubstr("no such tensor"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  overwrite(folder / "file", "x");
  EXPECT_THAT(harness::message_of<ConfigError>([&] { write_folder(folder / "file", {}); }),
              HasSubstr("is a file"));
  std::filesystem::remove(folder / "file");
  EXPECT_THAT(checkpoint_error([&] {
                write_folder(folder / "dcp", {{"a\nb", at::Tensor(at::ones(1))}});
              }),
              HasSubstr("cannot be written"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(DcpWriter, ANameThatIsThereTwiceIsRefused) {
  const TemporaryFolder folder;
  const SourceTensor one{.shape = {1}};
  EXPECT_THAT(checkpoint_error([&] {
                write_dcp(folder / "dcp", {{"a", one}, {"a", one}},
                          [](const std::string&, const mesh::Box&) { return at::ones(1); });
              }),
              HasSubstr("the name \"a\" is taken"));
}

// libtorch's writer of archives must not see the exception.
TEST(DcpWriter, AFullDiskIsAnError) {
  const TemporaryFolder folder;
  std::string message;
  {
    const harness::FileSizeLimit limit(3000);
    message = harness::message_of([&] { write_folder(folder / "dcp", written_tensors()); });
  }
  EXPECT_THAT(message, HasSubstr("cannot write"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace trireme::checkpoint
