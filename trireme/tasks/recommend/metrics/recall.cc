#include "trireme/tasks/recommend/metrics/recall.h"

#include <algorithm>
#include <array>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/multiversion.h"

namespace trireme::tasks {
namespace {

constexpr int kLanes = 64;  // items at once

// scores[j] = sum over d, in order, of query[d] * items[d * kLanes + j]. Every score of this file
// comes from here: another loop might round otherwise.
template <typename scalar>
TRIREME_INLINE void score_body(const scalar* query, const scalar* items, int64_t D,
                               scalar* scores) {
  scalar sums[kLanes] = {};
  for (int64_t d = 0; d < D; ++d) {
    for (int j = 0; j < kLanes; ++j) sums[j] += query[d] * items[d * kLanes + j];
  }
  std::copy_n(sums, kLanes, scores);
}
TRIREME_MULTIVERSION void score(const float* query, const float* items, int64_t D, float* scores) {
  score_body(query, items, D, scores);
}
TRIREME_MULTIVERSION void score(const double* query, const double* items, int64_t D,
                                double* scores) {
  score_body(query, items, D, scores);
}

at::Tensor on_cpu(const at::Tensor& vectors) {
  const auto dtype = vectors.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return vectors.detach().to(at::kCPU, dtype).contiguous();
}

// kLanes items side by side, [D, kLanes]; zeros where there are none.
template <typename scalar>
class Tile {
 public:
  explicit Tile(int64_t D) : D_(D), values_(static_cast<size_t>(D * kLanes)) {}

  void set(int lane, const scalar* vector) {
    for (int64_t d = 0; d < D_; ++d) values_[static_cast<size_t>(d * kLanes + lane)] = vector[d];
  }
  void clear() { std::ranges::fill(values_, scalar{0}); }
  const std::array<scalar, kLanes>& scores(const scalar* query) {
    score(query, values_.data(), D_, scores_.data());
    return scores_;
  }

 private:
  int64_t D_;
  std::vector<scalar> values_;
  std::array<scalar, kLanes> scores_{};
};

struct Items {
  at::Tensor vectors_nD;
  int64_t first = 0;  // the number of its first item
  int64_t size() const { return vectors_nD.size(0); }
};

// The scores of the wanted items that are among `items`; 0 for others.
template <typename scalar>
at::Tensor own_scores(const at::Tensor& queries_BD, const Items& items,
                      const at::Tensor& wanted_B) {
  const int64_t D = queries_BD.size(1);
  const at::Tensor scores_B = at::zeros({queries_BD.size(0)}, queries_BD.options());
  Tile<scalar> tile(D);
  for (int64_t b = 0; b < queries_BD.size(0); ++b) {
    const int64_t item = wanted_B.const_data_ptr<int64_t>()[b] - items.first;
    if (item < 0 || item >= items.size()) continue;
    tile.set(0, items.vectors_nD.const_data_ptr<scalar>() + item * D);
    scores_B.mutable_data_ptr<scalar>()[b] =
        tile.scores(queries_BD.const_data_ptr<scalar>() + b * D)[0];
  }
  return scores_B;
}

// How many of `items` come before the wanted one.
template <typename scalar>
at::Tensor count_before(const at::Tensor& queries_BD, const Items& items,
                        const at::Tensor& wanted_B, const at::Tensor& own_B) {
  const int64_t D = queries_BD.size(1);
  const at::Tensor counts_B = at::zeros({queries_BD.size(0)}, at::kLong);
  Tile<scalar> tile(D);
  for (int64_t begin = 0; begin < items.size(); begin += kLanes) {
    const auto width = static_cast<int>(std::min<int64_t>(kLanes, items.size() - begin));
    tile.clear();
    for (int j = 0; j < width; ++j) {
      tile.set(j, items.vectors_nD.const_data_ptr<scalar>() + (begin + j) * D);
    }
    for (int64_t b = 0; b < queries_BD.size(0); ++b) {
      const auto& scores = tile.scores(queries_BD.const_data_ptr<scalar>() + b * D);
      const scalar own = own_B.const_data_ptr<scalar>()[b];
      const int64_t wanted = wanted_B.const_data_ptr<int64_t>()[b] - items.first - begin;
      int64_t count = 0;
      for (int j = 0; j < width; ++j) {
        const scalar other = scores[static_cast<size_t>(j)];
        // Not >, rather than <=: also true of a NaN.
        const bool is_before = other == own ? j < wanted : !(other < own);
        count += is_before && j != wanted ? 1 : 0;
      }
      counts_B.mutable_data_ptr<int64_t>()[b] += count;
    }
  }
  return counts_B;
}

// An item whose own score is NaN: not even before itself.
at::Tensor last_if_nan(const at::Tensor& counts_B, const at::Tensor& own_B, int64_t num_items) {
  return at::where(own_B.isnan(), at::full_like(counts_B, num_items), counts_B);
}

void check_wanted(const at::Tensor& wanted_B, int64_t num_items) {
  for (int64_t b = 0; b < wanted_B.numel(); ++b) {
    const int64_t item = wanted_B.const_data_ptr<int64_t>()[b];
    TRIREME_CHECK(item >= 0 && item < num_items, "query ", b, " has the item ", item,
                  "; expected 0 to ", num_items - 1);
  }
}

at::Tensor checked(const at::Tensor& queries_BD, const at::Tensor& items_ND,
                   const at::Tensor& wanted) {
  TRIREME_CHECK(queries_BD.dim() == 2 && items_ND.dim() == 2 &&
                    queries_BD.size(1) == items_ND.size(1) &&
                    queries_BD.scalar_type() == items_ND.scalar_type(),
                "queries ", queries_BD.sizes(), " and items ", items_ND.sizes(),
                "; expected [B, D] and [N, D] of one dtype");
  TRIREME_CHECK(wanted.numel() == queries_BD.size(0), wanted.numel(), " items for ",
                queries_BD.size(0), " queries; expected one each");
  return wanted.to(at::kCPU, at::kLong).reshape({-1}).contiguous();
}

template <typename Function>
at::Tensor by_dtype(const at::Tensor& vectors, const Function& function) {
  return vectors.scalar_type() == at::kDouble ? function(double{}) : function(float{});
}

// Blocks of rows for each rank.
std::vector<at::Tensor> rows_of(const at::Tensor& all, const std::vector<int64_t>& sizes) {
  std::vector<at::Tensor> blocks;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    blocks.push_back(all.narrow(0, begin, size));
    begin += size;
  }
  return blocks;
}

}  // namespace

at::Tensor places_of(const at::Tensor& queries_BD, const at::Tensor& items_ND,
                     const at::Tensor& wanted_B) {
  const at::Tensor wanted = checked(queries_BD, items_ND, wanted_B);
  check_wanted(wanted, items_ND.size(0));
  const at::Tensor queries = on_cpu(queries_BD);
  const Items items{.vectors_nD = on_cpu(items_ND)};
  return by_dtype(queries, [&](auto zero) {
    using scalar = decltype(zero);
    const at::Tensor own_B = own_scores<scalar>(queries, items, wanted);
    return last_if_nan(count_before<scalar>(queries, items, wanted, own_B), own_B, items.size());
  });
}

at::Tensor gather_places(comm::Communicator& group, const at::Tensor& queries_BD,
                         const at::Tensor& items_nD, const at::Tensor& wanted_B) {
  const at::Tensor own_wanted = checked(queries_BD, items_nD, wanted_B);
  const at::Tensor sizes = at::empty({group.size(), 2}, at::kLong);
  group.all_gather(sizes.unbind(0), at::tensor({queries_BD.size(0), items_nD.size(0)}))->wait();
  Items items{.vectors_nD = on_cpu(items_nD)};
  std::vector<int64_t> num_queries;
  int64_t Q = 0;
  int64_t N = 0;
  int64_t own_begin = 0;
  for (int r = 0; r < group.size(); ++r) {
    if (r == group.rank()) own_begin = Q, items.first = N;
    const int64_t* const size = sizes.const_data_ptr<int64_t>() + int64_t{2} * r;
    num_queries.push_back(size[0]);
    Q += size[0];
    N += size[1];
  }
  const at::Tensor own_queries = on_cpu(queries_BD);
  const at::Tensor queries = at::empty({Q, own_queries.size(1)}, own_queries.options());
  const at::Tensor wanted = at::empty({Q}, at::kLong);
  group.all_gather(rows_of(queries, num_queries), own_queries)->wait();
  group.all_gather(rows_of(wanted, num_queries), own_wanted)->wait();
  check_wanted(wanted, N);  // on all ranks alike
  return by_dtype(queries, [&](auto zero) {
    using scalar = decltype(zero);
    const at::Tensor own = own_scores<scalar>(queries, items, wanted);
    group.all_reduce(own)->wait();  // one rank has it; the others add 0
    const at::Tensor counts = count_before<scalar>(queries, items, wanted, own);
    group.all_reduce(counts)->wait();
    return last_if_nan(counts, own, N).narrow(0, own_begin, queries_BD.size(0)).clone();
  });
}

at::Tensor recall_state(const at::Tensor& places_B, int64_t k) {
  const at::Tensor hits = places_B.lt(k).sum().to(at::kDouble);
  return at::stack({hits, at::full_like(hits, static_cast<double>(places_B.numel()))});
}

}  // namespace trireme::tasks
