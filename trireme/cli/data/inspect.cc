// trireme data inspect: what token files hold, and how much of each a run reads.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/tasks/language/language.h"
#include "trireme/tasks/language/sources/source_counts.h"
#include "trireme/tasks/language/token_data.h"
#include "trireme/tasks/tasks.h"
#include "trireme/train/run/inputs.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

struct InspectArguments {
  std::string data;
  int64_t tokens = 0;  // of a run; 0: of the config's, or none
  bool json = false;
  std::vector<std::string> overrides;  // as typed
};

struct Inspection {
  std::vector<tasks::SourceCount> sources{};
  int64_t run_tokens = 0;  // 0: of no run
  int64_t steps = 0;       // 0: unknown
};

// The config that `data` is or has; "": it is a list of sources, or a prefix.
std::string config_of(const std::string& data) {
  std::error_code unknown;
  const fs::path path = data;
  if (fs::is_regular_file(path / "config.toml", unknown)) return path / "config.toml";
  return path.extension() == ".toml" ? data : "";
}

Inspection inspect_config(const std::string& path, const InspectArguments& arguments) {
  train::RunConfig config =
      train::load_config(path, tasks::all_tasks(), parse_overrides(arguments.overrides));
  TRIREME_CHECK(config.task_choice.name == tasks::kLanguage.name, path, " is of the task ",
                config.task_choice.name, "; expected one of the task ", tasks::kLanguage.name,
                ", which reads token files");
  config.task->open(/*evaluates=*/false);
  train::set_steps(config, {});
  const tasks::TokenDataConfig& data = tasks::language_of(config).data;
  const auto place = tasks::open_place(data);
  Inspection found{.sources = tasks::count_sources(tasks::training_files(data), *place)};
  const dataset::Source& samples = config.task->training();
  const int64_t tokens_per_sample = config.task->traits().units_per_sample;
  int64_t run_samples = config.batch_sizes().before(config.train.steps);
  if (arguments.tokens > 0) {
    run_samples = (arguments.tokens - 1) / tokens_per_sample + 1;
  } else {
    found.steps = config.train.steps;
  }
  found.run_tokens = run_samples * tokens_per_sample;
  tasks::use_samples(found.sources, samples.blend(), samples.size(), run_samples,
                     tokens_per_sample);
  return found;
}

Inspection inspect_files(const InspectArguments& arguments) {
  TRIREME_CHECK(arguments.overrides.empty(), "\"", shown(arguments.overrides.front()),
                "\" is a key of a config, and ", shown(arguments.data),
                " is none; leave it out, or name a config");
  const bool is_list = arguments.data.find('=') != std::string::npos && !is_url(arguments.data);
  tasks::TokenDataConfig data;
  data.path = is_list ? "" : arguments.data;
  data.sources = is_list ? arguments.data : "";
  const tasks::DataFiles files = tasks::training_files(data);
  tasks::check_prefixes(files);
  Inspection found{.sources = tasks::count_sources(files, *tasks::open_place(data)),
                   .run_tokens = arguments.tokens};
  tasks::use_tokens(found.sources, arguments.tokens);
  return found;
}

void print_inspection(const Inspection& found) {
  const auto count = [](int64_t number) { return human_count(static_cast<double>(number)); };
  for (const tasks::SourceCount& source : found.sources) {
    std::string line = concat("source  ", source.name.empty() ? source.path : source.name, ": ",
                              source.documents, " documents, ", source.tokens, " tokens");
    if (source.validation_tokens > 0) {
      line += concat("; for validation ", source.validation_documents, " and ",
                     source.validation_tokens);
    }
    std::printf("%s\n", printable(line).c_str());
    if (found.run_tokens == 0 && found.sources.size() == 1) continue;
    std::printf("        weight %.4g %%", 100 * source.weight);
    if (found.run_tokens > 0) {
      std::printf(", %s tokens of the run, %.2f epochs", count(source.used_tokens).c_str(),
                  source.epochs);
    }
    std::printf("\n");
  }
  if (found.run_tokens == 0) return;
  std::printf("run     %s tokens", count(found.run_tokens).c_str());
  if (found.steps > 0) std::printf(" in %lld steps", static_cast<long long>(found.steps));
  std::printf("\n");
}

nlohmann::json inspection_object(const Inspection& found) {
  nlohmann::json sources = nlohmann::json::array();
  for (const tasks::SourceCount& source : found.sources) {
    nlohmann::json object = {{"name", source.name},
                             {"path", source.path},
                             {"documents", source.documents},
                             {"tokens", source.tokens},
                             {"validation_documents", source.validation_documents},
                             {"validation_tokens", source.validation_tokens},
                             {"weight", source.weight}};
    if (found.run_tokens > 0) {
      object["used_tokens"] = source.used_tokens;
      object["epochs"] = source.epochs;
    }
    sources.push_back(std::move(object));
  }
  nlohmann::json object = {{"sources", std::move(sources)}};
  if (found.run_tokens > 0) object["run_tokens"] = found.run_tokens;
  if (found.steps > 0) object["steps"] = found.steps;
  return object;
}

int inspect(const InspectArguments& arguments) {
  const std::string config = config_of(arguments.data);
  const Inspection found =
      config.empty() ? inspect_files(arguments) : inspect_config(config, arguments);
  if (arguments.json) {
    std::printf("%s\n", json_text(inspection_object(found)).c_str());
  } else {
    print_inspection(found);
  }
  return kDone;
}

}  // namespace

void add_data_inspect(CLI::App& data, int& exit_code) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* command = data.add_subcommand(
      "inspect",
      "Print the documents and tokens of token files, and what a run reads of each.\n"
      "  trireme data inspect data/code\n"
      "  trireme data inspect code=data/code:0.7,web=data/web:0.3 --tokens 1000000000\n"
      "  trireme data inspect run.toml --train.steps=5000\n"
      "See docs/guide/data.md.\n");
  command
      ->add_option("data", arguments->data,
                   "prefix of token files; a list as data.sources has it, "
                   "NAME=PATH:WEIGHT,...; a config file (.toml) or the folder of a run, with any "
                   "keys behind it")
      ->required();
  command
      ->add_option("--tokens", arguments->tokens,
                   "tokens that a run reads of all sources. Default: those of the config's steps")
      ->check(within({1, 1e18}));
  add_json(*command, arguments->json);
  command->allow_extras();
  command->callback([arguments, command, &exit_code] {
    arguments->overrides = command->remaining();
    exit_code = inspect(*arguments);
  });
}

}  // namespace trireme::cli
