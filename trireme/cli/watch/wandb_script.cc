#include "trireme/cli/watch/wandb_script.h"

#include <cstddef>

#include <nlohmann/json.hpp>

#include "trireme/base/locale/text.h"
#include "trireme/base/sha256.h"
#include "trireme/train/metrics/logged_step.h"

namespace trireme::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kScript = R"(#!/usr/bin/env python3
"""Replays a run of Trireme into Weights & Biases: pip install wandb, then run this script.

It writes an offline run below ./wandb, which `wandb sync` sends; with WANDB_MODE=online it is sent at once. The run's
numbers are the comments at the end.
"""
import json
import os

os.environ.setdefault("WANDB_MODE", "offline")
import wandb  # noqa: E402, which reads the variable


def entries():
    with open(__file__, encoding="ascii") as script:
        for line in script:
            if line.startswith("#: "):
                yield json.loads(line[3:])


replay = entries()
head = next(replay)
run = wandb.init(project=head["project"], name=head["name"], id=head["id"], config=head["config"], tags=head["tags"])
for entry in replay:
    values = {name: float("nan") if value is None else value for name, value in entry["values"].items()}
    if "time" in entry:
        values["_timestamp"] = entry["time"]
    run.log(values, step=entry["step"])
run.finish(exit_code=head["exit_code"])

)";

// Of 16 hexadecimal digits: the package takes no others such as "/".
std::string id_of(const std::string& identity) {
  std::string id;
  const Sha256 digest = sha256(identity);
  for (size_t i = 0; i < 8; ++i) id += format("%02x", digest[i]);
  return id;
}

std::string comment_of(const ordered_json& value) {
  return "#: " +
         value.dump(-1, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

void write_wandb_script(const ExportedRun& run, const std::string& project,
                        const std::function<void(const std::string& piece)>& write) {
  write(kScript);
  ordered_json config = ordered_json::object();
  for (const auto& [key, value] : run.start.parameters) config[key] = value;
  for (const auto& [key, value] : run.start.tags) config[key] = value;
  const bool is_well = run.status == "FINISHED" || run.status == "RUNNING";
  write(comment_of({{"project", project.empty() ? run.start.experiment : project},
                    {"name", run.start.run_name},
                    {"id", id_of(run.start.identity)},
                    {"tags", {"trireme"}},
                    {"config", std::move(config)},
                    {"exit_code", is_well ? 0 : 1}}));
  train::for_each_step(run.folder, [&](const train::LoggedStep& step) {
    ordered_json values = ordered_json::object();
    for (const train::LoggedValue& each : step.values) values[each.name] = each.value;
    ordered_json entry = {{"step", step.step}, {"values", std::move(values)}};
    if (step.time > 0) entry["time"] = step.time;
    write(comment_of(entry));
  });
}

}  // namespace trireme::cli
