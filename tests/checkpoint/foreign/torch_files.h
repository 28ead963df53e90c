// What the tests of this room share: files that PyTorch writes.
#pragma once

#include <cstdlib>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/checkpoint/exact_cover.h"
#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/checkpoint/foreign/torch_names.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::checkpoint {

// Runs torch_files.py, which fails when Python's torch or safetensors is not there.
inline void run_torch(const std::string& arguments) {
  const std::string command =
      "'" TRIREME_TEST_PYTHON "' -W ignore '" TRIREME_TORCH_FILES "' " + arguments + " 2>&1";
  if (std::system(command.c_str()) != 0) throw Error(command + " failed");
}

// Compares a source with what torch_files.py has written beside it.
inline void expect_tensors(const TensorSource& source, const std::filesystem::path& path) {
  const SafetensorsReader expected(path.string() + ".expected");
  EXPECT_EQ(source.tensors().size(), expected.tensors().size());
  for (const TensorInfo& info : expected.tensors()) {
    ASSERT_TRUE(source.tensors().contains(info.name)) << info.name;
    const SourceTensor& found = source.tensors().at(info.name);
    EXPECT_EQ(concat(find_torch_name(found.dtype)->name, " ", shown_shape(found.shape)),
              expected.metadata().at(info.name));
    const at::Tensor tensor = source.read(info.name);
    EXPECT_EQ(tensor.scalar_type(), found.dtype) << info.name;
    EXPECT_EQ(tensor.sizes().vec(), found.shape) << info.name;
    EXPECT_TRUE(tensor.is_contiguous()) << info.name;
    const auto bytes = expected.bytes(info.name);
    ASSERT_EQ(tensor.nbytes(), bytes.size()) << info.name;
    if (!bytes.empty()) {
      EXPECT_EQ(std::memcmp(tensor.const_data_ptr(), bytes.data(), bytes.size()), 0) << info.name;
    }
  }
}

}  // namespace trireme::checkpoint
