#include "trireme/train/run/peak_flops.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/seconds.h"
#include "trireme/train/numerics/loss_sum.h"
#include "trireme/train/run/device.h"

namespace trireme::train::inline internal {
namespace {

// In teraflops, without sparsity. 0: the GPU has no such unit.
// Source: NVIDIA's data sheets of these GPUs
struct Peak {
  std::string_view name;  // part of the driver's; more special ones first
  double half;            // bf16 and fp16
  double tf32;
  double single;
  double twice;  // fp64, on tensor cores where there are such
};
constexpr Peak kPeaks[] = {
    {"B200", 2250, 1125, 75, 37},       {"H100 PCIe", 756, 378, 51, 51},
    {"H100 NVL", 835, 417.5, 60, 60},   {"H100", 989.4, 494.7, 66.9, 66.9},
    {"H200", 989.4, 494.7, 66.9, 66.9}, {"GH200", 989.4, 494.7, 66.9, 66.9},
    {"A100", 311.9, 155.9, 19.5, 19.5}, {"A30", 165, 82, 10.3, 10.3},
    {"A10", 125, 62.5, 31.2, 0.49},     {"L40S", 362, 183, 91.6, 1.4},
    {"L4", 121, 60, 30.3, 0.47},        {"RTX 4090", 165.2, 82.6, 82.6, 1.3},
};

std::string gpu_name() {
  namespace fs = std::filesystem;
  constexpr std::string_view kModel = "Model:";
  std::error_code error;
  for (const auto& gpu : fs::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    std::ifstream file(gpu.path() / "information");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(kModel)) return line.substr(kModel.size());
    }
  }
  return "";
}

}  // namespace

double peak_flops_of(std::string_view name, c10::ScalarType dtype, bool tf32) {
  const auto* const found = std::ranges::find_if(
      kPeaks, [&](const Peak& peak) { return name.find(peak.name) != name.npos; });
  if (found == std::end(kPeaks)) return 0;
  switch (dtype) {
    case c10::kDouble: return 1e12 * found->twice;
    case c10::kFloat: return 1e12 * (tf32 ? found->tf32 : found->single);
    default: return 1e12 * found->half;
  }
}

double measure_product(at::Device device, c10::ScalarType dtype) {
  const int64_t n = device.is_cpu() ? 1024 : 8192;
  constexpr int kRuns = 7;
  const c10::NoGradGuard no_grad;
  const auto options = at::device(device).dtype(dtype);
  const at::Tensor a = at::full({n, n}, 0.5, options), b = at::full({n, n}, 0.25, options);
  at::Tensor product = at::empty({n, n}, options);
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    synchronize(device);
    const auto start = std::chrono::steady_clock::now();
    at::mm_out(product, a, b);
    synchronize(device);
    least = std::min(least, seconds_since(start));
  }
  return 2 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / least;
}

double peak_flops(const RunConfig& config, comm::Communicator& world) {
  const TrainConfig& train = config.train;
  if (train.measure_peak) {
    const std::vector<double> all = gather(world, {measure_product(config.device, config.dtype())});
    return std::reduce(all.begin(), all.end()) / static_cast<double>(all.size());
  }
  if (train.peak_teraflops > 0) return 1e12 * train.peak_teraflops;
  return config.device.is_cuda() ? peak_flops_of(gpu_name(), config.dtype(), train.tf32) : 0;
}

}  // namespace trireme::train::inline internal
