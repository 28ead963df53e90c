// trireme network: a command on each host of a made-up network.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/launch/network/network.h"

namespace trireme::cli {

// The report comes after everything that the commands print, which is not touched. With --json
// stdout has the report alone.

namespace {

struct NetworkArguments {
  bool example = false;
  bool json = false;
  double grace_seconds = 10;
  std::string file;
  std::vector<std::string> command;
};

nlohmann::json report_to_json(const launch::NetworkReport& report) {
  nlohmann::json all = {{"exit_code", report.exit_code},
                        {"hosts", nlohmann::json::array()},
                        {"links", nlohmann::json::array()}};
  for (const auto& host : report.hosts) {
    all["hosts"].push_back({{"name", host.name},
                            {"address", host.address},
                            {"exit_code", host.status.code},
                            {"signal", host.status.signal}});
  }
  for (const auto& [from, to, counts] : report.directions) {
    all["links"].push_back({{"from", from},
                            {"to", to},
                            {"packets", counts.packets},
                            {"bytes", counts.bytes},
                            {"lost", counts.lost},
                            {"dropped", counts.dropped}});
  }
  return all;
}

std::string ending_of(const launch::ExitStatus& status) {
  return status.signal != 0 ? killed_by(status.signal) : concat("exit code ", status.code);
}

void print_report(const launch::NetworkReport& report) {
  for (const auto& host : report.hosts) {
    if (host.status.code == 0) continue;
    std::printf("network %s (%s): %s\n", host.name.c_str(), host.address.c_str(),
                ending_of(host.status).c_str());
  }
  for (const auto& [from, to, counts] : report.directions) {
    std::printf("network %s to %s: %llu packets, %s, %llu lost, %llu dropped\n", from.c_str(),
                to.c_str(), static_cast<unsigned long long>(counts.packets),
                human_bytes(static_cast<double>(counts.bytes)).c_str(),
                static_cast<unsigned long long>(counts.lost),
                static_cast<unsigned long long>(counts.dropped));
  }
}

int run_network(const NetworkArguments& arguments, const std::string& program) {
  if (arguments.example) {
    std::fputs(launch::example_network().c_str(), stdout);
    return kDone;
  }
  TRIREME_CHECK(!arguments.file.empty(), "a network file is missing; expected `", program,
                " network wan.toml -- COMMAND`, and `", program,
                " network --example` prints a file");
  launch::NetworkOptions options{.network = launch::read_network(arguments.file),
                                 .command = arguments.command,
                                 .environment = launch::inherited_environment(),
                                 .output = arguments.json ? STDERR_FILENO : -1};
  TRIREME_CHECK(!options.command.empty(), "a command is missing; expected `", program, " network ",
                printable(arguments.file), " -- COMMAND`");
  // `trireme run ...` needs no path to the program.
  if (options.command.front() == program) options.command.front() = own_program();
  options.grace = std::chrono::milliseconds(static_cast<int64_t>(arguments.grace_seconds * 1000));
  std::fflush(stdout);
  const launch::NetworkReport report = launch::run_network(options, [&](const std::string& line) {
    std::fprintf(stderr, "network %s\n", line.c_str());
  });
  if (arguments.json) {
    std::printf("%s\n", json_text(report_to_json(report)).c_str());
  } else {
    print_report(report);
  }
  return report.exit_code;
}

}  // namespace

void add_network(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<NetworkArguments>();
  const std::string name = app.get_name();
  CLI::App* command = app.add_subcommand(
      "network",
      concat(
          "Run a command on each host of a slow network, made up on this machine. Needs root.\n  ",
          name, " network --example > wan.toml\n  ", name, " network wan.toml -- ", name,
          " run --nproc-per-node 1 -- ", name, " train examples/demo.toml\n  ", name,
          " network wan.toml -- sh -c 'ping -c 3 {first}'\n"));
  command->add_option("file", arguments->file,
                      "TOML file of the hosts and of the lines between them (--example)");
  command->add_option("command", arguments->command,
                      "program and arguments of each host, after --");
  command->add_flag("--example", arguments->example, "print a file that shows every key");
  command
      ->add_option("--grace", arguments->grace_seconds,
                   "seconds that the commands have after Ctrl-C or SIGTERM, before SIGKILL")
      ->check(within({0, 3600}))
      ->capture_default_str();
  command->add_flag("--json", arguments->json,
                    "print the report as JSON; the commands' output goes to stderr");
  command->footer(
      "A host has a network, a host name, mounts and /dev/shm of its own, and all else of this\n"
      "machine. In the command {host} is its name, {index} its number from 0, {address} its\n"
      "address, {first} the first host's address and {hosts} their number. `" +
      name +
      " run` and torchrun\n"
      "read the same from PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT.\n"
      "\n"
      "At the end each direction of each line is reported: packets and bytes that were sent over\n"
      "it, those lost on it, and those dropped because its queue was full. The exit code is that\n"
      "of the first command that failed.\n"
      "\n"
      "A file for two hosts (docs/guide/network.md):\n"
      "  [network]\n"
      "  hosts = [\"paris\", \"tokyo\"]\n"
      "  [default]\n"
      "  rate = 10e6      # bits per second\n"
      "  delay_ms = 50    # one way\n");
  command->callback([arguments, name, &exit_code] { exit_code = run_network(*arguments, name); });
}

}  // namespace trireme::cli
