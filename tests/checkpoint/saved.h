// What the tests of this layer share: global tensors of random bits, and their parts as entries.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/random/random.h"
#include "trireme/checkpoint/checkpoint.h"

namespace trireme::checkpoint {

// Every bit random (NaNs of all kinds included), the same for the same name and seed.
inline at::Tensor random_tensor(const std::string& name, const std::vector<int64_t>& shape,
                                at::ScalarType dtype, uint64_t seed = 0) {
  at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(dtype));
  auto* bytes = static_cast<uint8_t*>(tensor.mutable_data_ptr());
  const RandomKey key = random_key(seed, name);
  for (size_t i = 0; i < tensor.nbytes(); ++i) {
    bytes[i] = static_cast<uint8_t>(random_bits(key, i)[0]);
    if (dtype == at::kBool) bytes[i] &= 1;
  }
  return tensor;
}

// The part of `global` that rank `world_rank` holds under `layout`.
inline Entry part_of(const std::string& name, const at::Tensor& global, const mesh::Layout& layout,
                     int world_rank) {
  const mesh::Box box = layout.local_box(world_rank % layout.num_ranks());
  at::Tensor local = global;
  for (size_t d = 0; d < box.size.size(); ++d)
    local = local.narrow(static_cast<int64_t>(d), box.offset[d], box.size[d]);
  return {name, local.clone(), layout};
}

// The message of the CheckpointError that `action` throws; "" when it throws none.
template <typename Action>
std::string checkpoint_error(Action action) {
  try {
    action();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

inline void overwrite(const std::filesystem::path& path, const std::string& content) {
  OutputFile file(path);
  file.write(content);
  file.close();
}

inline std::string with_flipped_bit(std::string content, size_t bit) {
  content[bit / 8] = static_cast<char>(content[bit / 8] ^ (1 << (bit % 8)));
  return content;
}

}  // namespace trireme::checkpoint
