#include "trireme/parallel/learner/named_graph.h"

#include <charconv>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/parallel/learner/base_graph.h"
#include "trireme/parallel/learner/graph_file.h"

namespace trireme::parallel {
namespace {

constexpr std::string_view kBase = "base-";

// K of "base-K"; 0: it is none.
int base_of(std::string_view name) {
  if (!name.starts_with(kBase)) return 0;
  name.remove_prefix(kBase.size());
  int base = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), base);
  const bool is_base = error == std::errc() && end == name.data() + name.size() && base >= 2 &&
                       base <= kMostLearners;
  return is_base ? base : 0;
}

}  // namespace

bool is_graph_file(const std::string& name) {
  return name.find_first_of("/.") != std::string::npos;
}

LearnerGraph make_named_graph(const std::string& name, const std::vector<int>& hosts) {
  const int n = static_cast<int>(hosts.size());
  if (name == "complete") return make_complete_graph(n);
  if (name == "ring") return make_ring_graph(n);
  if (name == "torus") return make_torus_graph(n);
  if (name == "exponential") return make_exponential_graph(n);
  if (name == "one-peer") return make_one_peer_graph(n);
  if (name == "host") return make_host_graph(hosts, make_base_graph(count_hosts_of(hosts), 1));
  if (const int base = base_of(name); base > 0) return make_base_graph(n, base - 1);
  TRIREME_CHECK(
      is_graph_file(name), "outer.graph is \"", shown(name),
      "\"; expected complete, ring, torus, exponential, one-peer, base-2, host or a file");
  LearnerGraph graph = read_graph(name);
  TRIREME_CHECK(graph.num_learners == n, "outer.graph ", shown(name), " is for ",
                graph.num_learners, " learners, and there are ", n,
                "; write one for as many, or choose base-2");
  return graph;
}

}  // namespace trireme::parallel
