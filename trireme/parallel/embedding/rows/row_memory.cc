#include "trireme/parallel/embedding/rows/row_memory.h"

#include <algorithm>

#include <sys/mman.h>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "trireme/base/numbers.h"
#include "trireme/base/random/random.h"

namespace trireme::parallel {

at::Tensor empty_rows(at::IntArrayRef sizes, c10::ScalarType dtype) {
  at::Tensor rows = at::empty(sizes, at::TensorOptions(dtype));
  use_large_pages(rows);
  return rows;
}

void use_large_pages(const at::Tensor& rows) {
  // With pages of 4 KiB nearly every row of a large table costs a miss of the TLB.
  constexpr uintptr_t kLargePage = uintptr_t{2} << 20;
  const auto begin = reinterpret_cast<uintptr_t>(rows.mutable_data_ptr());
  const uintptr_t first = round_up(begin, kLargePage);
  const uintptr_t end = (begin + rows.nbytes()) / kLargePage * kLargePage;
  // Only advice: where it fails, rows are as right and a little slower.
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
}

namespace {

constexpr int64_t kElementsPerTask = 1 << 14;
// A block of random words that stays in the first-level cache.
constexpr int64_t kNumbersAtOnce = 256;

// random_uniform() of consecutive indices, in a third of the time.
template <typename Take>
void for_each_uniform(RandomKey key, int64_t first, int64_t count, const Take& take) {
  uint32_t words[4 * kNumbersAtOnce];
  for (int64_t done = 0; done < count; done += kNumbersAtOnce) {
    const int64_t now = std::min(kNumbersAtOnce, count - done);
    fill_random_words(key, static_cast<uint64_t>(first + done),
                      {words, static_cast<size_t>(4 * now)});
    for (int64_t i = 0; i < now; ++i) {
      const uint64_t bits = (uint64_t{words[4 * i]} << 32) | words[4 * i + 1];
      take(done + i, static_cast<double>(bits >> 11) * 0x1.0p-53);
    }
  }
}

}  // namespace

InitialRows::InitialRows(const std::string& table, int64_t width, double scale, uint64_t seed)
    : width_(width), scale_(scale), key_(random_key(seed, table + ".weight")) {}

template <typename scalar>
void InitialRows::write(const mesh::Box& box, int64_t begin, int64_t end, scalar* out) const {
  const int64_t width = box.size[1];
  // Whole rows are one run of numbers.
  const int64_t run = width == width_ ? end - begin : 1;
  for (int64_t row = begin; row < end; row += run) {
    // Numbered in the whole table, so every layout draws the same values.
    const int64_t first = (box.offset[0] + row) * width_ + box.offset[1];
    for_each_uniform(key_, first, run * width, [&](int64_t i, double uniform) {
      out[i] = static_cast<scalar>(scale_ * (2 * uniform - 1));
    });
    out += run * width;
  }
}
template void InitialRows::write(const mesh::Box&, int64_t, int64_t, float*) const;
template void InitialRows::write(const mesh::Box&, int64_t, int64_t, double*) const;

at::Tensor InitialRows::make(const mesh::Box& box, c10::ScalarType dtype) const {
  const at::Tensor rows = empty_rows({box.size[0], box.size[1]}, dtype);
  AT_DISPATCH_FLOATING_TYPES(dtype, "InitialRows::make", [&] {
    auto* const out = rows.mutable_data_ptr<scalar_t>();
    const int64_t rows_per_task =
        std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, box.size[1]));
    at::parallel_for(0, box.size[0], rows_per_task, [&](int64_t begin, int64_t end) {
      write(box, begin, end, out + begin * box.size[1]);
    });
  });
  return rows;
}

OpenValues::OpenValues(uint64_t seed, const std::string& table, double scale)
    : stream_(random_key(seed, table + ".weight").value), scale_(scale) {}

// Each key has a stream of its own, as the key is mixed already.
template <typename scalar>
void OpenValues::write_row(int64_t key, std::span<scalar> row) const {
  // Values depend on the key and not on when or where the row begins, so every layout has the same.
  const RandomKey stream{stream_ ^ static_cast<uint64_t>(key)};
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = static_cast<scalar>(scale_ * (2 * random_uniform(stream, i) - 1));
  }
}

void OpenValues::write(int64_t key, std::span<float> row) const { write_row(key, row); }
void OpenValues::write(int64_t key, std::span<double> row) const { write_row(key, row); }

}  // namespace trireme::parallel
