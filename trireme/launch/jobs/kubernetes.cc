#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/comm/rendezvous/launcher_values.h"
#include "trireme/launch/jobs/job_hosts.h"

namespace trireme::launch {
namespace {

constexpr const char* kManifestHas = "the Job's manifest has";
constexpr int kTorchrunPort = 29400;  // of torchrun's own rendezvous; a pod has its own ports

struct HostRange {
  int minimum = 0, maximum = 0;
};

// "4" or torchrun's "2:4".
HostRange host_range(const Variables& variables) {
  const std::string& text = needed(
      variables, "PET_NNODES",
      "expected the number of pods, the Job's spec.completions, or --nnodes 1 in each pod of a Job "
      "whose pods work alone");
  const size_t colon = text.find(':');
  const std::string first = text.substr(0, colon);
  const std::string last = colon == std::string::npos ? first : text.substr(colon + 1);
  const HostRange range{comm::whole_number("PET_NNODES", first, 1, kManifestHas),
                        comm::whole_number("PET_NNODES", last, 1, kManifestHas)};
  TRIREME_CHECK(
      range.minimum <= range.maximum && range.maximum <= static_cast<int>(comm::kMaxJobHosts),
      "PET_NNODES is \"", shown(text), "\"; expected N or MINIMUM:MAXIMUM, at most ",
      comm::kMaxJobHosts);
  return range;
}

struct Endpoint {
  std::string host;
  int port = kTorchrunPort;
};

// "host:29400", "host" or "[::1]:29400".
Endpoint parse_endpoint(const std::string& text) {
  const size_t bracket = text.starts_with('[') ? text.find(']') : 0;
  const size_t colon = text.rfind(':');
  // A bare IPv6 address has colons and no port. Only brackets tell them apart.
  const bool has_port = colon != std::string::npos && bracket != std::string::npos &&
                        colon >= bracket && (bracket > 0 || text.find(':') == colon);
  Endpoint endpoint{text.substr(0, has_port ? colon : text.size())};
  if (has_port) {
    endpoint.port =
        comm::whole_number("PET_RDZV_ENDPOINT", text.substr(colon + 1), 1, kManifestHas);
  }
  return endpoint;
}

Endpoint read_endpoint(const Variables& variables, int num_hosts) {
  const std::string& backend = value_of(variables, "PET_RDZV_BACKEND");
  // Other backends, such as etcd, need a server that is not ours.
  TRIREME_CHECK(backend.empty() || backend == "static" || backend == "c10d",
                "PET_RDZV_BACKEND is \"", shown(backend),
                "\"; expected c10d or static, where agents meet at the first host");
  Endpoint endpoint;
  if (const std::string& text = value_of(variables, "PET_RDZV_ENDPOINT"); !text.empty()) {
    endpoint = parse_endpoint(text);
  } else if (num_hosts == 1) {
    // A pod alone needs to meet nobody.
    endpoint.host = "127.0.0.1";
  }
  if (const std::string& host = value_of(variables, "PET_MASTER_ADDR"); !host.empty()) {
    endpoint.host = host;
  }
  if (!value_of(variables, "PET_MASTER_PORT").empty()) {
    endpoint.port = number_of(variables, "PET_MASTER_PORT", 1, kManifestHas);
  }
  TRIREME_CHECK(!endpoint.host.empty(),
                "environment variable PET_MASTER_ADDR is not set; expected the first pod's name, "
                "as in JOB-0.SERVICE of an Indexed Job with a headless service");
  TRIREME_CHECK(endpoint.port <= 65535, "the port of PET_MASTER_PORT or PET_RDZV_ENDPOINT is ",
                endpoint.port, "; expected at most 65535");
  return endpoint;
}

// -1 when only an endpoint is known, as in Kubeflow's elastic jobs.
int read_rank(const Variables& variables, int num_hosts) {
  const std::string_view name = first_set(variables, {"PET_NODE_RANK", "JOB_COMPLETION_INDEX"});
  if (name.empty()) {
    TRIREME_CHECK(num_hosts == 1 || !value_of(variables, "PET_RDZV_ENDPOINT").empty(),
                  "environment variables PET_NODE_RANK and JOB_COMPLETION_INDEX are not set; "
                  "expected one of them, or PET_RDZV_ENDPOINT");
    return num_hosts == 1 ? 0 : -1;
  }
  const int rank = number_of(variables, name, 0, kManifestHas);
  TRIREME_CHECK(rank < num_hosts, name, " is ", rank,
                "; expected below PET_NNODES = ", value_of(variables, "PET_NNODES"));
  // Two numbers for one pod would make two agents of one rank.
  const std::string& index = value_of(variables, "JOB_COMPLETION_INDEX");
  TRIREME_CHECK(index.empty() || index == value_of(variables, name), name, " is ", rank,
                "; expected JOB_COMPLETION_INDEX = ", shown(index));
  return rank;
}

// The pods of a Job are called alike: job-0.service, job-1.service.
void name_hosts(const std::string& head, std::vector<JobHost>& hosts) {
  const size_t dot = std::min(head.find('.'), head.size());
  const bool is_numbered = dot >= 2 && head.substr(dot - 2, 2) == "-0";
  for (size_t i = 0; i < hosts.size(); ++i) {
    hosts[i].name = i == 0        ? head
                    : is_numbered ? head.substr(0, dot - 1) + std::to_string(i) + head.substr(dot)
                                  : "";
  }
}

}  // namespace

std::optional<JobHosts> read_kubernetes(const JobView& view) {
  const Variables& variables = view.variables;
  if (first_set(variables, {"JOB_COMPLETION_INDEX", "PET_NODE_RANK", "PET_NNODES",
                            "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT"})
          .empty()) {
    return std::nullopt;
  }
  JobHosts job{.scheduler = "Kubernetes"};
  const HostRange range = host_range(variables);
  job.min_hosts = range.minimum;
  job.node_rank = read_rank(variables, range.maximum);
  const Endpoint endpoint = read_endpoint(variables, range.maximum);
  job.hosts.resize(static_cast<size_t>(range.maximum));
  name_hosts(endpoint.host, job.hosts);
  job.port = endpoint.port;
  const std::string& id = value_of(variables, "PET_RDZV_ID");
  job.id = id.empty() ? endpoint.host : id;
  // torchrun also takes auto, cpu and gpu, which say no number.
  const std::string& workers = value_of(variables, "PET_NPROC_PER_NODE");
  if (!workers.empty() && workers != "auto" && workers != "cpu" && workers != "gpu") {
    job.nproc_per_node = number_of(variables, "PET_NPROC_PER_NODE", 1, kManifestHas);
  }
  return job;
}

}  // namespace trireme::launch
