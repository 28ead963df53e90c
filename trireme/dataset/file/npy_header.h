// The header of an array in NumPy's format .npy, versions 1 to 3. Reads no numbers.
// Source: https://numpy.org/neps/nep-0001-npy-format.html and numpy/lib/format.py
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/choice.h"

namespace trireme::dataset::inline internal {

enum class NpyType { kFloat32, kInt32, kInt64 };
// By NumPy's names, which contain the byte order.
inline constexpr Choice<NpyType> kNpyTypes[] = {
    {"<f4", NpyType::kFloat32}, {"<i4", NpyType::kInt32}, {"<i8", NpyType::kInt64}};
inline constexpr size_t item_bytes(NpyType type) { return type == NpyType::kInt64 ? 8 : 4; }

struct NpyHeader {
  std::string type = {};  // in NumPy's words: "<f4"
  bool is_fortran_order = false;
  std::vector<int64_t> shape = {};  // none is negative
  size_t num_bytes = 0;             // of the header: where the numbers begin
};

inline constexpr size_t kMaxNpyHeaderBytes = 4096;  // NumPy's own limit is 10,000

// bytes: the first ones of the array, all that it has up to kMaxNpyHeaderBytes
// Throws: ConfigError that begins with `name` when they are not such a header
NpyHeader parse_npy_header(std::string_view bytes, const std::string& name);

// The header of rows * columns numbers, one row after another, as NumPy writes it.
std::string make_npy_header(NpyType type, int64_t rows, int64_t columns);

}  // namespace trireme::dataset::inline internal
