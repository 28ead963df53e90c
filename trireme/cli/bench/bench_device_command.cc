// trireme bench device: measures this machine for `trireme simulate` and `trireme plan`.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>
#include <CLI/CLI.hpp>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/cli/bench/bench_peers.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/plan/cluster_file.h"
#include "trireme/cli/plan/device_rates.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/comm/rendezvous/rendezvous.h"

namespace trireme::cli {
namespace {

struct DeviceArguments {
  int ranks = 2;
  double seconds = 0.5;
  std::string output;
  std::string disk;  // a folder
  bool json = false;
};

int measure_rank(const DeviceArguments& arguments) {
  const comm::WorldInfo info = comm::world_info();
  comm::Rendezvous meeting(info);
  const auto group = meeting.connect("auto");
  DeviceRates rates = *measure_device(*group, {.seconds = arguments.seconds});
  if (!arguments.disk.empty()) rates.disk_bytes = measure_disk(*group, arguments.disk);
  if (group->rank() == 0) std::printf("%s\n", line_of(rates).c_str());
  return kDone;
}

int bench_device(const DeviceArguments& arguments) {
  if (comm::is_launched()) return measure_rank(arguments);
  TRIREME_CHECK(arguments.disk.empty() || ::access(arguments.disk.c_str(), W_OK | X_OK) == 0,
                "--disk ", shown(arguments.disk),
                " is not a folder that can be written; expected one on the disk to measure");
  std::vector<std::string> command = {own_program(), "bench", "device", "--seconds",
                                      concat(arguments.seconds)};
  if (!arguments.disk.empty()) command.insert(command.end(), {"--disk", arguments.disk});
  const DeviceRates rates = read_device_line(capture_local_ranks(command, arguments.ranks));
  plan::ClusterFile file = cluster_of(rates, arguments.ranks, /*num_hosts=*/1);
  if (!arguments.output.empty()) {
    write_output("--output", arguments.output,
                 concat("# Measured by `trireme bench device --ranks ", arguments.ranks, "`.\n",
                        cluster_toml(file)));
  }
  if (arguments.json) {
    std::printf("%s\n", line_of(rates).c_str());
    return kDone;
  }
  std::printf("%d ranks at the same time, each:\n", arguments.ranks);
  std::printf("  products, fp32     %8.1f GFLOP/s; half of it with %.0f rows or columns\n",
              rates.single.flops / 1e9, rates.single.half_size);
  std::printf("  products, bf16     %8.1f GFLOP/s; half of it with %.0f columns or %.0f rows\n",
              rates.half.flops / 1e9, rates.half.half_size, rates.half.half_rows);
  std::printf("  attention, fp32    %8.1f GFLOP/s; half of it with %.0f tokens\n",
              rates.attention.flops / 1e9, rates.attention.half_size);
  std::printf("  attention, bf16    %8.1f GFLOP/s; half of it with %.0f tokens\n",
              rates.half_attention.flops / 1e9, rates.half_attention.half_size);
  std::printf("  head               %8.1f GFLOP/s, in bf16 %.1f; its loss %.1f GB/s\n",
              rates.head / 1e9, rates.half_head / 1e9, rates.loss_bytes / 1e9);
  std::printf("  optimizer          %8.1f GB/s, in bf16 %.1f\n", rates.update_bytes / 1e9,
              rates.half_update_bytes / 1e9);
  std::printf("  memory             %8.1f GB/s, by norms and SwiGLU in bf16 %.1f\n",
              rates.memory_bytes / 1e9, rates.half_memory_bytes / 1e9);
  std::printf("  an operation       %8.1f us\n", rates.launch_seconds * 1e6);
  if (arguments.ranks > 1) {
    std::printf("  all-reduce         %8.1f GB/s, %.1f us a hop\n", rates.link_bytes / 1e9,
                rates.link_seconds * 1e6);
  }
  if (rates.disk_bytes > 0) {
    std::printf("  disk               %8.2f GB/s, written and read\n", rates.disk_bytes / 1e9);
  }
  if (!arguments.output.empty()) std::printf("wrote %s\n", printable(arguments.output).c_str());
  return kDone;
}

}  // namespace

void add_bench_device(CLI::App& bench, int& exit_code) {
  auto arguments = std::make_shared<DeviceArguments>();
  CLI::App* command = bench.add_subcommand(
      "device",
      "Measure the speed that this machine's ranks reach simultaneously, and write it as a\n"
      "CLUSTER file.\n"
      "  trireme bench device --ranks 2 --output cluster.toml\n"
      "  trireme simulate examples/demo.toml cluster.toml\n");
  command->add_option("--ranks", arguments->ranks, "number of local ranks")
      ->capture_default_str()
      ->check(within({1, 1024}));
  command
      ->add_option("--seconds", arguments->seconds,
                   "seconds per measurement; there are about twenty")
      ->capture_default_str()
      ->check(within({.minimum = 0, .maximum = 1e6, .above_minimum = true}));
  command->add_option("--disk", arguments->disk,
                      "also measure the disk of this folder, with files of 256 MiB per rank");
  command->add_option("--output", arguments->output, "CLUSTER file to write");
  add_json(*command, arguments->json);
  command->callback([arguments, &exit_code] { exit_code = bench_device(*arguments); });
}

}  // namespace trireme::cli
