#include "trireme/tasks/export/model_card.h"

#include <cmath>
#include <map>
#include <string_view>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"
#include "trireme/train/config/config.h"
#include "trireme/train/metrics/logged_step.h"

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

// The last loss up to the step, and what the last evaluation until then found.
std::map<std::string, double> last_metrics(const std::filesystem::path& run, int64_t step) {
  std::map<std::string, double> last, evaluation;
  train::for_each_step(run, [&](const train::LoggedStep& logged) {
    if (logged.step > step) return;
    std::map<std::string, double> found;
    for (const auto& [name, value] : logged.values) {
      if (std::isnan(value)) continue;
      if (name == "loss") last[name] = value;
      if (name.starts_with("validation_")) found[name] = value;
    }
    if (!found.empty()) evaluation = std::move(found);
  });
  last.merge(evaluation);
  return last;
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
