#include "trireme/parallel/embedding/disk/stored_images.h"

#include <numeric>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::parallel::inline internal {

StoredImages::StoredImages(std::shared_ptr<DiskRows> rows, int64_t begin, const at::Tensor& row,
                           std::shared_ptr<const std::vector<int64_t>> numbers)
    : rows_(std::move(rows)),
      part_{begin, static_cast<int64_t>(row.nbytes())},
      row_(at::empty_like(row)),
      numbers_(std::move(numbers)) {}

at::Tensor StoredImages::read(int64_t begin, int64_t end) {
  if (numbers_) {
    return read_numbers(
        std::span(*numbers_).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
  }
  std::vector<int64_t> rows(static_cast<size_t>(end - begin));
  std::iota(rows.begin(), rows.end(), begin);
  return read_numbers(rows);
}

at::Tensor StoredImages::read(std::span<const int64_t> rows) {
  if (!numbers_) return read_numbers(rows);
  std::vector<int64_t> numbers;
  for (const int64_t row : rows) numbers.push_back(numbers_->at(static_cast<size_t>(row)));
  return read_numbers(numbers);
}

at::Tensor StoredImages::read_numbers(std::span<const int64_t> numbers) {
  std::vector<int64_t> sizes{std::ssize(numbers)};
  sizes.insert(sizes.end(), row_.sizes().begin(), row_.sizes().end());
  const at::Tensor values = at::empty(sizes, row_.options());
  rows_->read(numbers, part_, static_cast<std::byte*>(values.mutable_data_ptr()));
  return values;
}

void StoredImages::write(int64_t begin, const at::Tensor& values) {
  TRIREME_ASSERT(!numbers_, "rows in another order are written");
  rows_->write(begin, part_,
               {static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
}

}  // namespace trireme::parallel::inline internal
