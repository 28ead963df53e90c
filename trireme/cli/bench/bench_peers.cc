#include "trireme/cli/bench/bench_peers.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/numbers.h"
#include "trireme/base/words.h"
#include "trireme/cli/bench/bench_comm.h"
#include "trireme/cli/commands.h"
#include "trireme/launch/local_ranks.h"

namespace trireme::cli {
namespace {

// Captures what this process and its children write to `descriptor`, in memory.
class OutputCapture {
 public:
  explicit OutputCapture(int descriptor)
      : descriptor_(descriptor),
        original_(dup(descriptor)),
        memory_(memfd_create("trireme-output", MFD_CLOEXEC)) {
    std::fflush(stdout);
    if (original_ < 0 || memory_ < 0 || dup2(memory_, descriptor_) < 0) {
      throw Error(concat("cannot redirect descriptor ", descriptor, ": ", std::strerror(errno)));
    }
  }
  ~OutputCapture() {
    dup2(original_, descriptor_);
    close(original_);
    close(memory_);
  }
  OutputCapture(const OutputCapture&) = delete;
  OutputCapture& operator=(const OutputCapture&) = delete;

  std::string text() const {
    std::string text;
    char block[4096];
    ssize_t count = 0;
    while ((count = pread(memory_, block, sizeof(block), static_cast<off_t>(text.size()))) > 0) {
      text.append(block, static_cast<size_t>(count));
    }
    return text;
  }

 private:
  int descriptor_;
  int original_;
  int memory_;
};

[[noreturn]] void throw_failure(int code, const std::string& message) {
  if (code == kUserError) throw ConfigError(message);
  if (code == kPeerLost) throw CommError(message);
  throw InternalError(message);
}

// The line in which our program said why it failed, or else the last line that is not empty.
std::string reason_in(const std::string& errors) {
  constexpr std::string_view kPrefix = "trireme: ";
  TextReader lines(errors);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kPrefix)) return line.substr(kPrefix.size());
    if (line.find_first_not_of("- ") != std::string::npos) last = line;
  }
  return last;
}

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

std::filesystem::path find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : "";
  const char* path = std::getenv("PATH");
  TextReader folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::filesystem::path program = std::filesystem::path(folder) / name;
    if (access(program.c_str(), X_OK) == 0) return program;
  }
  return {};
}

void bind_to_core(int rank, int num_ranks) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  if (num_ranks > CPU_COUNT(&allowed)) return;
  cpu_set_t own;
  CPU_ZERO(&own);
  for (int core = 0, index = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed) && index++ == rank) CPU_SET(core, &own);
  }
  sched_setaffinity(0, sizeof(own), &own);  // if this is refused, the times are noisier
}

std::string capture_local_ranks(const std::vector<std::string>& command, int num_ranks) {
  const OutputCapture output(STDOUT_FILENO);
  const launch::RankExit exit =
      launch::run_local_ranks({.num_ranks = num_ranks, .command = command});
  if (exit.rank < 0) return output.text();
  throw_failure(exit.signal != 0 ? static_cast<int>(kPeerLost) : exit.code, launch::describe(exit));
}

std::string capture_mpirun(const std::vector<std::string>& command, int num_ranks) {
  TRIREME_CHECK(!find_program("mpirun").empty(),
                "mpirun is not in PATH; install Open MPI: apt-get install openmpi-bin");
  // mpirun itself is started as one rank, so that signals reach it and it ends with this process.
  // Its own ranks must not see the variables of that rank.
  std::vector<std::string> words = {"env"};
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                           "TRIREME_ERROR_FD", "TRIREME_READY_FD", "OMP_NUM_THREADS"}) {
    words.insert(words.end(), {"-u", name});
  }
  words.insert(words.end(), {"mpirun", "-n", std::to_string(num_ranks), "--use-hwthread-cpus"});
  if (num_ranks > static_cast<int>(std::thread::hardware_concurrency())) {
    words.push_back("--oversubscribe");
  }
  if (geteuid() == 0) words.push_back("--allow-run-as-root");
  words.insert(words.end(), command.begin(), command.end());
  const OutputCapture output(STDOUT_FILENO);
  const OutputCapture errors(STDERR_FILENO);
  const launch::RankExit exit = launch::run_local_ranks({.num_ranks = 1, .command = words});
  if (exit.rank < 0) return output.text();
  const std::string reason = reason_in(errors.text());
  // A code above 128 means that a signal killed a rank.
  const bool is_killed = exit.signal != 0 || exit.code > 128;
  throw_failure(is_killed ? static_cast<int>(kPeerLost) : exit.code,
                reason.empty() ? concat("mpirun: ", launch::describe(exit)) : reason);
}

void check_peers(const std::vector<std::string>& names, const PeerOptions& options) {
  for (const std::string& name : names) {
    TRIREME_CHECK(name == "gloo" || name == "mpi", "--compare has \"", name,
                  "\"; expected one of gloo, mpi");
    if (name == "gloo") {
      TRIREME_CHECK(!find_program(options.python).empty(),
                    "--compare gloo needs a python with torch, and ", options.python,
                    " is none; install torch (pip install torch) and give --python");
    } else {
      const char* const install = "install Open MPI (apt-get install libopenmpi-dev openmpi-bin)";
      TRIREME_CHECK(!find_program("mpirun").empty(),
                    "--compare mpi needs Open MPI, and mpirun is not in PATH; ", install,
                    " and build again");
      const std::filesystem::path peer = options.folder / "mpi_peer";
      TRIREME_CHECK(!find_program(peer).empty(), "--compare mpi runs ", shown(peer.string()),
                    ", which was not built; build the target mpi_peer, or, where the build knows "
                    "no such target, ",
                    install, ", configure and build again");
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
                                              concat(seconds_per_case)};
  std::vector<std::string> command;
  if (name == "gloo") {
    command = {options.python, options.folder / "gloo_peer.py"};
  } else {
    command = {options.folder / "mpi_peer"};
  }
  command.insert(command.end(), arguments.begin(), arguments.end());
  TextReader lines(name == "gloo" ? capture_local_ranks(command, num_ranks)
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
    median_of(&CommResult::loop_microseconds);
  }
  return results;
}

}  // namespace trireme::cli
