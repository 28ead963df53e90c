// `trireme` with mistakes: `mutations verify tiny.toml --ranks-b 2 --b mutation.name=...`, and
// `mutations table` for what there is.
#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tests/mutations/mutation.h"
#include "tests/mutations/mutation_callback.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/program.h"
#include "trireme/tasks/tasks.h"

namespace {

using namespace trireme;

constexpr train::CallbackKind kCallbacks[] = {{"mutation", mutations::make_mutation_callback}};

void print_table() {
  for (const mutations::Mutation& mutation : mutations::all_mutations()) {
    const nlohmann::json line = {{"name", mutation.name},     {"source", mutation.source},
                                 {"what", mutation.what},     {"layouts", mutation.layouts},
                                 {"common", mutation.common}, {"expected", mutation.expected}};
    std::printf("%s\n", line.dump().c_str());
  }
}

void add_table(CLI::App& app, int& exit_code) {
  CLI::App* const command = app.add_subcommand("table", "Prints the mistakes, a JSON object each");
  command->callback([&exit_code] {
    print_table();
    exit_code = 0;
  });
}

}  // namespace

int main(int argc, char** argv) {
  return cli::run_program(argc, argv,
                          {.tasks = tasks::all_tasks(),
                           .callbacks = kCallbacks,
                           .name = "mutations",
                           .commands = {add_table}});
}
