#include "trireme/train/run/device.h"

#include <algorithm>
#include <vector>

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "trireme/base/error.h"
#include "trireme/comm/c10d/nccl_group.h"
#include "trireme/comm/objects.h"

namespace trireme::train {
namespace {

constexpr auto kCuda = c10::DeviceType::CUDA;

std::string kind_of(at::Device device) { return c10::DeviceTypeName(device.type(), true); }

}  // namespace

int num_gpus() {
  if (!c10::impl::hasDeviceGuardImpl(kCuda)) return 0;
  return c10::impl::getDeviceGuardImpl(kCuda)->deviceCount();
}

at::Device rank_device(DeviceChoice choice, int local_rank, int num_local_ranks, int gpus) {
  if (choice == DeviceChoice::kCpu) return at::kCPU;
  if (choice == DeviceChoice::kAuto && gpus < num_local_ranks) return at::kCPU;
  TRIREME_CHECK(gpus > 0, "train.device is \"cuda\", and ",
                c10::impl::hasDeviceGuardImpl(kCuda)
                    ? "CUDA finds no GPU on this machine: check nvidia-smi and "
                      "CUDA_VISIBLE_DEVICES, or"
                    : "this build's libtorch has no CUDA: build with one that has, or",
                " set it to \"cpu\"");
  TRIREME_CHECK(gpus >= num_local_ranks, "train.device is \"cuda\" with ", num_local_ranks,
                " ranks on this machine and ", gpus, gpus == 1 ? " GPU" : " GPUs",
                "; each rank needs one of its own: start ", gpus, " here, or set it to \"cpu\"");
  return {kCuda, static_cast<c10::DeviceIndex>(local_rank)};
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
  TRIREME_CHECK(device.type() != kCuda || comm::has_nccl(),
                "the ranks compute on GPUs, and this build has no NCCL; build with "
                "TRIREME_WITH_NCCL=ON, or set train.device = \"cpu\"");
  TRIREME_CHECK(config.parallel.transport != "mpi",
                "the ranks compute on GPUs, and parallel.transport \"mpi\" has no store at which "
                "NCCL's ranks could meet; set it to \"auto\", or train.device to \"cpu\"");
  TRIREME_CHECK(config.parallel.rebalance_interval == 0, "parallel.rebalance_interval is ",
                config.parallel.rebalance_interval,
                " and the ranks compute on GPUs, whose time in a stage the host does not see; set "
                "it to 0, and choose parallel.stage_layers from a profile");
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
  if (config.device.is_cpu()) return;
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

}  // namespace trireme::train
