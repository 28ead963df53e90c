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

// How attention is computed, which decides its time and what it keeps.
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
  TRIREME_KEY(std::string, device, "cpu", kMayChange, "what computes", device_names)
  TRIREME_KEY(int64_t, nodes, 1, kMayChange, "hosts", Range{1, kMaxRanks})
  TRIREME_KEY(int64_t, devices_per_node, 8, kMayChange, "devices of each host; a rank uses one",
              Range{1, kMaxRanks})
  TRIREME_KEY(AttentionKernel, attention, AttentionKernel::kAuto, kMayChange,
              "whether attention stores its scores; auto = of gpt2 without zero = 3, on a GPU",
              kAttentionKernels)
  TRIREME_KEY(double, expert_skew, 1, kMayChange,
              "with expert ranks: tokens of the busiest one over the mean, for which all wait",
              Range{1, 1e4})
  TRIREME_KEYS_END()
};

// Changes of the built-in device. 0: as built in.
struct DeviceConfig {
  TRIREME_KEYS_BEGIN(DeviceConfig)
  TRIREME_KEY(double, half_teraflops, 0, kMayChange,
              "peak of products in bf16 or fp16; 0 = the built-in device's, like all below",
              Range{0, 1e6})
  TRIREME_KEY(double, single_teraflops, 0, kMayChange, "peak of products in fp32", Range{0, 1e6})
  TRIREME_KEY(double, memory_gib, 0, kMayChange, "memory", Range{0, 1e6})
  TRIREME_KEY(double, memory_gb_per_second, 0, kMayChange, "bandwidth of the memory", Range{0, 1e6})
  TRIREME_KEY(double, product_share, 0, kMayChange,
              "part of the peak that products of large matrices reach", Range{0, 1})
  TRIREME_KEY(double, half_size, 0, kMayChange,
              "rows or columns with which a product reaches half of that", Range{0, 1e6})
  TRIREME_KEY(double, attention_share, 0, kMayChange, "part of the peak that attention reaches",
              Range{0, 1})
  TRIREME_KEY(double, memory_share, 0, kMayChange,
              "part of the memory's bandwidth that elementwise work reaches", Range{0, 1})
  TRIREME_KEY(double, launch_microseconds, 0, kMayChange, "host time to start one operation",
              Range{0, 1e6})
  TRIREME_KEY(double, step_milliseconds, 0, kMayChange,
              "time of a step beside its operations: data, norm, logging", Range{0, 1e6})
  TRIREME_KEY(double, reserved_gib, 0, kMayChange, "memory that the driver and the libraries take",
              Range{0, 1e6})
  TRIREME_KEY(double, disk_gb_per_second, 0, kMayChange,
              "what a device reads and writes of a local disk while all of its node do",
              Range{0, 1e6})
  TRIREME_KEY(double, watts, 0, kMayChange, "power under load", Range{0, 1e5})
  TRIREME_KEYS_END()
};

struct NetworkConfig {
  TRIREME_KEYS_BEGIN(NetworkConfig)
  TRIREME_KEY(double, link_gb_per_second, 0, kMayChange,
              "what a device sends within its node; 0 = the built-in device's, like all below",
              Range{0, 1e6})
  TRIREME_KEY(double, node_gb_per_second, 0, kMayChange,
              "what a device sends to other nodes: the node's bandwidth over its devices",
              Range{0, 1e6})
  TRIREME_KEY(double, link_share, 0, kMayChange, "part of it that large messages reach",
              Range{0, 1})
  TRIREME_KEY(double, node_share, 0, kMayChange, "the same between nodes", Range{0, 1})
  TRIREME_KEY(double, link_microseconds, 0, kMayChange, "latency within a node", Range{0, 1e6})
  TRIREME_KEY(double, node_microseconds, 0, kMayChange, "latency between nodes", Range{0, 1e6})
  TRIREME_KEY(int64_t, leaf_nodes, 0, kMayChange,
              "nodes below one leaf switch; 0 = all nodes are as near", Range{0, kMaxRanks})
  TRIREME_KEY(double, oversubscription, 1, kMayChange,
              "how many times less bandwidth there is between leaves", Range{1, 1e3})
  TRIREME_KEYS_END()
};

struct PriceConfig {
  TRIREME_KEYS_BEGIN(PriceConfig)
  TRIREME_KEY(double, device_hour, 0, kMayChange, "price of a device for an hour; 0 = not given",
              Range{0, 1e6})
  TRIREME_KEY(double, kilowatt_hour, 0, kMayChange, "price of a kilowatt-hour; 0 = not given",
              Range{0, 1e6})
  TRIREME_KEY(double, overhead_watts, 0.5, kMayChange,
              "power of hosts, network and cooling, as a part of the devices'", Range{0, 100})
  TRIREME_KEYS_END()
};

struct FailureConfig {
  TRIREME_KEYS_BEGIN(FailureConfig)
  TRIREME_KEY(double, device_mtbf_hours, 0, kMayChange,
              "mean time between failures of one device and its share of the host; 0 = none fails",
              Range{0, 1e9})
  TRIREME_KEY(double, recovery_seconds, 10, kMayChange,
              "from a failure to training again, such as docs/run.md measures", Range{0, 1e6})
  TRIREME_KEY(double, save_seconds, 0, kMayChange,
              "time that training waits for a checkpoint; 0 = a copy of the states in memory",
              Range{0, 1e6})
  TRIREME_KEY(double, preemptions_per_day, 0, kMayChange,
              "times a day that a host is taken away with notice", Range{0, 1e5})
  TRIREME_KEY(double, straggler_share, 0, kMayChange,
              "how much slower the slowest device is; every step waits for it", Range{0, 10})
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
  PriceConfig price{};
  FailureConfig failures{};

  int64_t num_devices() const { return nodes * devices_per_node; }
};

// Throws: ConfigError when the device is not known
Cluster make_cluster(const ClusterFile& file);

}  // namespace trireme::plan
