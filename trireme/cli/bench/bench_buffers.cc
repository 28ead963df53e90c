#include "trireme/cli/bench/bench_buffers.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::cli::inline internal {
namespace {

using enum CommOperation;

constexpr int kRoot = 0;
constexpr int64_t kPeriod = 4;  // of the patterns

// Rank r's element i is (i + r) % 4.
std::vector<int> values_of(int rank) {
  std::vector<int> table;
  for (int i = 0; i < kPeriod; ++i) table.push_back((i + rank) % kPeriod);
  return table;
}

std::vector<int> sums_of(int num_ranks) {
  std::vector<int> table(kPeriod);
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (int i = 0; i < kPeriod; ++i) table[i] += (i + rank) % kPeriod;
  }
  return table;
}

at::Tensor pattern(const std::vector<int>& table, int64_t offset, int64_t count,
                   c10::ScalarType dtype) {
  const at::Tensor period = at::tensor(table, at::kInt).to(dtype);
  return period.repeat({count / kPeriod + 2}).narrow(0, offset % kPeriod, count);
}

}  // namespace

CaseBuffers::CaseBuffers(comm::Communicator& group, const CommCase& what)
    : group_(&group),
      what_(what),
      num_elements_(what.bytes / static_cast<int64_t>(c10::elementSize(what.dtype))) {
  const auto buffer = [&](int64_t count) {
    return what.memory == CommMemory::kSymmetric ? group.symmetric_empty({count}, what.dtype)
                                                 : at::empty({count}, what.dtype);
  };
  const int rank = group.rank();
  switch (what.operation) {
    case kAllReduce:
    case kReduce:
    case kBroadcast: input_ = buffer(num_elements_); break;
    case kAllGather:
    case kGather:
      input_ = buffer(block(rank));
      if (what.operation == kAllGather || is_root()) output_ = buffer(num_elements_);
      output_blocks_ = blocks_of(output_);
      break;
    case kReduceScatter:
    case kScatter:
      if (what.operation == kReduceScatter || is_root()) input_ = buffer(num_elements_);
      output_ = buffer(block(rank));
      input_blocks_ = blocks_of(input_);
      break;
    case kAllToAll:
      input_ = buffer(num_elements_);
      output_ = buffer(block(rank) * group.size());
      input_blocks_ = blocks_of(input_);
      // Every rank's block for this rank has the same length.
      output_blocks_ = output_.view({group.size(), block(rank)}).unbind(0);
      break;
    case kSendRecv:
      input_ = buffer(num_elements_);
      output_ = buffer(num_elements_);
      break;
    case kBarrier: break;
  }
}

int64_t CaseBuffers::block(int rank) const {
  return num_elements_ / group_->size() + (rank < num_elements_ % group_->size() ? 1 : 0);
}

int64_t CaseBuffers::offset(int rank) const {
  return num_elements_ / group_->size() * rank +
         std::min<int64_t>(rank, num_elements_ % group_->size());
}

std::vector<at::Tensor> CaseBuffers::blocks_of(const at::Tensor& flat) const {
  std::vector<at::Tensor> blocks;
  for (int rank = 0; flat.defined() && rank < group_->size(); ++rank) {
    blocks.push_back(flat.narrow(0, offset(rank), block(rank)));
  }
  return blocks;
}

void CaseBuffers::run() {
  comm::Communicator& group = *group_;
  switch (what_.operation) {
    case kAllReduce: return group.all_reduce(input_)->wait();
    case kReduce: return group.reduce(input_, kRoot)->wait();
    case kBroadcast: return group.broadcast(input_, kRoot)->wait();
    case kAllGather: return group.all_gather(output_blocks_, input_)->wait();
    case kReduceScatter: return group.reduce_scatter(output_, input_blocks_)->wait();
    case kAllToAll: return group.all_to_all(output_blocks_, input_blocks_)->wait();
    case kGather: return group.gather(output_blocks_, input_, kRoot)->wait();
    case kScatter: return group.scatter(output_, input_blocks_, kRoot)->wait();
    case kSendRecv: {
      const int size = group.size();
      const comm::WorkPtr sent =
          group.send(input_, (group.rank() + 1) % size, {.background = true});
      group.recv(output_, (group.rank() + size - 1) % size)->wait();
      return sent->wait();
    }
    case kBarrier: return group.barrier()->wait();
  }
}

void CaseBuffers::fill_pattern() {
  if (input_.defined()) {
    input_.copy_(pattern(values_of(group_->rank()), 0, input_.numel(), what_.dtype));
  }
  if (output_.defined()) output_.fill_(77);
}

void CaseBuffers::fill_zero() {
  if (input_.defined()) input_.zero_();
  if (output_.defined()) output_.zero_();
}

std::vector<CaseBuffers::Expected> CaseBuffers::expected() const {
  const int rank = group_->rank();
  const int size = group_->size();
  std::vector<Expected> parts;
  switch (what_.operation) {
    case kAllReduce: return {{input_, 0, sums_of(size)}};
    case kReduce:
      if (is_root()) parts.push_back({input_, 0, sums_of(size)});
      return parts;
    case kBroadcast: return {{input_, 0, values_of(kRoot)}};
    case kAllGather:
    case kGather:
      for (size_t from = 0; from < output_blocks_.size(); ++from) {
        parts.push_back({output_blocks_[from], 0, values_of(static_cast<int>(from))});
      }
      return parts;
    case kReduceScatter: return {{output_, offset(rank), sums_of(size)}};
    case kScatter: return {{output_, offset(rank), values_of(kRoot)}};
    case kAllToAll:
      for (int from = 0; from < size; ++from) {
        parts.push_back({output_blocks_[from], offset(rank), values_of(from)});
      }
      return parts;
    case kSendRecv: return {{output_, 0, values_of((rank + size - 1) % size)}};
    case kBarrier: return parts;
  }
  throw InternalError("unknown operation");
}

std::string CaseBuffers::first_error() const {
  for (const Expected& part : expected()) {
    const at::Tensor wanted = pattern(part.table, part.offset, part.actual.numel(), what_.dtype);
    if (at::equal(part.actual, wanted)) continue;
    const auto place = at::nonzero(part.actual.ne(wanted)).flatten()[0].item<int64_t>();
    return concat("rank ", group_->rank(), " got ", part.actual[place].item<double>(),
                  " at element ", part.actual.storage_offset() + place, ", expected ",
                  wanted[place].item<double>());
  }
  return "";
}

}  // namespace trireme::cli::inline internal
