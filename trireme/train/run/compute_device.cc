#include "trireme/train/run/compute_device.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/comm/c10d/nccl_group.h"
#include "trireme/comm/objects.h"
#include "trireme/plan/device/device.h"
#include "trireme/train/numerics/loss_sum.h"

namespace trireme::train {
namespace {

constexpr auto kCuda = c10::DeviceType::CUDA;

std::string kind_of(at::Device device) { return c10::DeviceTypeName(device.type(), true); }

}  // namespace

int num_gpus() {
  if (!c10::impl::hasDeviceGuardImpl(kCuda)) return 0;
  return c10::impl::getDeviceGuardImpl(kCuda)->deviceCount();
}

at::Device rank_device(DeviceChoice choice, GpuTransport transport, int local_rank,
                       int num_local_ranks, int gpus) {
  const bool is_shared = transport == GpuTransport::kCudaIpc;
  const int needed = is_shared ? 1 : num_local_ranks;
  if (choice == DeviceChoice::kCpu) return at::kCPU;
  if (choice == DeviceChoice::kAuto && gpus < needed) return at::kCPU;
  TRIREME_CHECK(gpus > 0, "train.device is \"cuda\", and ",
                c10::impl::hasDeviceGuardImpl(kCuda)
                    ? "CUDA finds no GPU on this machine: check nvidia-smi and "
                      "CUDA_VISIBLE_DEVICES, or"
                    : "this build's libtorch has no CUDA: build with one that has, or",
                " set it to \"cpu\"");
  TRIREME_CHECK(gpus >= needed, "train.device is \"cuda\" with ", num_local_ranks,
                " ranks on this machine and ", gpus, gpus == 1 ? " GPU" : " GPUs",
                "; each rank needs one of its own: start ", gpus,
                " here, set parallel.gpu_transport to \"cuda-ipc\", or train.device to \"cpu\"");
  return {kCuda, static_cast<c10::DeviceIndex>(is_shared ? 0 : local_rank)};
}

std::string note_of_device(const RunConfig& config, int num_local_ranks, int gpus) {
  if (!config.device.is_cpu() || config.train.device != DeviceChoice::kAuto || gpus == 0) return "";
  return concat("the CPU, as ", num_local_ranks, " ranks here would share ", gpus,
                gpus == 1 ? " GPU" : " GPUs", "; start ", gpus, " to use ",
                gpus == 1 ? "it" : "them");
}

void check_device(const RunConfig& config) {
  const at::Device device = config.device;
  TRIREME_CHECK(config.train.device != DeviceChoice::kCuda || device.type() == kCuda,
                "train.device is \"cuda\" and RunConfig::device is ", device,
                "; set it to rank_device()'s");
  if (device.is_cpu()) return;
  const bool is_nccl = config.parallel.gpu_transport == GpuTransport::kNccl;
  TRIREME_CHECK(device.type() != kCuda || !is_nccl || comm::has_nccl(),
                "the ranks compute on GPUs, and this build has no NCCL; build with "
                "TRIREME_WITH_NCCL=ON, or set train.device = \"cpu\"");
  check_fits_gpus(config);
}

void check_fits_gpus(const RunConfig& config) {
  TRIREME_CHECK(
      config.train.fp32_products == Fp32Products::kFp32,
      "train.fp32_products is for CPUs, and the ranks compute on GPUs; leave it out, and set "
      "train.tf32 = true for faster products");
  TRIREME_CHECK(config.parallel.transport != "mpi",
                "the ranks compute on GPUs, and parallel.transport \"mpi\" has no store at which "
                "the ranks' GPUs could meet; set it to \"auto\", or train.device to \"cpu\"");
  TRIREME_CHECK(config.parallel.rebalance_interval == 0, "parallel.rebalance_interval is ",
                config.parallel.rebalance_interval,
                " and the ranks compute on GPUs, whose time in a stage the host does not see; set "
                "it to 0, and choose parallel.stage_layers from a profile");
  TRIREME_CHECK(config.train.shares_interval == 0, "train.shares_interval is ",
                config.train.shares_interval,
                " and the ranks compute on GPUs, whose time in a step the host does not see; set "
                "it to 0, and give train.shares");
}

void check_same_device(at::Device device, comm::Communicator& world) {
  const std::vector<std::string> kinds = comm::all_gather_strings(world, kind_of(device));
  const auto other =
      std::ranges::find_if(kinds, [&](const auto& kind) { return kind != kinds[0]; });
  TRIREME_CHECK(other == kinds.end(), "rank 0 computes on ", kinds[0], " and rank ",
                other - kinds.begin(), " on ", other == kinds.end() ? "" : *other,
                "; set train.device to \"cpu\", or give every host a GPU for each of its ranks");
}

void use_device(const RunConfig& config) {
  if (config.device.is_cpu()) {
    // Of the process, for all its ranks: their configs agree.
    const Fp32Products products = config.train.fp32_products;
    at::globalContext().setFloat32MatmulPrecision(products == Fp32Products::kBf16     ? "medium"
                                                  : products == Fp32Products::kBf16x3 ? "high"
                                                                                      : "highest");
    return;
  }
  c10::impl::VirtualGuardImpl(config.device.type()).setDevice(config.device);
  at::globalContext().setAllowTF32CuBLAS(config.train.tf32);
  at::globalContext().setAllowTF32CuDNN(config.train.tf32);
}

void synchronize(at::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

std::optional<int64_t> peak_device_bytes(at::Device device) {
  if (device.is_cpu()) return std::nullopt;
  auto* const allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (allocator == nullptr || !allocator->initialized()) return std::nullopt;
  using Stat = c10::CachingAllocator::StatType;
  const auto stats = allocator->getDeviceStats(device.index());
  return stats.allocated_bytes[static_cast<size_t>(Stat::AGGREGATE)].peak;
}

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

}  // namespace trireme::train
