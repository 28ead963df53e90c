#include "trireme/parallel/learner/flat_share.h"

#include <vector>

#include <ATen/ATen.h>

namespace trireme::parallel {
namespace {

at::Tensor share_of(const at::Tensor& flat, int rank, int size) {
  const int64_t n = flat.numel();
  const int64_t begin = n * rank / size, end = n * (rank + 1) / size;
  return flat.narrow(0, begin, end - begin);
}

}  // namespace

at::Tensor view_share(const at::Tensor& flat, const comm::Communicator& replicas) {
  return share_of(flat, replicas.rank(), replicas.size());
}

void gather_shares(const at::Tensor& flat, comm::Communicator& replicas) {
  if (replicas.size() == 1) return;
  std::vector<at::Tensor> shares;
  for (int rank = 0; rank < replicas.size(); ++rank) {
    shares.push_back(share_of(flat, rank, replicas.size()));
  }
  replicas.all_gather(shares, view_share(flat, replicas).clone())->wait();
}

}  // namespace trireme::parallel
