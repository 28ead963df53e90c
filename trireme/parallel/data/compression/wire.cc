#include "trireme/parallel/data/compression/wire.h"

#include <vector>

#include <ATen/ATen.h>

#include "trireme/parallel/data/tree_sum.h"

namespace trireme::parallel {

// An all-reduce of coded values cannot be left to the group, which would add codes. Each rank codes
// its parts for all others, sums the decoded terms of its own part in rank order, codes the sum
// once more and hands it to all. Every rank then decodes the same bytes, also the owner of the
// part: its own sum in full accuracy would differ from the replicas'.

namespace {

int64_t bytes_of(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

}  // namespace

int64_t coded_all_reduce(const at::Tensor& rows, const RowCode& code, comm::Communicator& group) {
  const std::vector<int64_t> cuts = even_cuts(rows.size(0), group.size());
  const auto rank = static_cast<size_t>(group.rank());
  const auto options = rows.options().dtype(code.dtype);
  const at::Tensor wire = at::empty({rows.size(0) * code.width}, options);
  std::vector<int64_t> code_cuts = cuts;
  for (int64_t& cut : code_cuts) cut *= code.width;
  const std::vector<at::Tensor> codes = view_parts(wire, code_cuts);
  const std::vector<at::Tensor> parts = view_parts(rows, cuts);

  for (size_t r = 0; r < parts.size(); ++r) code.encode(parts[r], codes[r]);
  std::vector<at::Tensor> terms;
  for (size_t r = 0; r < parts.size(); ++r) terms.push_back(at::empty_like(codes[rank]));
  group.all_to_all(terms, codes)->wait();

  // In rank order, whatever arrived first.
  const at::Tensor sum = code.decode(terms[0]);
  for (size_t r = 1; r < terms.size(); ++r) sum.add_(code.decode(terms[r]));
  const at::Tensor coded_sum = at::empty_like(codes[rank]);
  code.encode(sum, coded_sum);
  group.all_gather(codes, coded_sum)->wait();
  for (size_t r = 0; r < parts.size(); ++r) parts[r].copy_(code.decode(codes[r]));

  const int64_t sent = (group.size() - 1) * bytes_of(wire) / group.size();
  return sent + bytes_of(wire) - bytes_of(coded_sum);
}

int64_t counted_all_reduce(const at::Tensor& data, comm::Communicator& group) {
  group.all_reduce(data)->wait();
  return int64_t{2} * (group.size() - 1) * bytes_of(data) / group.size();
}

at::ScalarType compute_dtype(const at::TensorOptions& gradient) {
  return at::promote_types(c10::typeMetaToScalarType(gradient.dtype()), at::kFloat);
}

}  // namespace trireme::parallel
