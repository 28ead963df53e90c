#include "trireme/checkpoint/chunk/patch.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme::checkpoint::inline internal {
namespace {

// 16 KiB of row numbers: as small as a chunk may be without many of them for a patch.
constexpr int64_t kRowsPerChunk = 2048;

}  // namespace

int64_t Patch::num_rows() const {
  uint64_t num_bytes = 0;
  for (const Chunk& chunk : rows) num_bytes += chunk.num_bytes;
  return static_cast<int64_t>(num_bytes / kRowNumberBytes);
}

uint64_t row_bytes_of(const mesh::Box& box, size_t bytes_per_element) {
  if (box.size.empty()) return 0;
  uint64_t num_bytes = bytes_per_element;
  for (size_t d = 1; d < box.size.size(); ++d) num_bytes *= static_cast<uint64_t>(box.size[d]);
  return num_bytes;
}

int64_t rows_per_chunk(uint64_t row_bytes) {
  return std::clamp<int64_t>(static_cast<int64_t>(kChunkBytes / std::max<uint64_t>(row_bytes, 1)),
                             1, kRowsPerChunk);
}

std::string patch_error(const Patch& patch, uint64_t row_bytes, int64_t rows_left) {
  if (row_bytes == 0 || row_bytes > kChunkBytes)
    return concat("has rows of ", row_bytes, " bytes, expected 1 to ", kChunkBytes);
  if (patch.rows.empty() || patch.rows.size() != patch.values.size())
    return concat("has ", patch.rows.size(), " chunks of rows and ", patch.values.size(),
                  " of values, expected one or more of each, as many of both");
  for (size_t i = 0; i < patch.rows.size(); ++i) {
    const uint64_t num_bytes = patch.rows[i].num_bytes, count = num_bytes / kRowNumberBytes;
    if (num_bytes % kRowNumberBytes != 0)
      return concat("has a chunk of rows of ", num_bytes, " bytes, expected 8 for each row");
    if (patch.values[i].num_bytes != count * row_bytes)
      return concat("has ", patch.values[i].num_bytes, " bytes of values for ", count,
                    " rows, expected ", row_bytes, " for each");
  }
  if (patch.num_rows() > rows_left)
    return concat("has ", patch.num_rows(), " rows where at most ", rows_left, " can be");
  return "";
}

std::string take_rows(std::span<const std::byte> bytes, const mesh::Box& box,
                      std::vector<int64_t>& rows) {
  const int64_t begin = box.offset.at(0), end = begin + box.size.at(0);
  for (size_t at = 0; at + kRowNumberBytes <= bytes.size(); at += kRowNumberBytes) {
    int64_t row = 0;
    std::memcpy(&row, bytes.data() + at, kRowNumberBytes);
    if (row < begin || row >= end)
      return concat("row ", row, " is outside the rows ", begin, " to ", end - 1, " of its piece");
    if (!rows.empty() && row <= rows.back())
      return concat("row ", row, " comes after row ", rows.back(), ", expected ascending rows");
    rows.push_back(row);
  }
  return "";
}

}  // namespace trireme::checkpoint::inline internal
