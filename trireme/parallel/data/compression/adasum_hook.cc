#include "trireme/parallel/data/compression/adasum_hook.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/comm/numbers/adasum.h"
#include "trireme/parallel/data/compression/wire.h"
#include "trireme/parallel/data/tree_sum.h"

namespace trireme::parallel {
namespace {

constexpr int64_t kProducts = 3;  // of a pair

// One parameter's part: a term per rank, then per pair of them, and so on.
using Terms = std::vector<at::Tensor>;

int64_t size_of(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

// The dot products of each parameter's pairs, of this rank's parts.
at::Tensor products_of_pairs(const std::vector<Terms>& parameters) {
  std::vector<double> products;
  for (const Terms& terms : parameters) {
    for (size_t j = 0; j + 1 < terms.size(); j += 2) {
      const comm::PairProducts pair = comm::products_of(terms[j], terms[j + 1]);
      products.insert(products.end(), {pair.ab, pair.aa, pair.bb});
    }
  }
  return at::tensor(products, at::kDouble);
}

// The last of an odd number waits for the next level.
Terms next_level(const Terms& terms, const double*& products) {
  Terms next;
  for (size_t j = 0; j + 1 < terms.size(); j += 2) {
    next.push_back(comm::add_pair(terms[j], terms[j + 1], {products[0], products[1], products[2]}));
    products += kProducts;
  }
  if (terms.size() % 2 == 1) next.push_back(terms.back());
  return next;
}

}  // namespace

int64_t AdasumHook::all_reduce(const GradientBucket& bucket, comm::Communicator& group) {
  const int p = group.size();
  const auto rank = static_cast<size_t>(group.rank());
  // One message for each rank: its parts of all parameters.
  std::vector<std::vector<int64_t>> cuts;
  std::vector<Terms> parts(static_cast<size_t>(p));  // [rank][parameter]
  for (const at::Tensor& gradient : bucket.gradients) {
    cuts.push_back(even_cuts(gradient.numel(), p));
    Terms of_ranks = view_parts(gradient.reshape(-1), cuts.back());
    for (size_t r = 0; r < parts.size(); ++r) parts[r].push_back(std::move(of_ranks[r]));
  }
  Terms messages, received;
  int64_t whole_bytes = 0;
  for (const Terms& part : parts) messages.push_back(at::cat(part));
  for (const at::Tensor& message : messages) {
    whole_bytes += size_of(message);
    received.push_back(at::empty_like(messages[rank]));
  }
  group.all_to_all(received, messages)->wait();
  int64_t num_bytes = (p - 1) * whole_bytes / p;

  const at::ScalarType dtype = compute_dtype(bucket.flat.options());
  std::vector<Terms> level(bucket.gradients.size());
  for (const at::Tensor& message : received) {
    const at::Tensor wide = message.to(dtype).mul(p);
    int64_t begin = 0;
    for (size_t i = 0; i < level.size(); ++i) {
      const int64_t count = cuts[i][rank + 1] - cuts[i][rank];
      level[i].push_back(wide.narrow(0, begin, count));
      begin += count;
    }
  }
  while (level.front().size() > 1) {
    const at::Tensor products = products_of_pairs(level);
    num_bytes += counted_all_reduce(products, group);
    const double* next = products.const_data_ptr<double>();
    for (Terms& terms : level) terms = next_level(terms, next);
  }
  Terms sums;
  for (const Terms& terms : level) sums.push_back(terms.front());
  const at::Tensor mine = at::cat(sums).to(bucket.flat.scalar_type());
  group.all_gather(messages, mine)->wait();
  for (size_t r = 0; r < messages.size(); ++r) {
    int64_t begin = 0;
    for (size_t i = 0; i < parts[r].size(); ++i) {
      parts[r][i].copy_(messages[r].narrow(0, begin, parts[r][i].numel()));
      begin += parts[r][i].numel();
    }
  }
  return num_bytes + whole_bytes - size_of(mine);
}

}  // namespace trireme::parallel
