#include "trireme/tasks/recommend/recommend_export.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/tasks/export/export_input.h"
#include "trireme/tasks/export/model_card.h"
#include "trireme/tasks/export/weight_files.h"
#include "trireme/tasks/recommend/layers/mlp.h"
#include "trireme/tasks/recommend/recommend.h"
#include "trireme/tasks/recommend/recommend_network.h"
#include "trireme/tasks/recommend/recommend_problem.h"
#include "trireme/train/config/config.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kIdsFile = "ids.safetensors";

// The rows of a table: of one with an open vocabulary those that the checkpoint has.
int64_t rows_of(const parallel::TableConfig& table, const ExportInput& input) {
  if (!table.is_open) return table.rows;
  const auto found = input.manifest.tensors.find(table.name + ".ids");
  if (found == input.manifest.tensors.end() || found->second.shape.size() != 1) {
    throw CheckpointError(concat(input.folder.string(), ": there is no list of ids \"", table.name,
                                 ".ids\"; use another checkpoint"));
  }
  return found->second.shape.front();
}

struct RecommendParts {
  std::vector<model::HuggingFaceTensor> tensors{};
  std::set<std::string> tables{};  // the names of their weights
  std::map<std::string, at::Tensor> ids{};
};

RecommendParts parts_of(const RecommendProblem& problem, const ExportInput& input) {
  RecommendParts parts;
  for (const parallel::TableConfig& table : tables_of(problem, 1).tables) {
    const std::string name = table.name + ".weight", ids = table.name + ".ids";
    const int64_t rows = rows_of(table, input);
    parts.tensors.push_back({.name = name, .shape = {rows, table.width}, .parts = {name}});
    parts.tables.insert(name);
    if (table.is_open) parts.ids[ids] = checkpoint::read_tensor(input.folder, input.manifest, ids);
  }
  for (const auto& item : make_network(problem, /*seed=*/0)->named_parameters()) {
    parts.tensors.push_back(
        {.name = item.key(), .shape = item.value().sizes().vec(), .parts = {item.key()}});
  }
  return parts;
}

std::string config_text(const RecommendProblem& problem, const ExportInput& input) {
  const RecommendModelConfig& model = problem.config.model;
  ordered_json tables = ordered_json::array();
  for (const parallel::TableConfig& table : tables_of(problem, 1).tables) {
    tables.push_back({{"name", table.name},
                      {"rows", rows_of(table, input)},
                      {"width", table.width},
                      {"open", table.is_open}});
  }
  const ordered_json object = {{"family", name_of(kRecommendFamilies, model.family)},
                               {"width", model.width},
                               {"bottom", parse_widths(model.bottom, "model.bottom")},
                               {"top", parse_widths(model.top, "model.top")},
                               {"cross_layers", model.cross_layers},
                               {"cross_rank", model.cross_rank},
                               {"temperature", model.temperature},
                               {"pooling", name_of(kSumOrMean, problem.config.tables.pooling)},
                               {"outputs", problem.num_outputs()},
                               {"tables", tables},
                               {"features", ordered_json::parse(dataset::to_json(problem.schema))}};
  return object.dump(2, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace) + "\n";
}

ModelCard card_of(const RecommendProblem& problem, const ExportInput& input,
                  const ExportOptions& options, const ExportReport& report) {
  const std::string family = name_of(kRecommendFamilies, problem.config.model.family);
  return {.title = family + " recommendation model",
          .license = options.license,
          .facts = facts_of(input, family, options, report),
          .loading =
              "import json\n\nfrom safetensors.torch import load_file\n\n"
              "config = json.load(open(\"FOLDER/config.json\"))\n"
              "weights = load_file(\"FOLDER/model.safetensors\")\n"
              "tables = {table[\"name\"]: weights[table[\"name\"] + \".weight\"] for table in "
              "config[\"tables\"]}\n"};
}

}  // namespace

ExportReport export_recommend_model(const fs::path& path, const fs::path& output,
                                    const ExportOptions& options) {
  check_export(options);
  TRIREME_CHECK(options.form == ExportForm::kSafetensors || options.form == ExportForm::kDcp,
                "--format is \"", name_of(kExportForms, options.form), "\", and ", path.string(),
                " is of a recommendation model, which other programs have no class for; use "
                "safetensors or dcp");
  const ExportInput input(path, options);
  train::RunConfig config =
      train::parse_saved_model(input.state.config, input.folder.string(),
                               train::default_config(train::TaskTable(&kRecommend, 1)));
  RecommendProblem problem{.config = recommend_of(config),
                           .schema = dataset::read_schema(input.run_folder())};
  const RecommendParts parts = parts_of(problem, input);
  ExportReport report{
      .checkpoint = input.folder,
      .step = input.manifest.step,
      .architecture = name_of(kRecommendFamilies, problem.config.model.family),
      .dtype = options.dtype.value_or(config.dtype() == at::kDouble ? at::kDouble : at::kFloat)};
  ExportSource source(input.folder, input.manifest, report.dtype, options.weights);
  source.take_last(parts.tables);
  write_export(output, parts.tensors, source, options, report, [&](const fs::path& folder) {
    if (!parts.ids.empty()) checkpoint::write_safetensors(folder / kIdsFile, parts.ids);
    write_file_atomically(folder / "config.json", config_text(problem, input));
    write_file_atomically(folder / kCardFile,
                          to_markdown(card_of(problem, input, options, report)));
  });
  return report;
}

}  // namespace trireme::tasks
