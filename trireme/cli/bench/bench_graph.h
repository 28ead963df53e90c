// The output of `trireme bench graph`: a communication graph of learners, checked.
#pragma once

#include <string>
#include <vector>

#include "trireme/parallel/learner/graph_check.h"
#include "trireme/parallel/learner/learner_graph.h"

namespace trireme::cli {

struct GraphCase {
  std::string graph = "ring";  // a name or a file (named_graph.h)
  int num_learners = 0;        // 0: of a file its own number, of a name four
  int num_hosts = 1;           // of the graph `host`: learners are on them in order, equally many
  int num_rounds = 8;          // of the table of errors
};

struct GraphFindings {
  parallel::LearnerGraph graph;
  parallel::GraphReport report;
  std::vector<double> errors;  // errors_by_round(), from 0 to num_rounds
};

// Throws: ConfigError when there is no such graph for as many learners, or hosts do not divide them
GraphFindings check_graph(const GraphCase& what);

// Lines of at most 80 columns.
std::string show_graph(const GraphFindings& findings);
std::string graph_json(const GraphFindings& findings);

}  // namespace trireme::cli
