// One of the tensors of a table on a disk, for checkpoints: some bytes of every row's image.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/embedding/disk/disk_rows.h"
#include "trireme/parallel/embedding/rows/stored_rows.h"

namespace trireme::parallel::inline internal {

class StoredImages : public StoredRows {
 public:
  // begin:   of the tensor's part in an image
  // row:     the shape and dtype of one row
  // numbers: on the disk, of the rows of the tensor; null: their own
  StoredImages(std::shared_ptr<DiskRows> rows, int64_t begin, const at::Tensor& row,
               std::shared_ptr<const std::vector<int64_t>> numbers = nullptr);

  at::Tensor read(int64_t begin, int64_t end) override;
  at::Tensor read(std::span<const int64_t> rows) override;
  // Only without `numbers`.
  void write(int64_t begin, const at::Tensor& values) override;

 private:
  at::Tensor read_numbers(std::span<const int64_t> numbers);

  std::shared_ptr<DiskRows> rows_;
  DiskRows::Part part_;
  at::Tensor row_;
  std::shared_ptr<const std::vector<int64_t>> numbers_;
};

}  // namespace trireme::parallel::inline internal
