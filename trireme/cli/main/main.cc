#include "trireme/cli/bench/bench_commands.h"
#include "trireme/cli/data/data_commands.h"
#include "trireme/cli/language/language_commands.h"
#include "trireme/cli/plan/plan_commands.h"
#include "trireme/cli/program.h"
#include "trireme/cli/vision/vision_commands.h"
#include "trireme/tasks/tasks.h"

int main(int argc, char** argv) {
  using namespace trireme;
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
           "  trireme doctor runs/demo\n",
       .needs_config = true,
       .commands = {cli::add_data, cli::add_generate, cli::add_export, cli::add_import,
                    cli::add_upcycle, cli::add_classify, cli::add_plan, cli::add_simulate,
                    cli::add_bench}});
}
