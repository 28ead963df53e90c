#include "trireme/cli/language/evaluation_task.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numbers>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/dataset/file/text_lines.h"
#include "trireme/tasks/language/trained_model.h"

namespace trireme::cli {
namespace {

constexpr size_t kMaxRowBytes = size_t{64} << 20;
constexpr size_t kMaxChoices = 1000;

// The tokens of a choice are those that the whole text has more than its prompt, whose last spaces
// belong to the choice: tokens often begin with theirs.
model::AskedText asked_choice(const dataset::Tokenizer& tokenizer, std::string_view prompt,
                              std::string_view choice) {
  const size_t end = prompt.find_last_not_of(" \t\n\r") + 1;  // 0: there are spaces only
  model::AskedText text{tasks::text_tokens(tokenizer, concat(prompt, choice))};
  text.first =
      std::min(tasks::text_tokens(tokenizer, prompt.substr(0, end)).size(), text.tokens.size());
  return text;
}

EvaluationRow read_row(const JsonView& row, const dataset::Tokenizer& tokenizer) {
  EvaluationRow found;
  if (const auto text = row.find("text")) {
    found.texts.push_back({tasks::text_tokens(tokenizer, text->text())});
    found.num_bytes.push_back(text->text().size());
    return found;
  }
  if (!row.find("choices"))
    row.fail("an object with \"text\", or \"prompt\", \"choices\" and \"answer\"");
  const JsonView choices = row.at("choices");
  const std::vector<JsonView> texts = choices.elements();
  if (texts.size() < 2 || texts.size() > kMaxChoices)
    choices.fail(concat("2 to ", kMaxChoices, " texts"));
  const std::string& prompt = row.at("prompt").text();
  for (const JsonView& choice : texts) {
    if (choice.text().empty()) choice.fail("a text that is not empty");
    found.texts.push_back(asked_choice(tokenizer, prompt, choice.text()));
    found.num_bytes.push_back(choice.text().size());
  }
  found.answer = row.at("answer").integer(0, std::ssize(texts) - 1);
  return found;
}

// Of the mean of `num` values that are 0 or 1.
double error_of_share(double share, int64_t num) {
  return num > 1 ? std::sqrt(share * (1 - share) / static_cast<double>(num - 1)) : 0;
}

}  // namespace

EvaluationTask read_evaluation_task(const std::string& path, const dataset::Tokenizer& tokenizer,
                                    int64_t limit) {
  EvaluationTask task{std::filesystem::path(path).filename()};
  task.name = task.name.substr(0, task.name.find('.', 1));
  dataset::TextLines lines(path, dataset::TextOrigin::kUser, kMaxRowBytes);
  for (std::string_view line; lines.next(line);) {
    if (dataset::is_blank_line(line)) continue;
    if (limit > 0 && std::ssize(task.rows) == limit) break;
    const std::string where = lines.where();
    const nlohmann::json value = parse_json(line, where, {.max_bytes = kMaxRowBytes});
    task.rows.push_back(read_row(JsonView(value, where), tokenizer));
    const bool has_choices = task.rows.back().answer >= 0;
    if (task.rows.size() == 1) task.has_choices = has_choices;
    TRIREME_CHECK(has_choices == task.has_choices, where, ": the row has ",
                  has_choices ? "choices" : "a text", ", and the first one ",
                  task.has_choices ? "choices" : "a text", "; put each kind in a file of its own");
  }
  TRIREME_CHECK(!task.rows.empty(), path,
                " has no row; expected lines {\"text\": TEXT} or {\"prompt\": TEXT, \"choices\": "
                "[TEXT, TEXT], \"answer\": 0}");
  return task;
}

size_t chosen(const EvaluationRow& row, const RowScore& score, bool by_byte) {
  const auto value = [&](size_t i) {
    return score.log_likelihoods[i] / (by_byte ? static_cast<double>(row.num_bytes[i]) : 1);
  };
  size_t best = 0;
  for (size_t i = 1; i < row.texts.size(); ++i) {
    if (value(i) > value(best)) best = i;
  }
  return best;
}

EvaluationResult evaluate_rows(const EvaluationTask& task, std::span<const RowScore> scores) {
  EvaluationResult result{
      .name = task.name, .has_choices = task.has_choices, .num_rows = std::ssize(task.rows)};
  double nats = 0;
  int64_t right = 0, right_by_byte = 0;
  for (size_t i = 0; i < task.rows.size(); ++i) {
    const EvaluationRow& row = task.rows[i];
    if (task.has_choices) {
      right += std::cmp_equal(chosen(row, scores[i], false), row.answer) ? 1 : 0;
      right_by_byte += std::cmp_equal(chosen(row, scores[i], true), row.answer) ? 1 : 0;
      continue;
    }
    nats -= scores[i].log_likelihoods.front();
    result.num_tokens += std::ssize(row.texts.front().tokens) - 1;
    result.num_bytes += static_cast<int64_t>(row.num_bytes.front());
  }
  if (task.has_choices) {
    const auto num = static_cast<double>(result.num_rows);
    result.accuracy = static_cast<double>(right) / num;
    result.normalised_accuracy = static_cast<double>(right_by_byte) / num;
    result.accuracy_error = error_of_share(result.accuracy, result.num_rows);
    result.normalised_accuracy_error = error_of_share(result.normalised_accuracy, result.num_rows);
  } else {
    result.bits_per_byte = nats / std::numbers::ln2 / static_cast<double>(result.num_bytes);
    result.nats_per_token = nats / static_cast<double>(result.num_tokens);
  }
  return result;
}

}  // namespace trireme::cli
