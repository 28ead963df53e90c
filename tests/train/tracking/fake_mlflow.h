// An MLflow server in memory, on loopback, which can fail as a test decides.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/remote/scripted_server.h"

namespace trireme::train {

class FakeMlflow {
 public:
  struct Run {
    std::string name{}, status = "RUNNING";
    int64_t end_time = 0;
    std::map<std::string, std::string> parameters{}, tags{};
    std::vector<nlohmann::json> metrics{};
  };

  std::string url() const { return server_.url(); }
  int num_requests() const { return server_.num_requests(); }
  // "" lets requests through; else what is answered to all of them.
  void answer_all(std::string answer) {
    const std::lock_guard lock(mutex_);
    fixed_ = std::move(answer);
  }
  // Of the newest run.
  Run run() {
    const std::lock_guard lock(mutex_);
    return runs_.empty() ? Run() : runs_.back();
  }
  size_t num_runs() {
    const std::lock_guard lock(mutex_);
    return runs_.size();
  }
  std::string last_header(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return remote::request_header(last_, name);
  }

 private:
  using json = nlohmann::json;

  static std::string ok(const json& body) {
    return remote::plain_answer("200 OK", "Content-Type: application/json\r\n", body.dump());
  }
  static std::string refused(const char* code) {
    return remote::plain_answer("404 NOT FOUND", "", json{{"error_code", code}}.dump());
  }
  static void put(const json& body, const char* list, std::map<std::string, std::string>& into) {
    if (!body.contains(list)) return;
    for (const json& pair : body[list]) into[pair["key"]] = pair["value"];
  }
  json shown(size_t index) const {
    json parameters = json::array();
    for (const auto& [key, value] : runs_[index].parameters)
      parameters.push_back({{"key", key}, {"value", value}});
    return {{"info", {{"run_id", std::to_string(index)}}}, {"data", {{"params", parameters}}}};
  }

  std::string answer(const std::string& request) {
    const std::lock_guard lock(mutex_);
    last_ = request;
    if (!fixed_.empty()) return fixed_;
    const size_t begin = request.find(' ') + 1;
    const std::string path = request.substr(begin, request.find(' ', begin) - begin);
    const auto is = [&](const char* name) {
      return path.starts_with(std::string("/api/2.0/mlflow/") + name);
    };
    const std::string text = request.substr(request.find("\r\n\r\n") + 4);
    const json body = text.empty() ? json::object() : json::parse(text);
    if (is("experiments/get-by-name")) {
      if (!has_experiment_) return refused("RESOURCE_DOES_NOT_EXIST");
      return ok({{"experiment", {{"experiment_id", "1"}}}});
    }
    if (is("experiments/create")) {
      has_experiment_ = true;
      return ok({{"experiment_id", "1"}});
    }
    if (is("runs/search")) {
      const std::string filter = body["filter"];
      json found = json::array();
      for (size_t i = 0; i < runs_.size(); ++i) {
        if (filter == "tags.`trireme.run_id` = '" + runs_[i].tags["trireme.run_id"] + "'")
          found.push_back(shown(i));
      }
      return ok({{"runs", found}});
    }
    if (is("runs/create")) {
      runs_.push_back({.name = body["run_name"]});
      put(body, "tags", runs_.back().tags);
      return ok({{"run", shown(runs_.size() - 1)}});
    }
    Run& run = runs_.at(std::stoul(body["run_id"].get<std::string>()));
    if (is("runs/update")) {
      run.status = body["status"];
      run.end_time = body.value("end_time", int64_t{0});
    } else {
      put(body, "params", run.parameters);
      put(body, "tags", run.tags);
      if (body.contains("metrics"))
        run.metrics.insert(run.metrics.end(), body["metrics"].begin(), body["metrics"].end());
    }
    return ok(json::object());
  }

  std::mutex mutex_;
  std::string fixed_;
  std::string last_;
  bool has_experiment_ = false;
  std::vector<Run> runs_;
  remote::ScriptedServer server_{[this](const std::string& request) { return answer(request); }};
};

}  // namespace trireme::train
