#include "trireme/plan/device/device.h"

#include "trireme/base/choice.h"

namespace trireme::plan {

// This is the program's only table of devices. MFU asks it too, because two tables had differed in
// an A100's peak. Published values stand in each row with their source. Calibrated shares were
// fitted to measurements, which exist for few devices; like_a100() and like_h100() give them to a
// generation's others. Devices without such relatives keep the defaults of device.h.

namespace {

constexpr double kTera = 1e12, kGiga = 1e9, kGiB = 1 << 30;

// Peaks, memory and links: NVIDIA's, AMD's and Google's data sheets; link and network rates are of
// DGX or HGX nodes (stas00/ml-engineering, network/README.md), of TPUs of a torus in a pod. What is
// calibrated: docs/guide/planner.md says on which measurements. GPUs of a generation share it.

// The driver, the libraries and the caching allocator take this much.
constexpr Device on_gpu(Device device) {
  device.reserved_bytes = 2 * kGiB;
  device.fragmentation = 0.1;
  return device;
}

constexpr Device like_a100(Device device) {
  device.product_share = 0.8;
  device.half_size = 76;
  device.attention_share = 0.3;
  device.memory_share = 0.9;
  device.link_share = 0.75;
  device.network_share = 0.45;
  device.link_seconds = 5e-6;
  device.network_seconds = 14e-6;
  device.launch_seconds = 10e-6;
  device.step_seconds = 48e-3;
  device.overlap_cost = 0.5;
  device.transfer_cost = 0.25;
  return on_gpu(device);
}

constexpr Device like_h100(Device device) {
  device.product_share = 0.58;
  device.half_size = 52;
  device.attention_share = 0.19;
  device.memory_share = 0.9;
  device.link_share = 0.51;
  device.network_share = 0.7;
  device.link_seconds = 18e-6;
  device.network_seconds = 50e-6;
  device.launch_seconds = 10e-6;
  device.step_seconds = 63e-3;
  device.overlap_cost = 0.15;
  device.transfer_cost = 0.5;
  return on_gpu(device);
}

constexpr Device kDevices[] = {
    on_gpu({.name = "v100",
            .driver_name = "V100",
            .peak_half = 125 * kTera,
            .peak_single = 15.7 * kTera,
            .peak_double = 7.8 * kTera,
            .memory_bytes = 32 * kGiB,
            .memory_rate = 900 * kGiga,
            .link_rate = 150 * kGiga,
            .network_rate = 12.5 * kGiga,
            .watts = 300,
            .product_share = 0.87,
            .half_size = 13,
            .attention_share = 0.5,
            .memory_share = 0.9,
            .link_share = 0.44,
            .link_seconds = 9.6e-6,
            .source = "NVIDIA V100 data sheet; DGX-2"}),
    like_a100({.name = "a100-40gb",
               .driver_name = "A100-SXM4-40GB",
               .peak_half = 312 * kTera,
               .peak_tf32 = 156 * kTera,
               .peak_single = 19.5 * kTera,
               .peak_double = 19.5 * kTera,
               .memory_bytes = 40 * kGiB,
               .memory_rate = 1555 * kGiga,
               .link_rate = 300 * kGiga,
               .network_rate = 25 * kGiga,
               .watts = 400,
               .source = "NVIDIA A100 data sheet; DGX A100"}),
    like_a100({.name = "a100-80gb",
               .driver_name = "A100",
               .peak_half = 312 * kTera,
               .peak_tf32 = 156 * kTera,
               .peak_single = 19.5 * kTera,
               .peak_double = 19.5 * kTera,
               .memory_bytes = 80 * kGiB,
               .memory_rate = 2039 * kGiga,
               .link_rate = 300 * kGiga,
               .network_rate = 25 * kGiga,
               .watts = 400,
               .source = "NVIDIA A100 data sheet; DGX A100"}),
    like_h100({.name = "h100-sxm",
               .driver_name = "H100",
               .peak_half = 989.4 * kTera,
               .peak_tf32 = 494.7 * kTera,
               .peak_single = 66.9 * kTera,
               .peak_double = 66.9 * kTera,
               .memory_bytes = 80 * kGiB,
               .memory_rate = 3350 * kGiga,
               .link_rate = 450 * kGiga,
               .network_rate = 50 * kGiga,
               .watts = 700,
               .source = "NVIDIA H100 data sheet; DGX H100"}),
    like_h100({.name = "h100-pcie",
               .driver_name = "H100 PCIe",
               .peak_half = 756 * kTera,
               .peak_tf32 = 378 * kTera,
               .peak_single = 51 * kTera,
               .peak_double = 51 * kTera,
               .memory_bytes = 80 * kGiB,
               .memory_rate = 2000 * kGiga,
               .link_rate = 64 * kGiga,
               .network_rate = 25 * kGiga,
               .watts = 350,
               .source = "NVIDIA H100 data sheet; PCIe 5 x16"}),
    like_h100({.name = "h100-nvl",
               .driver_name = "H100 NVL",
               .peak_half = 835 * kTera,
               .peak_tf32 = 417.5 * kTera,
               .peak_single = 60 * kTera,
               .peak_double = 60 * kTera,
               .memory_bytes = 94 * kGiB,
               .memory_rate = 3938 * kGiga,
               .link_rate = 64 * kGiga,
               .network_rate = 25 * kGiga,
               .watts = 400,
               .source = "NVIDIA H100 NVL product brief; PCIe 5 x16"}),
    like_h100({.name = "h200",
               .driver_name = "H200",
               .peak_half = 989.4 * kTera,
               .peak_tf32 = 494.7 * kTera,
               .peak_single = 66.9 * kTera,
               .peak_double = 66.9 * kTera,
               .memory_bytes = 141 * kGiB,
               .memory_rate = 4800 * kGiga,
               .link_rate = 450 * kGiga,
               .network_rate = 50 * kGiga,
               .watts = 700,
               .source = "NVIDIA H200 data sheet"}),
    like_h100({.name = "b200",
               .driver_name = "B200",
               .peak_half = 2250 * kTera,
               .peak_tf32 = 1125 * kTera,
               .peak_single = 75 * kTera,
               .peak_double = 37 * kTera,
               .memory_bytes = 180 * kGiB,
               .memory_rate = 7700 * kGiga,
               .link_rate = 900 * kGiga,
               .network_rate = 50 * kGiga,
               .watts = 1000,
               .source = "NVIDIA DGX B200 data sheet"}),
    like_a100({.name = "a30",
               .driver_name = "A30",
               .peak_half = 165 * kTera,
               .peak_tf32 = 82 * kTera,
               .peak_single = 10.3 * kTera,
               .peak_double = 10.3 * kTera,
               .memory_bytes = 24 * kGiB,
               .memory_rate = 933 * kGiga,
               .link_rate = 100 * kGiga,
               .network_rate = 12.5 * kGiga,
               .watts = 165,
               .source = "NVIDIA A30 data sheet; NVLink bridge"}),
    like_a100({.name = "a10",
               .driver_name = "A10",
               .peak_half = 125 * kTera,
               .peak_tf32 = 62.5 * kTera,
               .peak_single = 31.2 * kTera,
               .peak_double = 0.49 * kTera,
               .memory_bytes = 24 * kGiB,
               .memory_rate = 600 * kGiga,
               .link_rate = 32 * kGiga,
               .network_rate = 12.5 * kGiga,
               .watts = 150,
               .source = "NVIDIA A10 data sheet; PCIe 4 x16"}),
    like_h100({.name = "l40s",
               .driver_name = "L40S",
               .peak_half = 362 * kTera,
               .peak_tf32 = 183 * kTera,
               .peak_single = 91.6 * kTera,
               .peak_double = 1.4 * kTera,
               .memory_bytes = 48 * kGiB,
               .memory_rate = 864 * kGiga,
               .link_rate = 32 * kGiga,
               .network_rate = 12.5 * kGiga,
               .watts = 350,
               .source = "NVIDIA L40S data sheet; PCIe 4 x16"}),
    like_h100({.name = "l4",
               .driver_name = "L4",
               .peak_half = 121 * kTera,
               .peak_tf32 = 60 * kTera,
               .peak_single = 30.3 * kTera,
               .peak_double = 0.47 * kTera,
               .memory_bytes = 24 * kGiB,
               .memory_rate = 300 * kGiga,
               .link_rate = 32 * kGiga,
               .network_rate = 12.5 * kGiga,
               .watts = 72,
               .source = "NVIDIA L4 data sheet; PCIe 4 x16"}),
    like_h100({.name = "rtx-4090",
               .driver_name = "RTX 4090",
               .peak_half = 165.2 * kTera,
               .peak_tf32 = 82.6 * kTera,
               .peak_single = 82.6 * kTera,
               .peak_double = 1.3 * kTera,
               .memory_bytes = 24 * kGiB,
               .memory_rate = 1008 * kGiga,
               .link_rate = 32 * kGiga,
               .network_rate = 12.5 * kGiga,
               .watts = 450,
               .source = "NVIDIA Ada architecture paper; PCIe 4 x16"}),
    on_gpu({.name = "mi250",
            .peak_half = 362 * kTera,
            .peak_single = 45 * kTera,
            .memory_bytes = 128 * kGiB,
            .memory_rate = 3277 * kGiga,
            .link_rate = 150 * kGiga,
            .network_rate = 25 * kGiga,
            .watts = 500,
            .source = "AMD MI250 data sheet; a device is both of its dies"}),
    on_gpu(
        {.name = "mi300x",
         .peak_half = 1307 * kTera,
         .peak_single = 163 * kTera,
         .memory_bytes = 192 * kGiB,
         .memory_rate = 5300 * kGiga,
         .link_rate = 448 * kGiga,
         .network_rate = 50 * kGiga,
         .watts = 750,
         .product_share = 0.51,
         .source = "AMD MI300X data sheet; share: stas00/ml-engineering, matmul_achievable_mamf"}),
    {.name = "tpu-v4",
     .peak_half = 275 * kTera,
     .peak_single = 69 * kTera,
     .memory_bytes = 32 * kGiB,
     .memory_rate = 1228 * kGiga,
     .link_rate = 150 * kGiga,
     .network_rate = 150 * kGiga,
     .watts = 192,
     .source = "Jouppi et al. 2023, arXiv:2304.01433, table 4; three rings of a torus"},
    {.name = "tpu-v5p",
     .peak_half = 459 * kTera,
     .peak_single = 115 * kTera,
     .memory_bytes = 95 * kGiB,
     .memory_rate = 2765 * kGiga,
     .link_rate = 300 * kGiga,
     .network_rate = 300 * kGiga,
     .watts = 350,
     .source = "Google Cloud, TPU v5p; watts are assumed"},
    {.name = "cpu",
     .peak_half = 0.1 * kTera,
     .peak_single = 0.1 * kTera,
     .memory_bytes = 12 * kGiB,
     .memory_rate = 10 * kGiga,
     .link_rate = 5 * kGiga,
     .network_rate = 1 * kGiga,
     .disk_rate = 0.5 * kGiga,
     .watts = 10,
     .product_share = 0.9,
     .half_size = 16,
     .attention_share = 0.6,
     .memory_share = 0.6,
     .link_seconds = 2e-6,
     .launch_seconds = 5e-6,
     .step_seconds = 1e-3,
     .overlap_cost = 0.9,
     .is_asynchronous = false,
     .sums_in_rank_order = true,
     .source = "one core with AVX2; `trireme bench device` measures yours"},
};

}  // namespace

std::span<const Device> built_in_devices() { return kDevices; }

// The longest match: "H100" is part of "H100 PCIe" too.
const Device* device_of_driver(std::string_view name) {
  const Device* found = nullptr;
  for (const Device& device : kDevices) {
    const std::string_view driver = device.driver_name;
    if (driver.empty() || name.find(driver) == name.npos) continue;
    if (found == nullptr || driver.size() > found->driver_name.size()) found = &device;
  }
  return found;
}

std::vector<std::string> device_names() { return names_of(kDevices); }

const Device& device_named(std::string_view name) {
  const Device* const found = find_choice(kDevices, name);
  TRIREME_CHECK(found != nullptr, "cluster.device is \"", shown(name), "\"; expected ",
                in_words(device_names()));
  return *found;
}

}  // namespace trireme::plan
