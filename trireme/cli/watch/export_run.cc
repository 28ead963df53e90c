// trireme track: a run's metrics for MLflow and Weights & Biases, after the fact.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/atomic_file.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/cli/train/run_tracking.h"
#include "trireme/cli/watch/exported_run.h"
#include "trireme/cli/watch/wandb_script.h"
#include "trireme/train/metrics/logged_step.h"

namespace trireme::cli {
namespace {

struct ExportArguments {
  std::string run;
  std::string url;
  std::string experiment;
  std::string name;
  std::string output;
  bool json = false;
};

// A server that is busy gets some time.
constexpr int kMostTries = 5;
constexpr std::chrono::seconds kFirstTryPause{1};

// Throws: ConfigError when the server refuses, or has not answered after all tries
template <typename Call>
void call_patiently(const Call& call) {
  auto pause = kFirstTryPause;
  for (int i = 1;; ++i, pause *= 2) {
    try {
      return call();
    } catch (const CommError& error) {
      if (i == kMostTries)
        throw ConfigError(concat(error.what(), "; tried ", kMostTries,
                                 " times; what it has got stays, the same command sends the rest"));
    }
    std::this_thread::sleep_for(pause);
  }
}

int export_to_mlflow(const ExportArguments& arguments) {
  train::MlflowClient client(train::mlflow_server(arguments.url, own_variable));
  const ExportedRun run = exported_run(arguments.run, arguments.experiment, arguments.name);
  std::string id;
  call_patiently([&] { id = client.open_run(run.start); });
  std::vector<train::MlflowValue> batch;
  int64_t num_values = 0, num_steps = 0;
  const auto send = [&] {
    if (!batch.empty()) call_patiently([&] { client.log(id, batch); });
    num_values += std::ssize(batch);
    batch.clear();
  };
  train::for_each_step(run.folder, [&](const train::LoggedStep& step) {
    ++num_steps;
    const int64_t time_ms = std::llround(step.time * 1000);
    for (const train::LoggedValue& each : step.values) {
      batch.push_back({each.name, each.value, step.step, time_ms});
      if (batch.size() == train::MlflowClient::kMostValues) send();
    }
  });
  send();
  call_patiently([&] { client.set_status(id, run.status, run.ended_ms); });
  if (arguments.json) {
    const nlohmann::json result = {
        {"run_id", id}, {"steps", num_steps}, {"values", num_values}, {"status", run.status}};
    std::printf("%s\n", json_text(result).c_str());
  } else {
    std::printf("sent    %lld values of %lld steps to %s\n", static_cast<long long>(num_values),
                static_cast<long long>(num_steps), printable(arguments.url).c_str());
    std::printf("run     %s of experiment %s, %s\n", printable(id).c_str(),
                printable(run.start.experiment).c_str(), run.status.c_str());
  }
  return kDone;
}

int export_to_wandb(const ExportArguments& arguments) {
  const ExportedRun run = exported_run(arguments.run, arguments.experiment, arguments.name);
  if (arguments.output.empty()) {
    write_wandb_script(run, "", [](const std::string& piece) {
      if (std::fwrite(piece.data(), 1, piece.size(), stdout) != piece.size())
        throw Error("cannot write the script: its reader has gone, or the disk is full");
    });
    std::fflush(stdout);
    return kDone;
  }
  AtomicFile file(arguments.output);
  write_wandb_script(run, "", [&file](const std::string& piece) { file.write(piece); });
  file.commit();
  std::printf("script  %s\nnext    pip install wandb && python3 %s\n",
              printable(arguments.output).c_str(), printable(arguments.output).c_str());
  return kDone;
}

void add_run_options(CLI::App& command, ExportArguments& arguments) {
  command.add_option("run", arguments.run, "folder of a run (output.folder)")->required();
  command.add_option("--name", arguments.name,
                     "the run's name there. Default: tracking.run_name, or the folder's name");
}

}  // namespace

void add_export_run(CLI::App& app, int& exit_code) {
  CLI::App* group =
      app.add_subcommand("track",
                         "Give a run's metrics to another tracker, during the run or after it.\n"
                         "  trireme track mlflow runs/demo --url http://127.0.0.1:5000\n"
                         "  trireme track wandb runs/demo > replay.py\n");
  group->require_subcommand(1);
  auto arguments = std::make_shared<ExportArguments>();
  CLI::App* mlflow = group->add_subcommand(
      "mlflow",
      "Send config, metrics and state to an MLflow server. What it has already stays as it is.\n"
      "  trireme track mlflow runs/demo --url http://127.0.0.1:5000\n");
  add_run_options(*mlflow, *arguments);
  mlflow->add_option("--url", arguments->url, "address of the server")->required();
  mlflow->add_option("--experiment", arguments->experiment,
                     "made if it is missing. Default: tracking.experiment");
  add_json(*mlflow, arguments->json);
  mlflow->footer(
      "Secrets come from the environment: MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and\n"
      "MLFLOW_TRACKING_PASSWORD. `trireme train --tracking.mlflow=URL` sends while it trains.");
  mlflow->callback([arguments, &exit_code] { exit_code = export_to_mlflow(*arguments); });
  CLI::App* wandb = group->add_subcommand(
      "wandb",
      "Print a Python script that replays the run into Weights & Biases, offline by default.\n"
      "  trireme track wandb runs/demo > replay.py && python3 replay.py\n");
  add_run_options(*wandb, *arguments);
  wandb->add_option("--project", arguments->experiment,
                    "the project there. Default: tracking.experiment");
  wandb->add_option("--output", arguments->output, "write the script to this file");
  wandb->callback([arguments, &exit_code] { exit_code = export_to_wandb(*arguments); });
}

}  // namespace trireme::cli
