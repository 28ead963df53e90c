#include <cstdio>
#include <cstdlib>

#include <unistd.h>

#include "trireme/cli/commands.h"
#include "trireme/cli/program.h"
#include "trireme/tasks/tasks.h"

namespace {

// Leaves without the destructors of objects that were there before main(): libtorch's take back
// each registered operator, which costs every process 60 ms. What main() has registered runs as
// ever. A sanitizer reports at exit and needs them.
void leave_early() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  ::on_exit(
      [](int exit_code, void*) {
        std::fflush(nullptr);
        ::_exit(exit_code);
      },
      nullptr);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  using namespace trireme;
  leave_early();
  return cli::run_program(
      argc, argv,
      {.tasks = tasks::all_tasks(),
       .name = "trireme",
       .description =
           "Trireme trains neural networks on many processors.\n\n"
           "  trireme data prepare --input src --glob '*.py' --tokenizer bpe --vocab-size 4096 "
           "--output data/python\n"
           "  trireme train examples/demo.toml --ranks 2 --train.steps=300\n"
           "  trireme generate --checkpoint runs/demo --prompt 'def '\n"
           "  trireme doctor runs/demo\n"
           "  trireme watch runs/demo\n",
       .needs_config = true,
       .commands = {cli::add_data, cli::add_generate, cli::add_evaluate, cli::add_serve,
                    cli::add_export, cli::add_import, cli::add_upcycle, cli::add_classify,
                    cli::add_sample, cli::add_plan, cli::add_shard, cli::add_simulate,
                    cli::add_bench, cli::add_network, cli::add_meet, cli::add_watch,
                    cli::add_export_run}});
}
