// What the tests of this room share: files that PyTorch writes.
#pragma once

#include <cstdlib>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/checkpoint/foreign/torch_archive.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/tensor_boxes.h"

namespace trireme::checkpoint {

// Runs torch_files.py, which fails when Python's torch or safetensors is not there.
inline void run_torch(const std::string& arguments) {
  const std::string command =
      "'" TRIREME_TEST_PYTHON "' -W ignore '" TRIREME_TORCH_FILES "' " + arguments + " 2>&1";
  if (std::system(command.c_str()) != 0) throw Error(command + " failed");
}

// Reads the tensor again, a few elements at a time, and one box that lies within.
inline void expect_parts(const TensorSource& source, const std::string& name,
                         const at::Tensor& whole) {
  const auto expect = [&](const mesh::Box& box) {
    const at::Tensor part = source.read_box(name, box);
    ASSERT_EQ(part.sizes().vec(), box.size) << name;
    EXPECT_TRUE(part.is_contiguous()) << name;
    const at::Tensor expected = view_box(whole, box).contiguous();
    ASSERT_EQ(part.nbytes(), expected.nbytes()) << name;
    if (part.nbytes() > 0) {
      EXPECT_EQ(std::memcmp(part.const_data_ptr(), expected.const_data_ptr(), part.nbytes()), 0)
          << name;
    }
  };
  const TensorParts parts(whole.sizes().vec(), whole.element_size(), 7 * whole.element_size());
  for (int64_t i = 0; i < parts.size(); ++i) expect(parts.at(i));
  mesh::Box inside{std::vector<int64_t>(whole.dim(), 0), whole.sizes().vec()};
  for (size_t d = 0; d < inside.size.size(); ++d) {
    inside.offset[d] = inside.size[d] / 3;
    inside.size[d] -= inside.size[d] / 2;
  }
  expect(inside);
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
    expect_parts(source, info.name, tensor);
  }
}

}  // namespace trireme::checkpoint
