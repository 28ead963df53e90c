#include "trireme/train/numerics/loss_sum.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/parallel/data/tree_sum.h"

namespace trireme::train::inline internal {
namespace {

int coordinate(const mesh::DeviceMesh& mesh, int world_rank, std::string_view axis) {
  const std::vector<int> coordinates = mesh::coordinates_of(mesh.axes(), world_rank);
  for (size_t i = 0; i < coordinates.size(); ++i) {
    if (mesh.axes()[i].name == axis) return coordinates[i];
  }
  return 0;
}

}  // namespace

std::vector<double> sums_of_outputs(const std::map<std::string, std::vector<at::Tensor>>& outputs,
                                    size_t count, size_t width) {
  const auto losses = outputs.find("loss");
  std::vector<double> sums(count * width, 0.0);
  if (losses == outputs.end()) return sums;
  for (size_t i = 0; i < count; ++i) sums[i * width] = losses->second[i].item<double>();
  if (width == 1) return sums;
  const std::vector<at::Tensor>& states = outputs.at("metrics");
  for (size_t i = 0; i < count; ++i) {
    const at::Tensor state = states[i].to(at::kCPU, at::kDouble).contiguous();
    TRIREME_CHECK(state.numel() + 1 == static_cast<int64_t>(width), "the task's metrics have ",
                  width - 1, " numbers, and its last stage returned ", state.numel());
    std::copy_n(state.const_data_ptr<double>(), width - 1, sums.begin() + i * width + 1);
  }
  return sums;
}

std::vector<double> gather(comm::Communicator& group, std::vector<double> mine) {
  std::vector<double> all(mine.size() * static_cast<size_t>(group.size()));
  std::vector<at::Tensor> outputs;
  const auto count = std::ssize(mine);
  for (int rank = 0; rank < group.size(); ++rank) {
    outputs.push_back(at::from_blob(all.data() + rank * count, {count}, at::kDouble));
  }
  group.all_gather(outputs, at::from_blob(mine.data(), {count}, at::kDouble))->wait();
  return all;
}

std::vector<double> sums_over_batches(const mesh::DeviceMesh& mesh, int pipeline_rank,
                                      std::vector<double> mine, size_t width) {
  const size_t count = mine.size();
  const std::vector<double> all = gather(mesh.world(), std::move(mine));
  std::vector<parallel::TreeSum<double>> sums(width);
  std::vector<double> batches;  // of the current data rank
  for (int rank = 0; rank < mesh.world().size(); ++rank) {
    if (coordinate(mesh, rank, "tensor") != 0) continue;
    if (coordinate(mesh, rank, "pipeline") != pipeline_rank) continue;
    const int context = coordinate(mesh, rank, "context");
    if (context == 0) batches.assign(count, 0.0);
    for (size_t i = 0; i < count; ++i) batches[i] += all[static_cast<size_t>(rank) * count + i];
    if (context + 1 < mesh.size("context")) continue;
    for (size_t i = 0; i < count; ++i) sums[i % width].push(batches[i]);
  }
  std::vector<double> result;
  for (parallel::TreeSum<double>& sum : sums) result.push_back(sum.take());
  return result;
}

double sum_over_batches(const mesh::DeviceMesh& mesh, int pipeline_rank, std::vector<double> mine) {
  return sums_over_batches(mesh, pipeline_rank, std::move(mine), 1)[0];
}

}  // namespace trireme::train::inline internal
