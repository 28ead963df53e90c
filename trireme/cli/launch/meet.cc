// trireme meet: where learners that come and go meet.
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include <CLI/CLI.hpp>

#include "trireme/base/error.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/cli/train/train_rank.h"
#include "trireme/comm/rounds/round_service.h"
#include "trireme/comm/store/store_server.h"

namespace trireme::cli {
namespace {

struct MeetArguments {
  std::string listen;
  int learners = 0;
  double lease = 10;
  double patience = 30;
  double deviations = 5;
  double memory = 8;
};

// How often news are looked for.
constexpr std::chrono::milliseconds kMeetLook{100};

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

void print_news(comm::RoundService& service) {
  for (const std::string& line : service.take_news()) std::printf("%s\n", printable(line).c_str());
  std::fflush(stdout);
}

int meet(const MeetArguments& arguments) {
  stop_on_signals();
  comm::RoundService service(
      {.table = {.places = arguments.learners,
                 .lease = milliseconds_of(arguments.lease),
                 .patience = {.least = milliseconds_of(arguments.patience),
                              .deviations = arguments.deviations}},
       .memory_bytes = static_cast<int64_t>(arguments.memory * (int64_t{1} << 30))});
  const auto server = comm::serve_rounds(service, arguments.listen, [](const std::string& line) {
    std::fprintf(stderr, "trireme: the service %s\n", printable(line).c_str());
  });
  std::printf("learners meet at %s: outer.meeting = \"%s\", parallel.learners = %d\n",
              arguments.listen.c_str(), arguments.listen.c_str(), arguments.learners);
  while (!stop_requested && !service.is_done()) {
    print_news(service);
    std::this_thread::sleep_for(kMeetLook);
  }
  print_news(service);
  return kDone;
}

}  // namespace

void add_meet(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<MeetArguments>();
  CLI::App* command = app.add_subcommand(
      "meet",
      "Serve the place where learners meet that come and go, each a run of its own\n"
      "(docs/guide/learners.md).\n"
      "  trireme meet --listen 10.0.0.1:29400 --learners 4\n"
      "  trireme train CONFIG --parallel.learners=4 --outer.meeting=10.0.0.1:29400 --outer.place=0 "
      "...\n");
  command
      ->add_option("--listen", arguments->listen,
                   "HOST:PORT of this host that all learners reach; with a token "
                   "(TRIREME_TOKEN_FILE) unless it is of the loopback")
      ->required();
  command->add_option("--learners", arguments->learners, "places for learners: parallel.learners")
      ->check(within({2, comm::kMaxRoundPlaces}))
      ->required();
  command
      ->add_option("--lease", arguments->lease,
                   "seconds without a word after which the others go on without a learner")
      ->check(within({0.1, 86400}))
      ->capture_default_str();
  command
      ->add_option("--patience", arguments->patience,
                   "seconds that a round waits at least for a learner that is there and late")
      ->check(within({0, 86400}))
      ->capture_default_str();
  command
      ->add_option("--deviations", arguments->deviations,
                   "it waits for the median lateness of earlier rounds and so many times the "
                   "median absolute deviation from it, if that is longer")
      ->check(within({0, 1000}))
      ->capture_default_str();
  command
      ->add_option("--memory", arguments->memory,
                   "GiB that learners' messages and states may take here")
      ->check(within({0.001, 1e6}))
      ->capture_default_str();
  command->footer(
      "A line is printed for each learner that comes or leaves and for each round. It ends when "
      "all\n"
      "learners have finished, and on SIGTERM. Learners wait parallel.timeout_seconds for it to "
      "be\n"
      "started again, and tell it what it has to know.");
  command->callback([arguments, &exit_code] { exit_code = meet(*arguments); });
}

}  // namespace trireme::cli
