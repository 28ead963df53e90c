// The way out of rules: a function that sees this rank's blocks as ordinary tensors.
//
//   auto lookup = local_map([&](const at::Tensor& rows, const at::Tensor& ids) { ... },
//                           {split(0, "tensor"), replicated()}, {partial("tensor")});
//   at::Tensor y = lookup(table, ids);
#pragma once

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/spmd/splits.h"

namespace trireme::spmd {

struct LocalMapSplits {
  std::vector<Splits> in, out, gradients;
};
using LocalFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// Brings the arguments to their splits, calls the function on the blocks and makes placed tensors
// of its results. See local_map().
std::vector<at::Tensor> run_local_map(const LocalFunction& function, const LocalMapSplits& splits,
                                      const std::vector<at::Tensor>& arguments);

// f: takes tensors and returns one, a tuple or a vector of them. Differentiable once.
// in, out: how its arguments and results are split; a result's lengths may be any that tile.
// gradients: how the arguments' gradients come out of f's backward on the ranks. Empty: those of
//            split arguments are split like them. Those of whole ones are partial sums on axes
//            where another argument or result is not whole, as the ranks' work there differs.
// The function returned takes tensors of which one at least is placed.
// Comm:       80 (p-1) bytes per result for p ranks, beside the redistributions
// Collective: every rank of the grid, in forward and in backward
// Throws:     ConfigError, on every rank, for results that do not tile a tensor, and where f failed
template <typename Function>
auto local_map(Function f, std::vector<Splits> in, std::vector<Splits> out,
               std::vector<Splits> gradients = {}) {
  return [f = std::move(f), splits = LocalMapSplits{std::move(in), std::move(out),
                                                    std::move(gradients)}](const auto&... tensors) {
    using Result = std::invoke_result_t<const Function&, decltype(tensors)...>;
    const auto call = [&]<size_t... i>(const std::vector<at::Tensor>& blocks,
                                       std::index_sequence<i...>) {
      return f(blocks[i]...);
    };
    const LocalFunction function = [&](const std::vector<at::Tensor>& blocks) {
      Result result = call(blocks, std::make_index_sequence<sizeof...(tensors)>());
      if constexpr (std::is_same_v<Result, std::vector<at::Tensor>>) {
        return result;
      } else if constexpr (std::is_same_v<Result, at::Tensor>) {
        return std::vector<at::Tensor>{result};
      } else {
        return std::apply([](auto&... each) { return std::vector<at::Tensor>{each...}; }, result);
      }
    };
    std::vector<at::Tensor> results = run_local_map(function, splits, {tensors...});
    if constexpr (std::is_same_v<Result, std::vector<at::Tensor>>) {
      return results;
    } else if constexpr (std::is_same_v<Result, at::Tensor>) {
      return results.front();
    } else {
      return [&]<size_t... i>(std::index_sequence<i...>) { return Result(results[i]...); }
      (std::make_index_sequence<std::tuple_size_v<Result>>());
    }
  };
}

}  // namespace trireme::spmd
