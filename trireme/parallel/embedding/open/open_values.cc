#include "trireme/parallel/embedding/open/open_values.h"

#include "trireme/base/random/random.h"

namespace trireme::parallel::inline internal {

OpenValues::OpenValues(uint64_t seed, const std::string& table, double scale)
    : stream_(random_key(seed, table + ".weight").value), scale_(scale) {}

// Each key has a stream of its own, as the key is mixed already.
template <typename scalar>
void OpenValues::write_row(int64_t key, std::span<scalar> row) const {
  const RandomKey stream{stream_ ^ static_cast<uint64_t>(key)};
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = static_cast<scalar>(scale_ * (2 * random_uniform(stream, i) - 1));
  }
}

void OpenValues::write(int64_t key, std::span<float> row) const { write_row(key, row); }
void OpenValues::write(int64_t key, std::span<double> row) const { write_row(key, row); }

}  // namespace trireme::parallel::inline internal
