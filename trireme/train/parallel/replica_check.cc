#include "trireme/train/parallel/replica_check.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/write/save_plan.h"
#include "trireme/comm/objects.h"
#include "trireme/train/parallel/parallel_model.h"
#include "trireme/train/parallel/run_layout.h"

namespace trireme::train {
namespace {

std::string digest(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().contiguous().cpu();
  return checksum({static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()});
}

bool is_replicated(const mesh::Layout& layout) {
  return layout.placements()[0].kind == mesh::Placement::Kind::kReplicated;
}

}  // namespace

void check_replicas(std::span<const NamedTensor> tensors, comm::Communicator& group,
                    int world_rank) {
  if (tensors.empty()) return;
  std::string mine;
  size_t length = 0;
  for (const auto& [name, tensor] : tensors) {
    mine += digest(tensor);
    if (length == 0) length = mine.size();
  }
  mine += std::to_string(world_rank);
  const std::vector<std::string> all = comm::all_gather_strings(group, mine);
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::vector<std::string_view> digests;
    digests.reserve(all.size());
    for (const std::string& rank : all) {
      digests.push_back(std::string_view(rank).substr(i * length, length));
    }
    std::vector<int> differing;
    for (const size_t rank : checkpoint::minority(digests)) {
      differing.push_back(std::stoi(all[rank].substr(tensors.size() * length)));
    }
    if (differing.empty()) continue;
    throw Error(checkpoint::replicas_differ(tensors[i].first, differing, digests.size()));
  }
}

void check_replicas(const ParallelModel& model, bool sharded) {
  const mesh::DeviceMesh& mesh = model.mesh();
  const int world_rank = mesh.world().rank();
  std::vector<NamedTensor> tensors;
  if (sharded) {
    for (const parallel::Shard& shard : model.shards()) {
      // Parameters of experts are split over all their replicas.
      if (!model.is_expert(shard.name)) tensors.emplace_back(shard.name, shard.weights);
    }
    for (const std::string_view axis : replica_axes(/*zero=*/3)) {
      check_replicas(tensors, mesh.group(axis), world_rank);
    }
    tensors.clear();
  } else {
    tensors = model.parameters();
  }
  // Experts have replicas of their own.
  const auto is_expert = [&](const NamedTensor& tensor) { return model.is_expert(tensor.first); };
  std::vector<NamedTensor> experts;
  std::ranges::copy_if(tensors, std::back_inserter(experts), is_expert);
  std::erase_if(tensors, is_expert);
  if (!experts.empty()) check_replicas(experts, model.expert_mesh()->group("data"), world_rank);
  std::vector<NamedTensor> on_data_ranks = tensors;
  std::ranges::copy(model.buffers(), std::back_inserter(on_data_ranks));
  for (const std::string_view axis : replica_axes(/*zero=*/0)) {
    check_replicas(on_data_ranks, mesh.group(axis), world_rank);
  }
  std::erase_if(tensors, [&](const NamedTensor& tensor) {
    return !is_replicated(model.layout_of(tensor.first));
  });
  for (const std::string_view axis : cutting_axes()) {
    check_replicas(tensors, mesh.group(axis), world_rank);
  }
}

void check_threads(int num_threads, comm::Communicator& tensor_group) {
  const std::vector<std::string> all =
      comm::all_gather_strings(tensor_group, std::to_string(num_threads));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    TRIREME_CHECK(all[rank] == all[0], "ranks 0 and ", rank, " of group ", tensor_group.name(),
                  " compute with ", all[0], " and ", all[rank],
                  " threads, so values that both compute could differ in bits; give all "
                  "ranks the same number: --threads N, or OMP_NUM_THREADS");
  }
}

void check_sum_order(const comm::Communicator& tensor_group) {
  TRIREME_CHECK(tensor_group.size() <= 2 || tensor_group.reduces_in_rank_order(),
                "train.reproducible: the ", tensor_group.size(), " ranks of group ",
                tensor_group.name(),
                " do not sum in rank order, so another number of data ranks could change the bits; "
                "place the ranks of each host one after the other (rank 0 to N-1 on the first), "
                "use a transport other than nccl (for GPUs parallel.gpu_transport = \"cuda-ipc\"), "
                "or set train.reproducible = false");
}

}  // namespace trireme::train
