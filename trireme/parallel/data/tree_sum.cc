#include "trireme/parallel/data/tree_sum.h"

#include <ATen/ATen.h>

#include "trireme/mesh/layout.h"

namespace trireme::parallel {

std::vector<at::Tensor> view_parts(const at::Tensor& flat, std::span<const int64_t> cuts) {
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    parts.push_back(flat.narrow(0, cuts[i], cuts[i + 1] - cuts[i]));
  }
  return parts;
}

at::Tensor tree_reduce_scatter(comm::Communicator& group, const at::Tensor& flat,
                               std::span<const int64_t> cuts) {
  const auto rank = static_cast<size_t>(group.rank());
  std::vector<at::Tensor> terms;
  for (int r = 0; r < group.size(); ++r) {
    terms.push_back(at::empty({cuts[rank + 1] - cuts[rank]}, flat.options()));
  }
  // An all-to-all and not a reduce-scatter: the tree needs each rank's term by itself.
  group.all_to_all(terms, view_parts(flat, cuts))->wait();
  TreeSum<at::Tensor> sum;
  for (at::Tensor& term : terms) sum.push(std::move(term));
  return sum.take();
}

void tree_all_reduce(comm::Communicator& group, const at::Tensor& flat) {
  const std::vector<int64_t> cuts = even_cuts(flat.numel(), group.size());
  const at::Tensor mine = tree_reduce_scatter(group, flat, cuts);
  group.all_gather(view_parts(flat, cuts), mine)->wait();
}

std::vector<int64_t> even_cuts(int64_t length, int parts) {
  std::vector<int64_t> cuts;
  for (int i = 0; i < parts; ++i) cuts.push_back(mesh::split_range(length, parts, i).offset);
  cuts.push_back(length);
  return cuts;
}

}  // namespace trireme::parallel
