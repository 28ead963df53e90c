// The first values of rows of an open vocabulary.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace trireme::parallel::inline internal {

class OpenValues {
 public:
  // scale: values are uniform in [-scale, scale)
  OpenValues(uint64_t seed, const std::string& table, double scale);

  // A pure function of the seed, the table's name, the key and the column.
  void write(int64_t key, std::span<float> row) const;
  void write(int64_t key, std::span<double> row) const;

 private:
  template <typename scalar>
  void write_row(int64_t key, std::span<scalar> row) const;

  uint64_t stream_;
  double scale_;
};

}  // namespace trireme::parallel::inline internal
