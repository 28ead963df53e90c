#include "trireme/comm/tensor_blocks.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"

namespace trireme::comm::inline internal {

void check_cpu_tensor(const char* operation, const at::Tensor& tensor) {
  TRIREME_CHECK(tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided, operation,
                ": got ",
                tensor.defined() ? concat("a tensor on ", tensor.device()) : "an undefined tensor",
                "; expected a dense CPU tensor");
}

void check_rank(const char* operation, const Communicator& group, int root) {
  TRIREME_CHECK(root >= 0 && root < group.size(), operation, ": rank ", root, " is not in group ",
                group.name(), " of ", group.size(), " ranks");
}

void check_peer(const char* operation, const Communicator& group, int peer) {
  check_rank(operation, group, peer);
  TRIREME_CHECK(peer != group.rank(), operation, ": rank ", peer,
                " is this rank; expected another");
}

void check_source(const char* operation, const Communicator& group, int peer) {
  if (peer != kAnySource) check_peer(operation, group, peer);
}

void check_one_a_rank(const char* operation, const Communicator& group,
                      const std::vector<at::Tensor>& tensors) {
  TRIREME_CHECK(tensors.size() == static_cast<size_t>(group.size()), operation, ": got ",
                tensors.size(), " tensors, expected one for each of the ", group.size(),
                " ranks of group ", group.name());
  for (const at::Tensor& tensor : tensors) check_cpu_tensor(operation, tensor);
}

void check_dtypes(const char* operation, const std::vector<at::Tensor>& tensors,
                  const at::Tensor& like) {
  for (const at::Tensor& tensor : tensors) {
    TRIREME_CHECK(tensor.scalar_type() == like.scalar_type(), operation, ": got tensors of ",
                  c10::toString(tensor.scalar_type()), " and ", c10::toString(like.scalar_type()),
                  "; expected one dtype");
  }
}

void check_own_block(const char* operation, const Communicator& group,
                     const std::vector<at::Tensor>& blocks, const at::Tensor& own) {
  check_dtypes(operation, blocks, own);
  const at::Tensor& block = blocks[group.rank()];
  TRIREME_CHECK(block.nbytes() == own.nbytes(), operation, ": this rank's own tensor has ",
                own.nbytes(), " bytes and its block of the list ", block.nbytes());
}

uint64_t hash_of_sizes(const std::vector<at::Tensor>& tensors) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const at::Tensor& tensor : tensors) {
    hash = (hash ^ static_cast<uint64_t>(tensor.nbytes())) * 0x100000001b3;
    hash ^= hash >> 29;
  }
  return hash | 1;
}

int64_t total_elements(const std::vector<at::Tensor>& tensors) {
  int64_t total = 0;
  for (const at::Tensor& tensor : tensors) total += tensor.numel();
  return total;
}

void FlatTensor::commit() const {
  if (contiguous_.is_same(tensor_)) return;
  const c10::NoGradGuard no_grad;
  tensor_.copy_(contiguous_);
}

Few<std::span<std::byte>> FlatTensors::bytes() const {
  Few<std::span<std::byte>> spans;
  for (const FlatTensor& item : items_) spans.push_back(item.bytes());
  return spans;
}

Few<std::span<const std::byte>> FlatTensors::const_bytes() const {
  Few<std::span<const std::byte>> spans;
  for (const FlatTensor& item : items_) spans.push_back(item.const_bytes());
  return spans;
}

std::vector<at::Tensor> FlatTensors::flat() const {
  std::vector<at::Tensor> flat;
  for (const FlatTensor& item : items_) flat.push_back(item.flat());
  return flat;
}

void FlatTensors::commit() const {
  for (const FlatTensor& item : items_) item.commit();
}

at::Tensor flat_of(const at::Tensor& tensor) { return tensor.detach().contiguous().view({-1}); }

std::vector<at::Tensor> flat_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(flat_of(tensor));
  return flat;
}

std::vector<int> members_of_split(Communicator& group, int color, int key, c10::DeviceType device) {
  const at::Tensor mine = at::tensor(std::vector<int64_t>{color, key}).to(device);
  std::vector<at::Tensor> all(group.size());
  for (at::Tensor& other : all) other = at::empty_like(mine);
  group.all_gather(all, mine)->wait();
  std::vector<std::pair<int64_t, int>> members;  // (key, rank)
  for (int rank = 0; rank < group.size(); ++rank) {
    const at::Tensor values = all[rank].cpu();
    if (values[0].item<int64_t>() == color) members.emplace_back(values[1].item<int64_t>(), rank);
  }
  std::ranges::sort(members);
  std::vector<int> ranks;
  for (const auto& [_, rank] : members) ranks.push_back(rank);
  return ranks;
}

std::vector<at::Tensor> view_even_blocks(const at::Tensor& flat, int count) {
  std::vector<at::Tensor> blocks;
  const int64_t length = flat.numel() / count;
  const int64_t longer = flat.numel() % count;
  int64_t begin = 0;
  for (int64_t block = 0; block < count; ++block) {
    const int64_t end = begin + length + (block < longer ? 1 : 0);
    blocks.push_back(flat.narrow(0, begin, end - begin));
    begin = end;
  }
  return blocks;
}

}  // namespace trireme::comm::inline internal
