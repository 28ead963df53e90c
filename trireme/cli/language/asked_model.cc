#include "trireme/cli/language/asked_model.h"

#include <memory>

#include <CLI/CLI.hpp>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/comm/objects.h"
#include "trireme/tasks/language/generation/text_ranks.h"

namespace trireme::cli {
namespace {

void check_family(const AskedModelOptions& options, const model::ModelConfig& config) {
  TRIREME_CHECK(config.is_causal() || (options.may_decode && config.has_decoder()),
                options.checkpoint, " has a model of the family ", config.family,
                ", which restores hidden tokens and continues no text; expected a causal one, such "
                "as llama: export it with `trireme checkpoint export`, and fill masks with "
                "transformers");
}

// A copy's encoder reads when one of its texts begins, which is no step of other copies.
void check_layout(const model::ModelConfig& model, const train::ParallelConfig& parallel) {
  TRIREME_CHECK(!model.has_decoder() || (parallel.pipeline == 1 && parallel.zero < 3),
                "parallel.pipeline is ", parallel.pipeline, " and parallel.zero ", parallel.zero,
                ", and a model of the family ", model.family,
                " generates with an encoder and a decoder that are whole on each copy's tensor "
                "ranks; set parallel.pipeline to 1 and parallel.zero to at most 2");
}

std::vector<std::string> lines_of(const std::vector<std::string>& texts) {
  std::vector<std::string> lines;
  for (const std::string& text : texts) {
    TextReader reader(text);
    for (std::string line; std::getline(reader, line);) lines.push_back(line);
  }
  return lines;
}

}  // namespace

void add_asked_model(CLI::App& command, const std::string& checkpoint, AskedModelOptions& options,
                     int& exit_code, const std::function<int()>& ask) {
  command.add_option(checkpoint, options.checkpoint, "folder of a run, or one of its checkpoints")
      ->required();
  command.add_flag("--average", options.average,
                   "use the moving average of the weights (average.decay)");
  add_ranks(command, options.ranks);
  add_layout_help(command);
  command.callback([&command, &options, &exit_code, ask] {
    options.layout = command.remaining();
    exit_code = ask();
  });
}

int ask_model(const AskedModelOptions& options,
              const std::function<void(const tasks::TrainedModel& trained)>& check,
              const std::function<void(const AskedModel& asked)>& work) {
  const train::Weights weights = options.average ? train::Weights::kAverage : train::Weights::kLast;
  const std::vector<train::Override> layout = parse_overrides(options.layout);
  const int num_ranks = count_ranks(options.ranks);
  const tasks::TrainedModel trained = tasks::describe_trained_model(options.checkpoint, weights);
  check_family(options, tasks::language_of(trained.config).model);
  check(trained);
  if (num_ranks == 1 && layout.empty()) {
    if (options.ranks.num_threads > 0) use_threads(options.ranks.num_threads);
    const tasks::TrainedModel whole = tasks::load_trained_model(options.checkpoint, weights);
    const auto model = model::make_text_model(*whole.model);
    const auto same = [](const std::string& mine) { return mine; };
    const auto only = [](const std::string& mine) { return lines_of({mine}); };
    work({.model = *model, .trained = trained, .gather = only, .share = same});
    return kDone;
  }
  const train::RunConfig config = tasks::generation_config(trained.config, layout, num_ranks);
  check_layout(tasks::language_of(trained.config).model, config.parallel);
  return run_on_ranks(options.ranks, config, [&](train::RunConfig& own, comm::Communicator& world) {
    // A run that goes on may save the next one meanwhile.
    own.init.folder = comm::broadcast_string(
        world, world.rank() == 0 ? train::find_checkpoint(options.checkpoint).string() : "", 0);
    tasks::TextRanks model(own, world, "--checkpoint", weights);
    work({.model = model,
          .trained = trained,
          .prints = world.rank() == 0,
          .gather = [&](const std::string& mine) { return lines_of(model.gather_texts(mine)); },
          .share =
              [&](const std::string& mine) {
                return comm::broadcast_string(world, world.rank() == 0 ? mine : "", 0);
              }});
  });
}

}  // namespace trireme::cli
