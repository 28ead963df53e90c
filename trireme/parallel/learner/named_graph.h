// The communication graphs that a config may name.
#pragma once

#include <string>
#include <vector>

#include "trireme/parallel/learner/learner_graph.h"

namespace trireme::parallel {

// Whether the name is that of a file.
bool is_graph_file(const std::string& name);

// name:  complete, ring, torus, exponential, one-peer; base-K for at most K - 1 peers in a round;
//        host for all of a host and then base-2 between hosts; anything with a slash or a full
//        stop is a file (graph_file.h)
// hosts: the host of each learner, by a number
// Throws: ConfigError when there is no such graph, or none for as many learners; as read_graph()
LearnerGraph make_named_graph(const std::string& name, const std::vector<int>& hosts);

}  // namespace trireme::parallel
