#include "trireme/train/numerics/loss_sum.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/parallel/data/tree_sum.h"

namespace trireme::train {
namespace {

using mesh::AxisKind;
using mesh::Tokens;
using mesh::Weights;

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
                                      std::vector<double> mine, size_t width, bool in_turn) {
  const size_t count = mine.size();
  const std::vector<double> all = gather(mesh.world(), std::move(mine));
  const auto samples =
      mesh::axes_where([](const AxisKind& kind) { return kind.tokens == Tokens::kOtherSamples; });
  const auto copies = mesh::axes_where([](const AxisKind& kind) {
    return kind.tokens == Tokens::kSame && kind.weights != Weights::kOther;
  });
  const auto stages =
      mesh::axes_where([](const AxisKind& kind) { return kind.weights == Weights::kOther; });
  // By the ranks' samples; ranks with parts of the same samples add theirs in rank order.
  std::vector<std::vector<double>> batches;
  for (int rank = 0; rank < mesh.world().size(); ++rank) {
    if (position_on(mesh.axes(), rank, copies).index != 0) continue;
    if (position_on(mesh.axes(), rank, stages).index != pipeline_rank) continue;
    const mesh::Position place = position_on(mesh.axes(), rank, samples);
    if (batches.empty()) batches.assign(place.count, std::vector<double>(count, 0.0));
    std::vector<double>& batch = batches[static_cast<size_t>(place.index)];
    for (size_t i = 0; i < count; ++i) batch[i] += all[static_cast<size_t>(rank) * count + i];
  }
  std::vector<parallel::TreeSum<double>> sums(width);
  const size_t at_once = in_turn ? width : count;  // numbers of a rank before those of the next
  for (size_t begin = 0; begin < count; begin += at_once) {
    for (const std::vector<double>& batch : batches) {
      for (size_t i = begin; i < begin + at_once; ++i) sums[i % width].push(batch[i]);
    }
  }
  std::vector<double> result;
  for (parallel::TreeSum<double>& sum : sums) result.push_back(sum.take());
  return result;
}

double sum_over_batches(const mesh::DeviceMesh& mesh, int pipeline_rank, std::vector<double> mine) {
  return sums_over_batches(mesh, pipeline_rank, std::move(mine), 1)[0];
}

}  // namespace trireme::train
