#include "trireme/tasks/export/model_card.h"

#include <map>
#include <string_view>

#include <nlohmann/json.hpp>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"
#include "trireme/train/config/config.h"
#include "trireme/train/metrics/metrics.h"

namespace trireme::tasks {
namespace {

// A value in a table of Markdown.
std::string table_cell(std::string_view text) {
  std::string cell;
  for (const char c : shown(text)) {
    if (c == '|' || c == '<' || c == '`') cell += '\\';
    cell += c;
  }
  return cell;
}

// "6 documents, 18112 tokens; tokens 0123456789abcdef".
std::string identity_text(const train::DataIdentity& identity) {
  std::string text = train::to_text(identity);
  for (const auto& [part, checksum] : identity.checksums) {
    text += concat(text.empty() ? "" : "; ", part, " ", checksum);
  }
  return text;
}

// The numbers of the last lines up to the step: of the step itself, and of the last evaluation.
std::map<std::string, double> last_metrics(const std::filesystem::path& run, int64_t step) {
  const std::filesystem::path path = run / train::kMetricsName;
  if (!is_file(path)) return {};
  const std::string text = read_file(path);
  std::map<std::string, double> found;
  const std::vector<std::string_view> lines = train::counted_lines(text);
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const auto object = nlohmann::json::parse(*line, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer() ||
        object["step"] > step)
      continue;
    const bool has_loss = found.contains("loss");
    bool is_evaluation = false;
    for (const auto& [name, value] : object.items()) {
      const bool is_validation = name.starts_with("validation_");
      if (!value.is_number() || (name != "loss" && !is_validation)) continue;
      is_evaluation |= is_validation;
      if (is_validation || !has_loss) found.emplace(name, value.get<double>());
    }
    if (is_evaluation) break;
  }
  return found;
}

}  // namespace

std::string to_markdown(const ModelCard& card) {
  std::string text = "---\n";
  if (!card.license.empty()) text += concat("license: ", card.license, "\n");
  if (!card.library.empty()) text += concat("library_name: ", card.library, "\n");
  if (!card.pipeline.empty()) text += concat("pipeline_tag: ", card.pipeline, "\n");
  text += concat("tags:\n- trireme\n---\n\n# ", card.title, "\n\nTrained with Trireme.\n\n",
                 "| | |\n|---|---|\n");
  for (const auto& [name, value] : card.facts) {
    text += concat("| ", table_cell(name), " | ", table_cell(value), " |\n");
  }
  text += concat("| license | ", card.license.empty() ? "not stated" : card.license, " |\n");
  if (card.loading.empty()) return text;
  return concat(text, "\n## Loading\n\n```python\n", card.loading, "```\n");
}

CardFacts facts_of(const ExportInput& input, const std::string& family,
                   const ExportOptions& options, const ExportReport& report) {
  CardFacts facts = {{"family", family},
                     {"parameters", std::to_string(report.num_parameters)},
                     {"weights", concat(name_of(train::kPrecisions, report.dtype),
                                        options.weights == train::Weights::kAverage
                                            ? ", moving average of the weights"
                                            : "")},
                     {"step", std::to_string(input.manifest.step)},
                     {"samples read in training", std::to_string(input.state.next_sample)}};
  if (input.state.data.is_known())
    facts.emplace_back("training data", identity_text(input.state.data));
  if (input.state.validation.is_known())
    facts.emplace_back("validation data", identity_text(input.state.validation));
  for (const auto& [name, value] : last_metrics(input.run_folder(), input.manifest.step)) {
    facts.emplace_back(name, format("%.6g", value));
  }
  return facts;
}

}  // namespace trireme::tasks
