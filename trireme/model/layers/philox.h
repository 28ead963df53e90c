// Random numbers for the rows of a step's global batch, the same in every layout and on every
// device.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include "trireme/base/random/random.h"

namespace trireme::model {

// The source of one forward's random numbers.
struct RandomDraw {
  uint64_t seed = 0;
  int64_t step = 0;
  // [S] int64: for each row its number in the step's global batch,
  // sequence * sequence_length + position.
  at::Tensor rows_S;
  // The same of all ranks of the tensor axis, where this rank's layers hold some of them.
  // Undefined: they hold all.
  at::Tensor whole_rows_S{};
};

// Calls use(row, words) with the `width` random words of each row, several rows at a time. The row
// with number n has those of indices n * ceil(width / 4) onwards. For rows on the CPU.
template <typename Use>
void for_each_row(RandomKey key, const at::Tensor& rows_S, int64_t width, const Use& use) {
  constexpr int64_t kRowsPerTask = 16;
  const auto* numbers = rows_S.const_data_ptr<int64_t>();
  const int64_t blocks = (width + 3) / 4;
  at::parallel_for(0, rows_S.numel(), kRowsPerTask, [&](int64_t begin, int64_t end) {
    std::vector<uint32_t> words(static_cast<size_t>(width));
    for (int64_t row = begin; row < end; ++row) {
      fill_random_words(key, static_cast<uint64_t>(numbers[row] * blocks), words);
      use(row, words.data());
    }
  });
}

// The same words by tensor operators, in int64, on the rows' device.
// Shapes: rows_S [S] -> [S, width] int64
at::Tensor words_of_rows(RandomKey key, const at::Tensor& rows_S, int64_t width);

// Numbers from [0, 1), multiples of 2^-24, from the same words.
// Shapes: rows_S [S] -> [S, width] on the rows' device
at::Tensor uniform_rows(RandomKey key, const at::Tensor& rows_S, int64_t width,
                        at::ScalarType dtype);

// random_bits() of each index, on the indices' device: word k of an index is at [..., k].
// Shapes: indices [...] int64 -> [..., 4] int64, each from 0 to 2^32 - 1
// Source: Salmon et al. 2011, doi:10.1145/2063384.2063405, Philox4x32-10
at::Tensor random_words(RandomKey key, const at::Tensor& indices);

}  // namespace trireme::model
