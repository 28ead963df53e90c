// trireme bench comm: times the collectives for transports, memory, sizes and numbers of ranks.
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>
#include <CLI/CLI.hpp>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/cli/bench/bench_comm.h"
#include "trireme/cli/bench/bench_peers.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/comm/message/mpi_group.h"
#include "trireme/comm/rendezvous/rendezvous.h"
#include "trireme/comm/shared/thread_group.h"

namespace trireme::cli {

// Ranks are made in three ways: as threads of this process, as processes that this program starts
// and whose rank 0 prints a line for each case, and by somebody else's launcher. The cases and
// their checks are the same. The time is divided into rounds that alternate with those of the
// peers, because a machine is slower in some minutes than in others; the median of the rounds
// counts. A thread that fails gives up its group, so that the others end as well. Its error is
// shown and not theirs, which only report a lost peer.

namespace {

using Words = std::vector<std::string>;

struct BenchArguments {
  Words ranks = {"2"};  // each list as typed: words, or words joined by commas
  Words operations = {"all_reduce"};
  Words sizes = {"4,64K,1M,16M"};
  Words transports = {"shm"};
  Words memories = {"ordinary,symmetric"};
  Words dtypes = {"fp32"};
  Words compare = {};
  double seconds = 0.5;
  int num_rounds = 0;  // 0: 3 with peers, otherwise 1
  std::string python = TRIREME_PYTHON;
  bool ranks_given = false;
  bool json = false;
  bool lines = false;  // internal: a rank started by the launcher prints one object per line
};

// The checked arguments.
struct BenchPlan {
  std::vector<int> rank_counts;
  Words transports;
  std::vector<CommCase> cases;
  Words peers;
  int num_rounds = 1;
  double seconds_per_round = 0;
  PeerOptions peer_options;
};

BenchPlan plan_of(const BenchArguments& arguments) {
  BenchPlan plan;
  plan.rank_counts = parse_rank_counts(arguments.ranks);
  plan.transports = parse_names("--transport", arguments.transports);
  plan.cases =
      combine_cases(parse_operations(arguments.operations), parse_memories(arguments.memories),
                    parse_dtypes(arguments.dtypes), parse_sizes(arguments.sizes));
  if (!arguments.compare.empty()) plan.peers = parse_names("--compare", arguments.compare);
  plan.num_rounds = arguments.num_rounds > 0 ? arguments.num_rounds : plan.peers.empty() ? 1 : 3;
  plan.seconds_per_round = arguments.seconds / plan.num_rounds;
  const std::filesystem::path program = own_program();
  plan.peer_options = {program.parent_path().parent_path() / TRIREME_PEER_FOLDER, arguments.python};
  check_peers(plan.peers, plan.peer_options);
  return plan;
}

// A line on a terminal that is overwritten, and erased at the end.
class ProgressLine {
 public:
  ~ProgressLine() { write(""); }
  void show(const std::string& text) { write(text.c_str()); }

 private:
  void write(const char* text) const {
    if (is_terminal_) std::fprintf(stderr, "\r\033[K%.79s", text);
  }
  bool is_terminal_ = isatty(STDERR_FILENO) == 1;
};

// Runs the cases on one rank. Rank 0 shows the progress.
std::vector<CommResult> run_rank(comm::Communicator& group, const std::string& transport,
                                 const BenchPlan& plan) {
  if (group.rank() != 0) return run_cases(group, transport, plan.cases, plan.seconds_per_round);
  ProgressLine progress;
  size_t index = 0;
  return run_cases(group, transport, plan.cases, plan.seconds_per_round, [&](const CommCase& what) {
    progress.show(concat(transport, ", ", group.size(), " ranks: ", name_of(what.operation), " ",
                         human_bytes(static_cast<double>(what.bytes)), " ", name_of(what.memory),
                         " ", name_of(what.dtype), " (", ++index, "/", plan.cases.size(), ")"));
  });
}

std::vector<CommResult> run_threads(int num_ranks, const BenchPlan& plan) {
  auto groups = comm::make_thread_group(num_ranks);
  std::vector<CommResult> results;
  std::vector<std::exception_ptr> lost(num_ranks);    // peers of the rank that failed
  std::vector<std::exception_ptr> failed(num_ranks);  // that rank
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < num_ranks; ++rank) {
      threads.emplace_back([&, rank] {
        bind_to_core(rank, num_ranks);
        try {
          std::vector<CommResult> own = run_rank(*groups[rank], "thread", plan);
          if (rank == 0) results = std::move(own);
        } catch (const CommError&) {
          lost[rank] = std::current_exception();
        } catch (...) {
          failed[rank] = std::current_exception();
        }
        if (lost[rank] || failed[rank]) groups[rank].reset();  // the others stop waiting
      });
    }
  }
  for (const auto* errors : {&failed, &lost}) {
    for (const std::exception_ptr& error : *errors) {
      if (error) std::rethrow_exception(error);
    }
  }
  return results;
}

// This program's command for one rank.
Words rank_command(const BenchArguments& arguments, const std::string& transport, double seconds) {
  Words command = {own_program(), "bench", "comm", "--rank-lines", "--transport", transport};
  const auto add = [&](const char* option, const Words& words) {
    command.emplace_back(option);
    command.insert(command.end(), words.begin(), words.end());
  };
  add("--operation", arguments.operations);
  add("--sizes", arguments.sizes);
  add("--memory", arguments.memories);
  add("--dtype", arguments.dtypes);
  add("--seconds", {concat(seconds)});
  return command;
}

std::vector<CommResult> run_round(const BenchArguments& arguments, const BenchPlan& plan,
                                  const std::string& transport, int num_ranks) {
  if (transport == "thread") return run_threads(num_ranks, plan);
  const Words command = rank_command(arguments, transport, plan.seconds_per_round);
  TextReader lines(transport == "mpi" ? capture_mpirun(command, num_ranks)
                                      : capture_local_ranks(command, num_ranks));
  std::vector<CommResult> results;
  for (std::string line; std::getline(lines, line);) results.push_back(read_line(line));
  TRIREME_ASSERT(results.size() == plan.cases.size(), "rank 0 printed ", results.size(),
                 " results of ", plan.cases.size());
  return results;
}

// Alternates our runs and the peers', so that a slow minute of the machine affects all of them.
std::vector<CommResult> run_rounds(const BenchArguments& arguments, const BenchPlan& plan,
                                   const std::string& transport, int num_ranks) {
  ProgressLine progress;
  std::vector<std::vector<CommResult>> rounds;
  std::map<std::string, std::vector<std::vector<CommResult>>> peer_rounds;
  for (int round = 1; round <= plan.num_rounds; ++round) {
    rounds.push_back(run_round(arguments, plan, transport, num_ranks));
    for (const std::string& peer : plan.peers) {
      progress.show(
          concat(peer, ", ", num_ranks, " ranks, round ", round, " of ", plan.num_rounds));
      peer_rounds[peer].push_back(
          run_peer(peer, plan.peer_options, plan.cases, num_ranks, plan.seconds_per_round));
    }
  }
  std::vector<CommResult> results = median_of_rounds(rounds);
  for (const auto& [peer, times] : peer_rounds) add_peer(results, peer, times);
  return results;
}

// MPI knows its ranks, and mpirun binds them. `binds`: bind them here. `meeting`: made by the first
// transport that needs one, because a rank may be here before rank 0 has left the previous one.
std::unique_ptr<comm::Communicator> connect(const std::string& transport, bool binds,
                                            std::optional<comm::Rendezvous>& meeting) {
  if (transport == "mpi") return comm::make_mpi_group();
  const comm::WorldInfo info = comm::world_info();
  // Gloo's thread must not share a rank's only core (launch/agent/binding.h); nor does the peer's.
  if (binds && transport != "gloo") bind_to_core(info.local_rank, info.local_size);
  if (!meeting) meeting.emplace(info);
  return meeting->connect(transport);
}

// A rank started by someone else (torchrun, mpirun, this program).
int bench_rank(const BenchArguments& arguments, const BenchPlan& plan) {
  TRIREME_CHECK(plan.peers.empty(),
                "--compare does not work under a launcher; leave --compare out");
  std::vector<CommResult> results;
  int rank = 0;
  std::optional<comm::Rendezvous> meeting;
  for (const std::string& transport : plan.transports) {
    const auto group = connect(transport, arguments.lines, meeting);
    TRIREME_CHECK(!arguments.ranks_given || plan.rank_counts == std::vector<int>{group->size()},
                  "--ranks is ", arguments.ranks.front(), ", and the launcher started ",
                  group->size(), " ranks; leave --ranks out");
    rank = group->rank();
    for (const CommResult& result : run_rank(*group, transport, plan)) results.push_back(result);
  }
  if (rank != 0) return kDone;
  if (arguments.json) {
    std::printf("%s\n", json_list(results).c_str());
    return kDone;
  }
  if (!arguments.lines) std::printf("%s\n", table_header({}).c_str());
  for (const CommResult& result : results) {
    std::printf("%s\n", (arguments.lines ? write_line(result) : table_row(result, {})).c_str());
  }
  return kDone;
}

int bench_comm(const BenchArguments& arguments) {
  const BenchPlan plan = plan_of(arguments);
  if (comm::is_launched()) return bench_rank(arguments, plan);
  for (const int num_ranks : plan.rank_counts) {
    for (const CommCase& what : plan.cases) {
      TRIREME_CHECK(what.operation != CommOperation::kSendRecv || num_ranks > 1,
                    "--ranks has 1; expected at least 2 for send_recv");
    }
  }
  std::vector<CommResult> results;
  for (const int num_ranks : plan.rank_counts) {
    for (const std::string& transport : plan.transports) {
      for (const CommResult& result : run_rounds(arguments, plan, transport, num_ranks)) {
        if (!arguments.json && results.empty()) {
          std::printf("%s\n", table_header(plan.peers).c_str());
        }
        if (!arguments.json) std::printf("%s\n", table_row(result, plan.peers).c_str());
        results.push_back(result);
      }
      std::fflush(stdout);
    }
  }
  if (arguments.json) std::printf("%s\n", json_list(results).c_str());
  return kDone;
}

void add_comm(CLI::App& bench, int& exit_code) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* command = bench.add_subcommand(
      "comm",
      "Start local ranks and benchmark the collectives, with the metrics of nccl-tests.\n"
      "  trireme bench comm --ranks 2 --operation all_reduce,all_gather --sizes 4,64K,1M,16M\n"
      "  trireme bench comm --ranks 2,4 --memory symmetric --compare gloo,mpi\n"
      "  trireme bench comm --operation all --sizes 1M --transport shm,thread --json\n"
      "Options with lists take one or more values, separated by commas. All combinations are\n"
      "run.\n");
  const auto list = [&](const char* name, Words& words, const char* help) {
    return command->add_option(name, words, help)->capture_default_str();
  };
  CLI::Option* ranks = list("--ranks", arguments->ranks, "number of local ranks");
  list("--operation", arguments->operations,
       "operations: all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all, gather, "
       "scatter, send_recv, barrier, or all");
  list("--sizes", arguments->sizes, "sizes in bytes, such as 4, 64K, 1M, 1G (powers of 1024)");
  list("--transport", arguments->transports,
       "transports; shm = processes over shared memory, thread = threads of one process, gloo = "
       "TCP, mpi = Open MPI, started by mpirun");
  list("--memory", arguments->memories,
       "memory of the tensors: ordinary, or symmetric (mapped by all ranks)");
  list("--dtype", arguments->dtypes,
       "dtypes: fp64, fp32, bf16, fp16, int64, int32, int16, int8, uint8");
  list("--compare", arguments->compare,
       "other libraries to measure in alternating rounds: gloo, mpi");
  command->add_option("--seconds", arguments->seconds, "seconds per case")
      ->check(within({.minimum = 0, .maximum = 1e6, .above_minimum = true}))
      ->capture_default_str();
  command
      ->add_option("--rounds", arguments->num_rounds,
                   "rounds per case, of which the median is reported. Default: 3 with --compare, "
                   "otherwise 1")
      ->check(within({1, 1000}));
  command->add_option(
      "--python", arguments->python,
      "Python interpreter with torch, for --compare gloo. Default: that of this build");
  command->add_flag("--json", arguments->json, "print a JSON array of objects instead of a table");
  command->add_flag("--rank-lines", arguments->lines)->group("");
  command->footer(
      "Each case is checked once for correct values, then repeated on the same buffers until\n"
      "its time is used up. Ranks synchronise before each batch, and the slowest rank's time\n"
      "counts. Each rank is bound to a core, as by mpirun, unless there are more ranks than\n"
      "cores, or over gloo.\n"
      "  time, p99   median and 99th percentile of one operation\n"
      "  algorithm   bytes / time; bytes is the larger of a rank's input and output\n"
      "  bus         algorithm x the share of the bytes that crosses between ranks: 2(p-1)/p for\n"
      "              all_reduce, (p-1)/p for all_gather, reduce_scatter, all_to_all, gather and\n"
      "              scatter, 1 for the others (NVIDIA/nccl-tests, doc/PERFORMANCE.md)\n"
      "  x memcpy    speed relative to memcpy, with every rank copying the same bytes in the same\n"
      "              run: 2 is twice as fast\n"
      "  x loop      all_reduce: speed relative to a loop on every rank, without waiting, that "
      "reads\n"
      "              as many streams as there are ranks, each of bytes / ranks, and writes as "
      "many:\n"
      "              the limit in symmetric memory\n"
      "  x gloo      speed relative to that peer, from alternating rounds: 10 is ten times faster\n"
      "Reductions are timed on zeros. Under torchrun or mpirun, the ranks that these start are\n"
      "used.");
  command->callback([arguments, ranks, &exit_code] {
    arguments->ranks_given = ranks->count() > 0;
    exit_code = bench_comm(*arguments);
  });
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  CLI::App* bench = app.add_subcommand(
      "bench", "Benchmark collectives, this machine, pipeline schedules and graphs");
  bench->require_subcommand(1);
  add_comm(*bench, exit_code);
  add_bench_device(*bench, exit_code);
  add_bench_graph(*bench, exit_code);
  add_bench_pipeline(*bench, exit_code);
}

}  // namespace trireme::cli
