#include "trireme/cli/bench/bench_launch.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/cli/commands.h"
#include "trireme/launch/local_ranks.h"

namespace trireme::cli::inline internal {
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
  std::istringstream lines(errors);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kPrefix)) return line.substr(kPrefix.size());
    if (line.find_first_not_of("- ") != std::string::npos) last = line;
  }
  return last;
}

}  // namespace

std::filesystem::path find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : "";
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
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
                           "TRIREME_ERROR_FD", "OMP_NUM_THREADS"}) {
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

}  // namespace trireme::cli::inline internal
