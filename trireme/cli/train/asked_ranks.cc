#include "trireme/cli/train/asked_ranks.h"

#include <cstdio>
#include <iterator>
#include <string>
#include <utility>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>

#include "trireme/base/error.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/cli/train/train_rank.h"
#include "trireme/comm/rendezvous/rendezvous_variables.h"
#include "trireme/launch/local_ranks.h"
#include "trireme/train/parallel/asked_layout.h"

namespace trireme::cli {
namespace {

int start_local_ranks(int num_ranks) {
  launch::LocalRanksOptions options{.num_ranks = num_ranks, .command = {own_program()}};
  std::vector<std::string> words = own_words();
  options.command.insert(options.command.end(), std::move_iterator(words.begin()),
                         std::move_iterator(words.end()));
  const launch::RankExit exit = launch::run_local_ranks(options);
  if (exit.rank < 0) return kDone;
  std::fprintf(stderr, "trireme: %s\n", printable(launch::describe(exit)).c_str());
  return exit.signal != 0 ? static_cast<int>(kPeerLost) : exit.code;
}

}  // namespace

void add_ranks(CLI::App& command, AskedRanks& ranks) {
  command
      .add_option_function<int>(
          "--ranks",
          [&ranks](int number) {
            ranks.num_ranks = number;
            ranks.is_given = true;
          },
          "number of local ranks to start")
      ->check(within({1, 1 << 15}))
      ->default_str("1");
  command.add_option("--threads", ranks.num_threads, "threads per rank; 0 = cores / ranks")
      ->check(within({0, 1 << 15}))
      ->capture_default_str();
}

void add_layout_help(CLI::App& command) {
  std::string keys;
  for (const std::string& key : train::asking_keys())
    keys += concat(keys.empty() ? "" : ",\n", "  ", key);
  command.footer(
      "A model that is too large for one rank is shared with --parallel.tensor=N,\n"
      "--parallel.pipeline=N or --parallel.expert=N, as in training. Further ranks have\n"
      "copies, which share the work. The results are those of one rank, up to rounding.\n"
      "Keys:\n" +
      keys);
  command.allow_extras();
}

void use_threads(int num_threads) { at::set_num_threads(num_threads); }

int count_ranks(const AskedRanks& ranks) {
  if (!comm::is_launched()) return ranks.num_ranks;
  const int launched = comm::world_info().size;
  TRIREME_CHECK(!ranks.is_given || ranks.num_ranks == launched, "--ranks is ", ranks.num_ranks,
                ", and the launcher started ", launched, " ranks; leave --ranks out");
  return launched;
}

int run_on_ranks(
    const AskedRanks& ranks, train::RunConfig config,
    const std::function<void(train::RunConfig& config, comm::Communicator& world)>& work) {
  if (ranks.num_threads > 0) use_threads(ranks.num_threads);
  config.output.folder.clear();  // nothing is recorded in it
  const bool is_launched = comm::is_launched();
  if (!is_launched && ranks.num_ranks > 1) return start_local_ranks(ranks.num_ranks);
  if (is_launched) {
    RankGroup group(config, comm::world_info());
    work(config, group.world());
  } else {
    RankGroup group(config);
    work(config, group.world());
  }
  return kDone;
}

}  // namespace trireme::cli
