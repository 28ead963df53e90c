// Arrays of NumPy as tests forge them.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/dataset/file/npy.h"

namespace trireme::dataset {

// A file in this version of the format with this text as its header.
inline std::string npy_of(const std::string& text, char version = 1) {
  const auto size = static_cast<uint32_t>(text.size());
  std::string bytes = concat("\x93NUMPY", version, '\0');
  bytes.append(reinterpret_cast<const char*>(&size), version == 1 ? 2 : 4);
  return bytes + text;
}

inline std::string npy_text(const std::string& type, const std::string& shape,
                            const std::string& fortran_order = "False") {
  return concat("{'descr': '", type, "', 'fortran_order': ", fortran_order, ", 'shape': ", shape,
                ", }\n");
}

template <typename Number>
std::string npy_array(NpyType type, int64_t columns, const std::vector<Number>& numbers) {
  std::string bytes(numbers.size() * sizeof(Number), '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return make_npy_header(type, std::ssize(numbers) / columns, columns) + bytes;
}

}  // namespace trireme::dataset
