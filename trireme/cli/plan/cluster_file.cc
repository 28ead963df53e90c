#include "trireme/cli/plan/cluster_file.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/machine/bf16_product.h"
#include "trireme/base/machine/machine.h"
#include "trireme/base/words.h"
#include "trireme/cli/command_options.h"
#include "trireme/comm/hierarchical/host_identity.h"
#include "trireme/comm/objects.h"
#include "trireme/train/config/read_sections.h"
#include "trireme/train/run/compute_device.h"

namespace trireme::cli {
namespace {

constexpr std::array<std::string_view, 5> kSections = {"cluster", "device", "network", "price",
                                                       "failures"};
constexpr double kGiB = 1 << 30;

std::vector<train::Field> fields_of_file(plan::ClusterFile& file) {
  train::Keys keys;
  keys.add("cluster", file.cluster);
  keys.add("device", file.device);
  keys.add("network", file.network);
  keys.add("price", file.price);
  keys.add("failures", file.failures);
  return keys.take();
}

// The cluster with as many devices as there are ranks.
plan::Cluster resized(plan::Cluster cluster, const std::string& path, int64_t num_ranks) {
  const int64_t per_node = std::min(cluster.devices_per_node, num_ranks);
  TRIREME_CHECK(num_ranks % per_node == 0, "parallel.cluster ", shown(path), " has nodes of ",
                per_node, " devices, which do not divide the ", num_ranks,
                " ranks; set cluster.devices_per_node there to the ranks of a host");
  cluster.devices_per_node = per_node;
  cluster.nodes = num_ranks / per_node;
  return cluster;
}

plan::ClusterFile gpu_cluster(int num_ranks, int num_hosts) {
  const std::string name = train::gpu_name();
  const plan::Device* const device = plan::device_of_driver(name);
  TRIREME_CHECK(device != nullptr, "the cost model does not know the GPU \"", shown(name),
                "\"; set parallel.cluster to a file that describes it, such as "
                "examples/clusters/dgx-h100.toml");
  plan::ClusterFile file;
  file.cluster.device = device->name;
  file.cluster.nodes = num_hosts;
  file.cluster.devices_per_node = num_ranks / num_hosts;
  return file;
}

// "" when there is none.
std::string file_of(const train::RunConfig& config) {
  return config.parallel.cluster == "none" ? "" : config.parallel.cluster;
}

// Whether a key is of a CLUSTER file, such as cluster.nodes.
bool is_of_cluster(const train::Override& override_) {
  const std::string section = override_.first.substr(0, override_.first.find('.'));
  return std::ranges::count(kSections, section) > 0;
}

}  // namespace

plan::Cluster read_cluster(const std::string& path, std::span<const train::Override> overrides) {
  plan::ClusterFile file;
  train::read_sections(path, fields_of_file(file), overrides,
                       "`trireme bench device --output cluster.toml` writes one, and "
                       "examples/clusters has some");
  return plan::make_cluster(file);
}

PlanningCase load_files(const std::string& config, const std::string& cluster,
                        const std::vector<std::string>& overrides, const train::Offer& offer) {
  std::vector<train::Override> of_run = parse_overrides(overrides), of_cluster;
  std::ranges::copy_if(of_run, std::back_inserter(of_cluster), is_of_cluster);
  std::erase_if(of_run, is_of_cluster);
  PlanningCase planning;
  planning.config = train::load_config(config, offer, of_run);
  planning.cluster = read_cluster(cluster, of_cluster);
  if (planning.cluster.device.is_asynchronous) train::check_fits_gpus(planning.config);
  return planning;
}

std::string cluster_toml(plan::ClusterFile& file) {
  return train::sections_to_toml(fields_of_file(file));
}

std::string describe_cluster_keys() {
  plan::ClusterFile file;
  return train::describe_fields(fields_of_file(file));
}

plan::ClusterFile cluster_of(const DeviceRates& rates, int num_ranks, int num_hosts) {
  plan::ClusterFile file;
  const int ranks_of_host = num_ranks / num_hosts;
  file.cluster.device = "cpu";
  file.cluster.nodes = num_hosts;
  file.cluster.devices_per_node = ranks_of_host;
  plan::DeviceConfig& device = file.device;
  device.single_teraflops = rates.single.flops / 1e12;
  device.half_teraflops = rates.half.flops / 1e12;
  device.product_share = 1;
  device.half_size = rates.single.half_size;
  const auto share = [](double rate, double of) { return std::min(1.0, rate / of); };
  device.attention_share = share(rates.attention.flops, rates.single.flops);
  device.attention_half_size = rates.attention.half_size;
  device.head_share = share(rates.head, rates.single.flops);
  device.bf16_half_size = rates.half.half_size;
  device.bf16_half_rows = rates.half.half_rows;
  device.bf16_attention_share = share(rates.half_attention.flops, rates.half.flops);
  device.bf16_attention_half_size = rates.half_attention.half_size;
  device.bf16_head_share = share(rates.half_head, rates.half.flops);
  device.memory_gb_per_second = rates.memory_bytes / 1e9;
  device.memory_share = 1;
  device.bf16_memory_share = share(rates.half_memory_bytes, rates.memory_bytes);
  device.loss_share = share(rates.loss_bytes, rates.memory_bytes);
  device.update_share = share(rates.update_bytes, rates.memory_bytes);
  device.bf16_update_share = share(rates.half_update_bytes, rates.memory_bytes);
  device.launch_microseconds = rates.launch_seconds * 1e6;
  device.disk_gb_per_second = rates.disk_bytes / 1e9;
  device.reserved_gib = rates.resident_bytes / kGiB;
  device.memory_gib = static_cast<double>(machine_memory_bytes()) / ranks_of_host / kGiB;
  if (num_ranks == 1) return file;
  plan::NetworkConfig& network = file.network;
  network.link_gb_per_second = rates.link_bytes / 1e9;
  network.link_share = 1;
  network.link_microseconds = rates.link_seconds * 1e6;
  if (num_hosts > 1) {  // the slowest link decided what was measured
    network.node_gb_per_second = network.link_gb_per_second;
    network.node_share = 1;
    network.node_microseconds = network.link_microseconds;
  }
  return file;
}

bool need_measuring(const train::RunConfig& config) {
  return file_of(config).empty() && !config.device.is_cuda();
}

std::optional<RankFacts> measure_ranks(const train::RunConfig& config, comm::Communicator& group,
                                       const MeasureOptions& options) {
  const comm::HostMap hosts(comm::all_gather_strings(group, comm::host_identity()));
  RankFacts facts{.num_hosts = hosts.num_hosts()};
  if (!need_measuring(config)) return facts;
  const std::optional<DeviceRates> rates = measure_device(group, options);
  if (!rates) return std::nullopt;
  facts.rates = *rates;
  return facts;
}

plan::Cluster cluster_of_ranks(const train::RunConfig& config, const RankFacts& facts,
                               int num_ranks) {
  if (const std::string path = file_of(config); !path.empty()) {
    return resized(read_cluster(path), path, num_ranks);
  }
  TRIREME_CHECK(num_ranks % facts.num_hosts == 0, num_ranks, " ranks on ", facts.num_hosts,
                " hosts: the cost model describes hosts with equal numbers of ranks; start as many "
                "on each");
  return plan::make_cluster(config.device.is_cuda()
                                ? gpu_cluster(num_ranks, facts.num_hosts)
                                : cluster_of(facts.rates, num_ranks, facts.num_hosts));
}

plan::Cluster assumed_cluster(const train::RunConfig& config, int num_ranks) {
  if (const std::string path = file_of(config); !path.empty()) {
    return resized(read_cluster(path), path, num_ranks);
  }
  plan::ClusterFile file;
  file.cluster.devices_per_node = num_ranks;
  file.device.memory_gib = static_cast<double>(machine_memory_bytes()) / num_ranks / kGiB;
  // As measured on a Xeon with AMX; what multiplies bf16 no faster than fp32 also widens the head.
  constexpr double kGainOfBf16 = 8;
  if (has_bf16_product()) {
    file.device.half_teraflops = kGainOfBf16 * plan::device_named("cpu").peak_single / 1e12;
  }
  return plan::make_cluster(file);
}

}  // namespace trireme::cli
