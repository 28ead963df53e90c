#include "trireme/parallel/embedding/rows/initial_rows.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "trireme/base/random/random_words.h"
#include "trireme/parallel/embedding/rows/row_memory.h"

namespace trireme::parallel::inline internal {
namespace {

constexpr int64_t kElementsPerTask = 1 << 14;
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

}  // namespace trireme::parallel::inline internal
