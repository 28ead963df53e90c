#include "trireme/cli/bench/bench_peers.h"

#include <algorithm>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/median.h"
#include "trireme/cli/bench/bench_launch.h"
#include "trireme/cli/bench/bench_report.h"

namespace trireme::cli::inline internal {
namespace {

// "all_reduce,barrier": each value once, in order of first use.
template <typename Name>
std::string join_names(const std::vector<CommCase>& cases, Name name) {
  std::vector<std::string> names;
  std::string joined;
  for (const CommCase& what : cases) {
    const std::string text = name(what);
    if (text.empty() || std::ranges::find(names, text) != names.end()) continue;
    names.push_back(text);
    joined += (joined.empty() ? "" : ",") + text;
  }
  return joined;
}

bool matches(const CommResult& a, const CommResult& b) {
  return a.what.operation == b.what.operation && a.what.bytes == b.what.bytes &&
         a.num_ranks == b.num_ranks &&
         (a.what.dtype == b.what.dtype || a.what.operation == CommOperation::kBarrier);
}

}  // namespace

void check_peers(const std::vector<std::string>& names, const PeerOptions& options) {
  for (const std::string& name : names) {
    TRIREME_CHECK(name == "gloo" || name == "mpi", "--compare has \"", name,
                  "\"; expected one of gloo, mpi");
    if (name == "gloo") {
      TRIREME_CHECK(!find_program(options.python).empty(),
                    "--compare gloo needs a python with torch, and ", options.python,
                    " is none; install torch (pip install torch) and give --python");
    } else {
      TRIREME_CHECK(
          !find_program(options.folder / "mpi_peer").empty() && !find_program("mpirun").empty(),
          "--compare mpi needs Open MPI, which was not found; install it (apt-get install "
          "libopenmpi-dev openmpi-bin) and build again");
    }
  }
}

std::vector<CommResult> run_peer(const std::string& name, const PeerOptions& options,
                                 const std::vector<CommCase>& cases, int num_ranks,
                                 double seconds_per_case) {
  const std::string sizes = join_names(
      cases, [](const CommCase& what) { return what.bytes > 0 ? std::to_string(what.bytes) : ""; });
  const std::vector<std::string> arguments = {"--operation",
                                              join_names(cases, [](const CommCase& what) { return name_of(what.operation); }),
                                              "--dtype",
                                              join_names(cases, [](const CommCase& what) { return name_of(what.dtype); }),
                                              "--sizes",
                                              sizes.empty() ? "8" : sizes,
                                              "--seconds",
                                              std::to_string(seconds_per_case)};
  std::vector<std::string> command;
  if (name == "gloo") {
    command = {options.python, options.folder / "gloo_peer.py"};
  } else {
    command = {options.folder / "mpi_peer"};
  }
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::istringstream lines(name == "gloo" ? capture_local_ranks(command, num_ranks)
                                          : capture_mpirun(command, num_ranks));
  std::vector<CommResult> results;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('{')) results.push_back(read_line(line));
  }
  return results;
}

void add_peer(std::vector<CommResult>& results, const std::string& name,
              const std::vector<std::vector<CommResult>>& rounds) {
  for (CommResult& result : results) {
    std::vector<double> times;
    for (const std::vector<CommResult>& round : rounds) {
      const auto same = std::ranges::find_if(
          round, [&](const CommResult& other) { return matches(result, other); });
      if (same != round.end()) times.push_back(same->microseconds);
    }
    if (!times.empty()) result.peers[name] = median(times);
  }
}

std::vector<CommResult> median_of_rounds(const std::vector<std::vector<CommResult>>& rounds) {
  std::vector<CommResult> results = rounds.front();
  for (size_t i = 0; i < results.size(); ++i) {
    const auto median_of = [&](double CommResult::*field) {
      std::vector<double> values;
      for (const std::vector<CommResult>& round : rounds) {
        TRIREME_ASSERT(round.size() == results.size(), "a round has ", round.size(), " cases of ",
                       results.size());
        values.push_back(round[i].*field);
      }
      results[i].*field = median(values);
    };
    median_of(&CommResult::microseconds);
    median_of(&CommResult::p99_microseconds);
    median_of(&CommResult::memcpy_microseconds);
  }
  return results;
}

}  // namespace trireme::cli::inline internal
