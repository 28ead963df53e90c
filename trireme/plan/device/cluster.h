// A cluster as the planner sees it: equal nodes of equal devices, the network between them, and
// what an hour costs. Read from a CLUSTER file.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/key.h"
#include "trireme/plan/device/device.h"

namespace trireme::plan {

// The attention kernel, which determines time and kept activations.
enum class AttentionKernel {
  kAuto,      // composed for gpt2 without zero = 3, as Megatron-LM trained GPT; fused otherwise
  kFused,     // never stores the scores (FlashAttention); as this program does
  kComposed,  // stores the scores and their softmax
};
inline constexpr Choice<AttentionKernel> kAttentionKernels[] = {
    {"auto", AttentionKernel::kAuto},
    {"fused", AttentionKernel::kFused},
    {"composed", AttentionKernel::kComposed}};

// 0: the built-in value of the device.
struct ClusterConfig {
  TRIREME_KEYS_BEGIN(ClusterConfig)
  TRIREME_KEY(std::string, device, "cpu", kMayChange,
              "type of the devices, whose built-in figures [device] and [network] override",
              device_names)
  TRIREME_KEY(int64_t, nodes, 1, kMayChange, "number of nodes (hosts)", Range{1, kMaxRanks})
  TRIREME_KEY(int64_t, devices_per_node, 8, kMayChange, "devices per node, one per rank",
              Range{1, kMaxRanks})
  TRIREME_KEY(AttentionKernel, attention, AttentionKernel::kAuto, kMayChange,
              "attention kernel; fused = never stores the attention scores, composed = stores "
              "them, auto = composed for gpt2 on a GPU without zero = 3, otherwise fused",
              kAttentionKernels)
  TRIREME_KEY(double, expert_skew, 1, kMayChange,
              "tokens on the busiest expert rank, relative to the mean; all ranks wait for it",
              Range{1, 1e4})
  TRIREME_KEYS_END()
};

// Changes of the built-in device. 0: as built in.
struct DeviceConfig {
  TRIREME_KEYS_BEGIN(DeviceConfig)
  TRIREME_KEY(double, half_teraflops, 0, kMayChange,
              "peak of bf16 and fp16 matrix products, in TFLOP/s; 0 = built-in value, as for all "
              "keys of this section",
              Range{0, 1e6})
  TRIREME_KEY(double, single_teraflops, 0, kMayChange, "peak of fp32 matrix products, in TFLOP/s",
              Range{0, 1e6})
  TRIREME_KEY(double, memory_gib, 0, kMayChange, "device memory, in GiB", Range{0, 1e6})
  TRIREME_KEY(double, memory_gb_per_second, 0, kMayChange, "device memory bandwidth, in GB/s",
              Range{0, 1e6})
  TRIREME_KEY(double, product_share, 0, kMayChange,
              "fraction of the peak that large matrix products reach", Range{0, 1})
  TRIREME_KEY(double, half_size, 0, kMayChange,
              "matrix dimension at which products reach half of that speed", Range{0, 1e6})
  TRIREME_KEY(double, attention_share, 0, kMayChange,
              "fraction of the peak that fused attention reaches", Range{0, 1})
  TRIREME_KEY(double, bf16_half_size, 0, kMayChange,
              "half_size of products of bf16 and fp16; 0 = half_size", Range{0, 1e6})
  TRIREME_KEY(double, bf16_attention_share, 0, kMayChange,
              "attention_share in bf16 and fp16, of half_teraflops; 0 = attention_share",
              Range{0, 1})
  TRIREME_KEY(double, attention_half_size, 0, kMayChange,
              "tokens of a sequence at which fused attention reaches half of its speed",
              Range{0, 1e6})
  TRIREME_KEY(double, bf16_attention_half_size, 0, kMayChange,
              "attention_half_size in bf16 and fp16, where bf16_attention_share is set",
              Range{0, 1e6})
  TRIREME_KEY(double, bf16_half_rows, 0, kMayChange,
              "rows at which products of bf16 and fp16 reach half of their speed; 0 = "
              "bf16_half_size",
              Range{0, 1e6})
  TRIREME_KEY(double, head_share, 0, kMayChange,
              "fraction of the peak that the head's products reach, whose logits come in chunks; 0 "
              "= as other products",
              Range{0, 1})
  TRIREME_KEY(double, bf16_head_share, 0, kMayChange,
              "head_share in bf16 and fp16, of half_teraflops; 0 = as other products", Range{0, 1})
  TRIREME_KEY(double, loss_share, 0, kMayChange,
              "fraction of the memory bandwidth that the loss reaches in its passes over logits; 0 "
              "= memory_share",
              Range{0, 1})
  TRIREME_KEY(double, update_share, 0, kMayChange,
              "fraction of the memory bandwidth that the optimizer's update and the gradient norm "
              "reach; 0 = memory_share",
              Range{0, 1})
  TRIREME_KEY(double, bf16_update_share, 0, kMayChange,
              "update_share with weights in bf16 and fp16; 0 = memory_share", Range{0, 1})
  TRIREME_KEY(double, bf16_memory_share, 0, kMayChange,
              "memory_share in bf16 and fp16; 0 = memory_share", Range{0, 1})
  TRIREME_KEY(double, memory_share, 0, kMayChange,
              "fraction of the memory bandwidth that elementwise operations reach", Range{0, 1})
  TRIREME_KEY(double, launch_microseconds, 0, kMayChange,
              "host time to launch one operation, in microseconds", Range{0, 1e6})
  TRIREME_KEY(double, step_milliseconds, 0, kMayChange,
              "fixed time per step for data, gradient norm and logging, in milliseconds",
              Range{0, 1e6})
  TRIREME_KEY(double, reserved_gib, 0, kMayChange,
              "memory that the driver and libraries take, in GiB", Range{0, 1e6})
  TRIREME_KEY(
      double, disk_gb_per_second, 0, kMayChange,
      "bandwidth of the local disk per device while all devices of the node use it, in GB/s",
      Range{0, 1e6})
  TRIREME_KEY(
      double, host_memory_gb_per_second, 0, kMayChange,
      "bandwidth of the host's memory, which all devices of a node share, in GB/s; the host "
      "of GPUs updates parameters that are offloaded to it",
      Range{0, 1e6})
  TRIREME_KEY(double, watts, 0, kMayChange, "power of a device under load, in watts", Range{0, 1e5})
  TRIREME_KEYS_END()
};

struct NetworkConfig {
  TRIREME_KEYS_BEGIN(NetworkConfig)
  TRIREME_KEY(double, link_gb_per_second, 0, kMayChange,
              "bandwidth per device within a node, one direction, in GB/s; 0 = built-in value, as "
              "for the bandwidths, shares and latencies below",
              Range{0, 1e6})
  TRIREME_KEY(
      double, node_gb_per_second, 0, kMayChange,
      "bandwidth per device between nodes, in GB/s: the node's bandwidth divided by its devices",
      Range{0, 1e6})
  TRIREME_KEY(double, link_share, 0, kMayChange,
              "fraction of the bandwidth within a node that large messages reach", Range{0, 1})
  TRIREME_KEY(double, node_share, 0, kMayChange,
              "fraction of the bandwidth between nodes that large messages reach", Range{0, 1})
  TRIREME_KEY(double, link_microseconds, 0, kMayChange, "latency within a node, in microseconds",
              Range{0, 1e6})
  TRIREME_KEY(double, node_microseconds, 0, kMayChange, "latency between nodes, in microseconds",
              Range{0, 1e6})
  TRIREME_KEY(int64_t, leaf_nodes, 0, kMayChange,
              "nodes per leaf switch; 0 = one switch connects all nodes", Range{0, kMaxRanks})
  TRIREME_KEY(double, oversubscription, 1, kMayChange,
              "ratio of the bandwidth below a leaf switch to the bandwidth between leaf switches",
              Range{1, 1e3})
  TRIREME_KEY(int64_t, site_nodes, 0, kMayChange,
              "nodes per site, of sites that are far apart; 0 = all nodes are on one site",
              Range{0, kMaxRanks})
  TRIREME_KEY(double, site_gb_per_second, 0, kMayChange,
              "bandwidth per device between sites that large messages reach, in GB/s: the site's "
              "bandwidth divided by its devices",
              Range{0, 1e6})
  TRIREME_KEY(double, site_microseconds, 0, kMayChange,
              "latency between sites, one way, in microseconds", Range{0, 1e9})
  TRIREME_KEYS_END()
};

struct PriceConfig {
  TRIREME_KEYS_BEGIN(PriceConfig)
  TRIREME_KEY(double, device_hour, 0, kMayChange, "price of one device for one hour; 0 = unknown",
              Range{0, 1e6})
  TRIREME_KEY(double, kilowatt_hour, 0, kMayChange, "price of one kilowatt-hour; 0 = unknown",
              Range{0, 1e6})
  TRIREME_KEY(double, overhead_watts, 0.5, kMayChange,
              "power of hosts, network and cooling, as a fraction of the devices' power",
              Range{0, 100})
  TRIREME_KEYS_END()
};

struct FailureConfig {
  TRIREME_KEYS_BEGIN(FailureConfig)
  TRIREME_KEY(double, device_mtbf_hours, 0, kMayChange,
              "mean time between failures of one device and its share of the host, in hours; 0 = "
              "no failures",
              Range{0, 1e9})
  TRIREME_KEY(double, recovery_seconds, 10, kMayChange,
              "time from a failure until training continues, in seconds; docs/guide/run.md has "
              "measurements",
              Range{0, 1e6})
  TRIREME_KEY(double, save_seconds, 0, kMayChange,
              "time that training waits for a checkpoint, in seconds; 0 = the time to copy the "
              "states in memory",
              Range{0, 1e6})
  TRIREME_KEY(double, preemptions_per_day, 0, kMayChange,
              "preemptions with notice per day, over the whole cluster", Range{0, 1e5})
  TRIREME_KEY(double, straggler_share, 0, kMayChange,
              "time that the slowest device adds to every step, as a fraction of the step",
              Range{0, 10})
  TRIREME_KEYS_END()
};

// The sections of a CLUSTER file.
struct ClusterFile {
  ClusterConfig cluster;
  DeviceConfig device;
  NetworkConfig network;
  PriceConfig price;
  FailureConfig failures;
};

struct Cluster {
  Device device;
  int64_t nodes = 1;
  int64_t devices_per_node = 1;
  AttentionKernel attention = AttentionKernel::kAuto;
  double expert_skew = 1;
  int64_t leaf_nodes = 0;
  double oversubscription = 1;
  int64_t site_nodes = 0;
  double site_rate = 0;     // bytes per second and device, between sites
  double site_seconds = 0;  // latency between them
  PriceConfig price{};
  FailureConfig failures{};

  int64_t num_devices() const { return nodes * devices_per_node; }
  // Of a site; of all nodes where there is one.
  int64_t site_devices() const {
    return site_nodes > 0 ? site_nodes * devices_per_node : num_devices();
  }
};

// Throws: ConfigError when the device is not known, or sites have no bandwidth
Cluster make_cluster(const ClusterFile& file);

}  // namespace trireme::plan
