// trireme evaluate: how good a trained language model is, by texts and by questions.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/language/asked_model.h"
#include "trireme/cli/language/evaluation_task.h"

namespace trireme::cli {
namespace {

using nlohmann::ordered_json;

struct EvaluateArguments {
  AskedModelOptions asked;
  std::vector<std::string> tasks;
  int64_t limit = 0;
  std::string output;
  bool json = false;
};

// The scores of all texts of a task, in their order, on the rank that prints; empty elsewhere.
std::vector<RowScore> score_rows(const AskedModel& asked, const EvaluationTask& task) {
  std::vector<model::AskedText> texts;
  for (const EvaluationRow& row : task.rows)
    texts.insert(texts.end(), row.texts.begin(), row.texts.end());
  std::string mine;
  int64_t num_done = 0;
  ProgressBar bar(task.name, "texts", stderr);
  model::score_texts(asked.model, texts, [&](size_t number, auto scores) {
    double sum = 0;
    bool is_likeliest = true;
    for (const model::TokenScore& score : scores) {
      sum += score.log_probability;
      is_likeliest = is_likeliest && score.is_likeliest();
    }
    mine += ordered_json({number, sum, is_likeliest}).dump() + '\n';
    num_done += static_cast<int64_t>(asked.model.num_copies());
    if (asked.prints) bar.update(std::min(num_done, std::ssize(texts)), std::ssize(texts));
  });
  std::vector<double> sums(texts.size());
  std::vector<bool> likeliest(texts.size());
  for (const std::string& line : asked.gather(mine)) {
    const auto found = ordered_json::parse(line);
    sums[found[0].get<size_t>()] = found[1];
    likeliest[found[0].get<size_t>()] = found[2];
  }
  std::vector<RowScore> scores;
  size_t text = 0;
  for (const EvaluationRow& row : task.rows) {
    RowScore& score = scores.emplace_back();
    for (size_t i = 0; i < row.texts.size(); ++i, ++text) {
      score.log_likelihoods.push_back(sums[text]);
      score.is_likeliest.push_back(likeliest[text]);
    }
  }
  return scores;
}

ordered_json to_json(const EvaluationResult& result) {
  ordered_json json = {{"task", result.name}, {"rows", result.num_rows}};
  if (result.has_choices) {
    json.update({{"accuracy", result.accuracy},
                 {"accuracy_error", result.accuracy_error},
                 {"normalised_accuracy", result.normalised_accuracy},
                 {"normalised_accuracy_error", result.normalised_accuracy_error}});
  } else {
    json.update({{"tokens", result.num_tokens},
                 {"bytes", result.num_bytes},
                 {"bits_per_byte", result.bits_per_byte},
                 {"nats_per_token", result.nats_per_token}});
  }
  return json;
}

void print(const EvaluationResult& result) {
  std::string name = result.name.substr(0, 24);
  if (result.has_choices) {
    std::printf("%-24s %8lld questions  accuracy %.4f +- %.4f\n", name.c_str(),
                static_cast<long long>(result.num_rows), result.accuracy, result.accuracy_error);
    std::printf("%-24s %8s            by byte  %.4f +- %.4f\n", "", "", result.normalised_accuracy,
                result.normalised_accuracy_error);
  } else {
    std::printf("%-24s %8lld texts      bits per byte %.4f, nats per token %.4f\n", name.c_str(),
                static_cast<long long>(result.num_rows), result.bits_per_byte,
                result.nats_per_token);
  }
}

// A line for each row.
std::string lines_of(const EvaluationTask& task, const std::vector<RowScore>& scores) {
  std::string lines;
  for (size_t i = 0; i < scores.size(); ++i) {
    ordered_json line = {{"task", task.name},
                         {"row", i},
                         {"log_likelihoods", scores[i].log_likelihoods},
                         {"greedy", scores[i].is_likeliest}};
    if (task.has_choices) {
      line["answer"] = task.rows[i].answer;
      line["chosen"] = chosen(task.rows[i], scores[i], false);
      line["chosen_by_byte"] = chosen(task.rows[i], scores[i], true);
    }
    lines += line.dump() + '\n';
  }
  return lines;
}

int evaluate(const EvaluateArguments& arguments) {
  std::vector<EvaluationTask> tasks;
  const auto check = [&](const tasks::TrainedModel& trained) {
    for (const std::string& path : arguments.tasks)
      tasks.push_back(read_evaluation_task(path, *trained.tokenizer, arguments.limit));
    if (!arguments.output.empty()) write_output("--output", arguments.output, "");
  };
  return ask_model(arguments.asked, check, [&](const AskedModel& asked) {
    std::string samples;
    ordered_json results = ordered_json::array();
    for (const EvaluationTask& task : tasks) {
      const std::vector<RowScore> scores = score_rows(asked, task);
      if (!asked.prints) continue;
      const EvaluationResult result = evaluate_rows(task, scores);
      if (!arguments.json) print(result);
      results.push_back(to_json(result));
      samples += lines_of(task, scores);
    }
    if (!asked.prints) return;
    if (arguments.json) std::printf("%s\n", results.dump(2).c_str());
    if (!arguments.output.empty()) write_output("--output", arguments.output, samples);
  });
}

}  // namespace

void add_evaluate(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<EvaluateArguments>();
  CLI::App* command = app.add_subcommand(
      "evaluate",
      "Measure a trained language model on texts and questions.\n"
      "  trireme evaluate runs/demo --task held-out.jsonl\n"
      "  trireme evaluate runs/demo --task quiz.jsonl --output samples.jsonl\n"
      "  trireme evaluate runs/big --task quiz.jsonl --ranks 2 --parallel.tensor=2\n"
      "A line of a task is {\"text\": \"...\"}, for bits per byte, or a question of several "
      "answers, {\"prompt\": \"2 + 2 =\", \"choices\": [\" 3\", \" 4\"], \"answer\": 1}, of which "
      "the likeliest is the model's.\n");
  command
      ->add_option("--task", arguments->tasks,
                   "file with a line of JSON for each text or question; may be repeated")
      ->required()
      ->allow_extra_args(false);
  command->add_option("--limit", arguments->limit, "first rows of each task to use; 0 = all")
      ->check(within({0, 1e12}))
      ->capture_default_str();
  command->add_option("--output", arguments->output,
                      "file for a line of JSON for each row: log-likelihoods, in nats");
  add_json(*command, arguments->json);
  add_asked_model(*command, "checkpoint", arguments->asked, exit_code,
                  [arguments] { return evaluate(*arguments); });
}

}  // namespace trireme::cli
