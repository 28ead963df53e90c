// The cost model's data on one device: its peaks, its links, and the fractions of them that
// programs reach. The built-in ones carry published peaks and calibrated efficiencies.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::plan {

// Rates are per device, in bytes or operations per second, of one direction.
struct Device {
  std::string_view name{};
  std::string_view driver_name{};  // part of the name that its driver gives; "": has none
  // Published, without sparsity.
  double peak_half = 0;    // bf16 and fp16 products of dense matrices
  double peak_tf32 = 0;    // fp32 products whose factors are rounded to TF32; 0: not its kind
  double peak_single = 0;  // fp32 products
  double peak_double = 0;  // fp64 products, on tensor cores where there are such; 0: not given
  double memory_bytes = 0;
  double memory_rate = 0;
  double link_rate = 0;     // to the other devices of the node
  double network_rate = 0;  // to other nodes; of a usual cluster of these devices
  double disk_rate = 2e9;   // of a local disk, while all devices of the node use it
  // Bandwidth of the host's memory, which all devices of a node share: 80 % of 256 GB/s, two
  // sockets of six channels of DDR4-2666.
  double host_memory_rate = 200e9;
  double watts = 0;  // of the device under load
  // Calibrated.
  double product_share = 0.8;    // of the peak, in products of large matrices
  double half_size = 128;        // rows or columns at which a product reaches half of that
  double attention_share = 0.5;  // of the peak, in a fused attention
  // Tokens of a sequence at which attention reaches half of that.
  double attention_half_size = 0;
  // Overrides for bf16; 0: the value for fp32. They differ on CPUs.
  double bf16_half_size = 0;
  double bf16_half_rows = 0;  // half_size of a product's rows; 0: bf16_half_size
  double bf16_attention_share = 0;
  double bf16_attention_half_size = 0;
  double bf16_memory_share = 0;
  // Of CPUs; 0: those of any product, and of memory_share.
  double head_share = 0;  // of the peak, in the products of a head whose logits come in chunks
  double bf16_head_share = 0;
  double loss_share = 0;    // of memory_rate, in the loss's passes over logits
  double update_share = 0;  // of memory_rate, in an optimizer's update and the gradient norm
  double bf16_update_share = 0;
  double memory_share = 0.8;    // of memory_rate, in elementwise work
  double link_share = 0.75;     // of link_rate, in large messages
  double network_share = 0.75;  // of network_rate
  double link_seconds = 10e-6;  // latency of a message in the node
  double network_seconds = 25e-6;
  double launch_seconds = 10e-6;  // host time to start one kernel
  double step_seconds = 10e-3;    // of each step beside its kernels: data, norm, logging
  double overlap_cost = 0.15;  // communication behind computation slows it by this share of itself
  double transfer_cost = 0.5;  // share of a pipeline's transfer in which both ranks wait
  // Whether the host runs ahead of the device, so that launches hide behind kernels.
  bool is_asynchronous = true;
  // Whether sums between nodes keep rank order: a partial sum visits one node after the other, and
  // every call is compared first (comm/hierarchical/hierarchical_collectives.h).
  bool sums_in_rank_order = false;
  // Memory that the driver, the libraries and their workspaces take.
  double reserved_bytes = 0;
  double fragmentation = 0;  // what the allocator wastes, as a share of what is allocated
  std::string_view source{};

  double peak(double itemsize) const { return itemsize < 4 ? peak_half : peak_single; }
  double half_size_of(double itemsize) const {
    return itemsize < 4 && bf16_half_size > 0 ? bf16_half_size : half_size;
  }
  double half_rows_of(double itemsize) const {
    return itemsize < 4 && bf16_half_rows > 0 ? bf16_half_rows : half_size_of(itemsize);
  }
  double elementwise_rate(double itemsize) const {
    return memory_rate * (itemsize < 4 && bf16_memory_share > 0 ? bf16_memory_share : memory_share);
  }
  double attention_rate(double itemsize) const {
    const bool has_own = itemsize < 4 && bf16_attention_share > 0;
    return peak(itemsize) * (has_own ? bf16_attention_share : attention_share);
  }
  double attention_half_size_of(double itemsize) const {
    const bool has_own = itemsize < 4 && bf16_attention_share > 0;
    return has_own ? bf16_attention_half_size : attention_half_size;
  }
  // 0: that of any product.
  double head_rate(double itemsize) const {
    return peak(itemsize) * (itemsize < 4 ? bf16_head_share : head_share);
  }
  double loss_rate() const { return memory_rate * (loss_share > 0 ? loss_share : memory_share); }
  // itemsize: of a weight
  double update_rate(double itemsize) const {
    const double own = itemsize < 4 ? bf16_update_share : update_share;
    return memory_rate * (own > 0 ? own : memory_share);
  }
};

std::span<const Device> built_in_devices();
// The device that a driver calls so, such as "NVIDIA A100-SXM4-80GB"; null: not built in.
const Device* device_of_driver(std::string_view name);
std::vector<std::string> device_names();
// Throws: ConfigError with the known names
const Device& device_named(std::string_view name);

}  // namespace trireme::plan
