#include "trireme/train/run/peak_flops.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/seconds.h"
#include "trireme/plan/device/device.h"
#include "trireme/train/numerics/loss_sum.h"
#include "trireme/train/run/device.h"

namespace trireme::train::inline internal {

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

double peak_flops_of(std::string_view name, c10::ScalarType dtype, bool tf32) {
  const plan::Device* const found = plan::device_of_driver(name);
  if (found == nullptr) return 0;
  switch (dtype) {
    case c10::kDouble: return found->peak_double;
    case c10::kFloat: return tf32 && found->peak_tf32 > 0 ? found->peak_tf32 : found->peak_single;
    default: return found->peak_half;
  }
}

double measure_product(at::Device device, c10::ScalarType dtype) {
  const int64_t n = device.is_cpu() ? 1024 : 8192;
  constexpr int kRuns = 7;
  const c10::NoGradGuard no_grad;
  const auto options = at::device(device).dtype(dtype);
  // Varied numbers: a GPU multiplies equal ones with less power, and so faster than a model's.
  const auto varied = [&](double frequency) {
    return at::arange(n * n, options.dtype(at::kFloat))
        .mul_(frequency)
        .sin_()
        .view({n, n})
        .to(dtype);
  };
  const at::Tensor a = varied(0.37), b = varied(0.73);
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
