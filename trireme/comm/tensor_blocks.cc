#include "trireme/comm/tensor_blocks.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"

namespace trireme::comm {

uint64_t hash_of_sizes(const std::vector<at::Tensor>& tensors) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const at::Tensor& tensor : tensors) {
    hash = (hash ^ static_cast<uint64_t>(tensor.nbytes())) * 0x100000001b3;
    // A product carries bits only upwards. The shift brings them down again, so that sizes which
    // differ only in their high bits differ everywhere.
    hash ^= hash >> 29;
  }
  // 0 stands for a call without blocks.
  return hash | 1;
}

int64_t total_elements(const std::vector<at::Tensor>& tensors) {
  int64_t total = 0;
  for (const at::Tensor& tensor : tensors) total += tensor.numel();
  return total;
}

void FlatTensor::commit() const {
  if (!is_copy()) return;
  const c10::NoGradGuard no_grad;
  tensor_->copy_(copy_);
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

void FlatCollective::commit(const Collective& call, int rank) const {
  outputs.commit();
  if (call.writes_data(rank)) data.commit();
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
  // Equal keys keep the order of ranks, as in MPI_Comm_split.
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

}  // namespace trireme::comm
