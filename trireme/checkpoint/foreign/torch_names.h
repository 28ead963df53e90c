// The names by which pickles of PyTorch refer to dtypes and storages.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

namespace trireme::checkpoint::inline internal {

struct TorchName {
  at::ScalarType dtype;
  std::string_view name;     // "torch.float32"
  std::string_view storage;  // "torch.FloatStorage"; empty: has none of its own
};

// nullptr for other dtypes and names. `name` is a dtype's or a storage's.
const TorchName* find_torch_name(at::ScalarType dtype);
const TorchName* find_torch_name(std::string_view name);

// All of these names and `more`.
std::vector<std::string_view> torch_names(std::initializer_list<std::string_view> more);

}  // namespace trireme::checkpoint::inline internal
