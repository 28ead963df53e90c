#include "trireme/parallel/embedding/jagged_ids.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::parallel {
namespace {

void check_vector(const at::Tensor& tensor, const char* name) {
  TRIREME_CHECK(tensor.defined() && tensor.dim() == 1 && tensor.scalar_type() == at::kLong &&
                    tensor.is_cpu() && tensor.is_contiguous(),
                "the ", name,
                " of embedding ids must be contiguous int64 numbers [n] in the host's memory");
}

void check_offsets(const JaggedIds& ids, int64_t num_tables) {
  // Half the memory for arrays that are as long as the batch.
  // Places and samples of a rank are counted in 32 bits.
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  TRIREME_CHECK(ids.num_samples <= kMost && ids.values.size(0) <= kMost, "embedding ids have ",
                ids.num_samples, " samples and ", ids.values.size(0), " ids; at most ", kMost,
                " of each are possible on a rank");
  const int64_t expected = num_tables * ids.num_samples + 1;
  TRIREME_CHECK(ids.num_samples >= 0 && ids.offsets.size(0) == expected, "embedding ids have ",
                ids.offsets.size(0), " offsets; ", num_tables, " tables and ", ids.num_samples,
                " samples need ", expected);
  const auto* const offsets = ids.offsets.const_data_ptr<int64_t>();
  TRIREME_CHECK(offsets[0] == 0 && offsets[expected - 1] == ids.values.size(0) &&
                    std::is_sorted(offsets, offsets + expected),
                "offsets of embedding ids must rise from 0 to the number of ids, ",
                ids.values.size(0), "; they begin with ", offsets[0], " and end with ",
                offsets[expected - 1]);
}

void check_range(const TableIds& ids, const TableConfig& table) {
  // One comparison for both ends; the compiler vectorises the loop.
  // A negative id is a large one without its sign.
  const auto rows = static_cast<uint64_t>(table.rows);
  bool is_inside = true;
  for (const int64_t id : ids.values) is_inside &= static_cast<uint64_t>(id) < rows;
  if (is_inside) return;
  // Only for the message.
  const auto bad = std::ranges::find_if(
      ids.values, [&](int64_t id) { return static_cast<uint64_t>(id) >= rows; });
  const int64_t place = ids.offsets[0] + (bad - ids.values.begin());
  const auto after = std::ranges::upper_bound(ids.offsets, place);
  throw ConfigError(concat("embedding table \"", shown(table.name), "\": sample ",
                           after - ids.offsets.begin() - 1, " of this rank has the id ", *bad,
                           "; expected 0 to ", table.rows - 1));
}

}  // namespace

JaggedIds jagged_ids(const at::Tensor& values, const at::Tensor& lengths_TB,
                     const at::Tensor& weights) {
  TRIREME_CHECK(lengths_TB.dim() == 2 && lengths_TB.scalar_type() == at::kLong,
                "lengths of embedding ids must be int64 numbers [tables, samples]; found shape ",
                lengths_TB.sizes());
  TRIREME_CHECK(lengths_TB.numel() == 0 || lengths_TB.min().item<int64_t>() >= 0,
                "a length of embedding ids is negative");
  const at::Tensor offsets = at::zeros({lengths_TB.numel() + 1}, lengths_TB.options());
  offsets.narrow(0, 1, lengths_TB.numel()).copy_(lengths_TB.reshape({-1}).cumsum(0));
  const int64_t sum = offsets[lengths_TB.numel()].item<int64_t>();
  TRIREME_CHECK(sum == values.numel(), "lengths of embedding ids add up to ", sum, "; there are ",
                values.numel(), " ids");
  return {values.contiguous(), offsets, weights.defined() ? weights.contiguous() : weights,
          lengths_TB.size(1)};
}

TableIds view_table(const JaggedIds& ids, int64_t table) {
  const auto B = static_cast<size_t>(ids.num_samples);
  const std::span offsets(ids.offsets.const_data_ptr<int64_t>() + table * ids.num_samples, B + 1);
  return {{ids.values.const_data_ptr<int64_t>() + offsets.front(),
           static_cast<size_t>(offsets.back() - offsets.front())},
          offsets};
}

void check_ids(const JaggedIds& ids, std::span<const TableConfig> tables) {
  check_vector(ids.values, "values");
  check_vector(ids.offsets, "offsets");
  check_offsets(ids, std::ssize(tables));
  const bool needs_weights =
      std::ranges::any_of(tables, [](const TableConfig& table) { return table.is_weighted; });
  TRIREME_CHECK(!needs_weights || ids.weights.defined() || ids.values.numel() == 0,
                "an embedding table is weighted, but the ids have no weights");
  if (ids.weights.defined()) {
    TRIREME_CHECK(ids.weights.sizes() == ids.values.sizes() && ids.weights.is_cpu() &&
                      ids.weights.is_contiguous(),
                  "weights of embedding ids have shape ", ids.weights.sizes(), "; the ids have ",
                  ids.values.sizes());
  }
  for (int64_t t = 0; t < std::ssize(tables); ++t) {
    const TableConfig& table = tables[static_cast<size_t>(t)];
    if (!table.is_open) check_range(view_table(ids, t), table);
  }
}

}  // namespace trireme::parallel
