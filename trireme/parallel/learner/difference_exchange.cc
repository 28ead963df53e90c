#include "trireme/parallel/learner/difference_exchange.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

// Rank `rank`'s part of a flat tensor, of `size` about equal ones.
at::Tensor share_of(const at::Tensor& flat, int rank, int size) {
  const int64_t n = flat.numel();
  const int64_t begin = n * rank / size, end = n * (rank + 1) / size;
  return flat.narrow(0, begin, end - begin);
}

// Sends `mine` to every other rank at once, and begins to receive theirs. A ring or a tree would
// send fewer messages, and over a slow link each of its steps waits for the one before.
std::vector<at::Tensor> swap(comm::Communicator& group, const at::Tensor& mine, int tag,
                             std::vector<comm::WorkPtr>& works) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) {
      all.push_back(mine);
      continue;
    }
    all.push_back(at::empty_like(mine));
    if (mine.numel() == 0) continue;
    works.push_back(group.recv(all.back(), rank, {.tag = tag, .background = true}));
    works.push_back(group.send(mine, rank, {.tag = tag, .background = true}));
  }
  return all;
}

}  // namespace

DifferenceExchange::DifferenceExchange(comm::Communicator& learners, comm::Communicator& replicas,
                                       int tag)
    : learners_(learners), replicas_(replicas), tag_(tag) {}

void DifferenceExchange::start(at::Tensor difference, std::vector<double> notes) {
  TRIREME_ASSERT(!is_under_way(), "a second exchange of differences");
  const int size = learners_.size();
  difference_ = std::move(difference);
  share_ = share_of(difference_, replicas_.rank(), replicas_.size());
  shares_.clear();
  if (size == 2) {
    shares_ = swap(learners_, share_, tag_, works_);
  } else if (share_.numel() > 0) {
    works_.push_back(learners_.all_reduce(share_, {.background = true}));
  }
  sent_bytes_ = 2 * (size - 1) * share_.numel() * share_.element_size() / size;
  notes_ = swap(learners_, at::tensor(notes, at::kDouble), tag_ + 1, works_);
  sent_bytes_ += (size - 1) * std::ssize(notes) * static_cast<int64_t>(sizeof(double));
}

DifferenceExchange::Result DifferenceExchange::finish() {
  TRIREME_ASSERT(is_under_way(), "the end of no exchange of differences");
  for (const comm::WorkPtr& work : std::exchange(works_, {})) work->wait();
  for (size_t i = 1; i < shares_.size(); ++i) {
    // In place it would change what another rank's sum begins with.
    shares_[0] = shares_[0] + shares_[i];
  }
  if (!shares_.empty()) share_.copy_(shares_[0]);
  Result result{.sum = std::exchange(difference_, {})};
  for (const at::Tensor& notes : notes_) {
    const double* const first = notes.const_data_ptr<double>();
    result.notes.emplace_back(first, first + notes.numel());
  }
  if (replicas_.size() > 1) {
    std::vector<at::Tensor> shares;
    for (int rank = 0; rank < replicas_.size(); ++rank) {
      shares.push_back(share_of(result.sum, rank, replicas_.size()));
    }
    replicas_.all_gather(shares, share_.clone())->wait();
  }
  shares_.clear();
  share_.reset();
  return result;
}

}  // namespace trireme::parallel
