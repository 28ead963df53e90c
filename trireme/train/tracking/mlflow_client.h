// Calls to an MLflow tracking server by its REST interface, version 2.0. A build without libcurl
// refuses to make a client.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "trireme/remote/http_client.h"

namespace trireme::train {

struct MlflowServer {
  std::string url{};            // "http://127.0.0.1:5000"
  std::string authorization{};  // "Bearer ...", "Basic ..."; "": none. It is in no message
  std::chrono::milliseconds patience = std::chrono::seconds(10);  // for an answer
};

// The server at `url`, with the secrets that MLflow's own client takes from the environment:
// MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD.
// variable: a variable's value; nullptr when it is not set
// Throws: ConfigError for a URL that is none, and for a secret that no header can hold
MlflowServer mlflow_server(const std::string& url,
                           const std::function<const char*(const char* name)>& variable);

struct MlflowValue {
  std::string key{};
  double value = 0;  // NaN too
  int64_t step = 0;
  int64_t time_ms = 0;  // since 1970
};

// What names a run at the server, and what it says of it.
struct MlflowStart {
  std::string experiment{};
  std::string run_name{};
  std::string identity{};  // the tag trireme.run_id: a run with it goes on
  int64_t time_ms = 0;
  std::map<std::string, std::string> parameters{};
  std::map<std::string, std::string> tags{};
};

// A name as the server takes it for a metric or parameter: other characters become "_".
std::string mlflow_key(std::string_view name);

// One thread at a time. Every call throws CommError when no answer came, or one that says that the
// server cannot answer now (408, 429, 5xx, or what is no JSON); ConfigError when it refuses.
// Messages show nothing of a secret, and of an answer only MLflow's error code.
class MlflowClient {
 public:
  static constexpr size_t kMostValues = 1000;  // of one call

  // Throws: ConfigError in a build without libcurl
  explicit MlflowClient(MlflowServer server) : server_(std::move(server)) {}

  // Goes on with the newest run that has the identity, or makes one, with its experiment. Returns
  // its id. Parameters that the run has already with another value become tags "changed.NAME".
  std::string open_run(const MlflowStart& start);
  // values: kMostValues at most
  void log(const std::string& run_id, std::span<const MlflowValue> values);
  // status: RUNNING, FINISHED, FAILED or KILLED. time_ms: when it ended; 0: it goes on
  void set_status(const std::string& run_id, const std::string& status, int64_t time_ms);

  // Ends the call under way, and all later ones, with CommError. Any thread may call it.
  void cancel() { client_.cancel(); }

 private:
  nlohmann::json send(const std::string& method, const std::string& path, const std::string& body,
                      const std::string& accepted_error = "");
  std::string experiment_of(const std::string& name);
  void send_words(const std::string& run_id, const MlflowStart& start,
                  const std::map<std::string, std::string>& known);

  MlflowServer server_;
  remote::HttpClient client_;
};

}  // namespace trireme::train
