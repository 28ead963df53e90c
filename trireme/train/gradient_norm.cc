#include "trireme/train/gradient_norm.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

constexpr int64_t kBlock = 16384;  // elements; fixed, it is part of the norm's definition
constexpr int64_t kLanes = 16;     // independent sums a block, so that the compiler can vectorise

template <typename Scalar>
double block_sum_of_squares(const Scalar* data, int64_t count) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = data[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (int64_t lane = 0; i < count; ++i, ++lane) {
    const double value = data[i];
    lanes[lane] += value * value;
  }
  double sum = 0;
  for (double lane : lanes) sum += lane;
  return sum;
}

template <typename Scalar>
double flat_sum_of_squares(const at::Tensor& tensor) {
  const auto* data = tensor.const_data_ptr<Scalar>();
  const int64_t count = tensor.numel();
  std::vector<double> blocks((count + kBlock - 1) / kBlock);
  at::parallel_for(0, static_cast<int64_t>(blocks.size()), 8, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t offset = block * kBlock;
      blocks[block] = block_sum_of_squares(data + offset, std::min(kBlock, count - offset));
    }
  });
  double sum = 0;
  for (double block : blocks) sum += block;
  return sum;
}

}  // namespace

double sum_of_squares(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().contiguous();
  if (flat.scalar_type() == at::kDouble) return flat_sum_of_squares<double>(flat);
  TRIREME_ASSERT(flat.scalar_type() == at::kFloat, "sum of squares of ",
                 toString(flat.scalar_type()));
  return flat_sum_of_squares<float>(flat);
}

double gradient_norm(const NamedTensors& parameters) {
  double sum = 0;
  for (const auto& [name, parameter] : parameters) {
    if (parameter.grad().defined()) sum += sum_of_squares(parameter.grad());
  }
  return std::sqrt(sum);
}

void clip_gradients(const NamedTensors& parameters, double norm, double max_norm) {
  if (max_norm <= 0 || norm <= max_norm) return;
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const auto& [name, parameter] : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  at::_foreach_mul_(gradients, max_norm / norm);
}

std::string first_nonfinite_gradient(const NamedTensors& parameters) {
  for (const auto& [name, parameter] : parameters) {
    if (parameter.grad().defined() && !std::isfinite(sum_of_squares(parameter.grad()))) return name;
  }
  return "";
}

}  // namespace trireme::train
