// What `trireme run` knows of its job and writes for one, without the program, for tests of real
// schedulers and parsers.
//   job_tool hosts                     this process's job, as one JSON object
//   job_tool emit SYSTEM [KEY=VALUE ...] [-- OVERRIDE ...]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include <unistd.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/launch/jobs/emit.h"
#include "trireme/launch/jobs/job_hosts.h"

extern char** environ;

namespace trireme::launch {
namespace {

void print_hosts() {
  JobView view;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const char* const equals = std::strchr(*entry, '=');
    if (equals != nullptr)
      view.variables[std::string(*entry, static_cast<size_t>(equals - *entry))] = equals + 1;
  }
  char hostname[256] = {};
  gethostname(hostname, sizeof hostname - 1);
  view.hostname = hostname;
  const auto job = read_job_hosts(view);
  if (!job) throw ConfigError("no scheduler");
  nlohmann::json hosts = nlohmann::json::array();
  for (const JobHost& host : job->hosts)
    hosts.push_back({{"name", host.name}, {"slots", host.slots}});
  std::cout
      << nlohmann::json{{"scheduler", job->scheduler}, {"id", job->id},       {"hosts", hosts},
                        {"node_rank", job->node_rank}, {"head", job->head()}, {"port", job->port}}
      << "\n";
}

void print_file(int argc, char** argv) {
  JobOptions options{.system = choose(kJobSystems, "SYSTEM", argv[2]), .config = "run.toml"};
  int i = 3;
  for (; i < argc && std::string(argv[i]) != "--"; ++i) {
    const std::string word = argv[i];
    const std::string key = word.substr(0, word.find('=')), value = word.substr(key.size() + 1);
    if (key == "config") options.config = value;
    if (key == "name") options.name = value;
    if (key == "image") options.image = value;
    if (key == "claim") options.claim = value;
    if (key == "partition") options.partition = value;
    if (key == "account") options.account = value;
    if (key == "program") options.program = value;
    if (key == "nnodes") options.nnodes = options.min_nnodes = std::stoi(value);
    if (key == "min_nnodes") options.min_nnodes = std::stoi(value);
    if (key == "nproc") options.nproc_per_node = std::stoi(value);
    if (key == "cpus") options.cpus_per_node = std::stoi(value);
    if (key == "gpus") options.gpus_per_node = std::stoi(value);
    if (key == "time") options.time = std::chrono::seconds(std::stoi(value));
    if (key == "notice") options.notice = std::chrono::seconds(std::stoi(value));
  }
  for (++i; i < argc; ++i) options.overrides.emplace_back(argv[i]);
  std::cout << emit_job(options);
}

}  // namespace
}  // namespace trireme::launch

int main(int argc, char** argv) {
  try {
    const std::string command = argc > 1 ? argv[1] : "";
    if (command == "hosts") {
      trireme::launch::print_hosts();
    } else if (command == "emit" && argc > 2) {
      trireme::launch::print_file(argc, argv);
    } else {
      throw trireme::ConfigError("expected hosts or emit");
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
