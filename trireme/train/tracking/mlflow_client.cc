#include "trireme/train/tracking/mlflow_client.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"
#include "trireme/remote/url.h"

namespace trireme::train {
namespace {

using nlohmann::json;

// The server's own bounds, of its release 2.0 on.
constexpr size_t kMostKeyBytes = 250;
constexpr size_t kMostParameterBytes = 500;
constexpr size_t kMostTagBytes = 5000;
constexpr size_t kMostWords = 100;  // parameters, or tags, of one call
constexpr size_t kMostAnswerBytes = size_t{4} << 20;
constexpr const char* kIdentityTag = "trireme.run_id";

// RFC 4648, section 4
std::string base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0);
    for (size_t i = 0; i < 4; ++i) text += i <= count ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

std::string variable_or_empty(const std::function<const char*(const char* name)>& variable,
                              const char* name) {
  const char* const value = variable(name);
  return value ? value : "";
}

std::string cut_text(const std::string& text, size_t most) {
  return text.substr(0, utf8_prefix_bytes(text, most));
}

// In UTF-8: what is not becomes U+FFFD.
std::string body_of(const json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
}

json as_pairs(const std::vector<std::pair<std::string, std::string>>& words, size_t from,
              size_t most) {
  json pairs = json::array();
  for (size_t i = from; i < std::min(from + most, words.size()); ++i)
    pairs.push_back({{"key", words[i].first}, {"value", words[i].second}});
  return pairs;
}

// "RESOURCE_DOES_NOT_EXIST"; "" when the answer has none, or other characters in it.
std::string error_code_of(const std::string& text) {
  try {
    const std::string source = "an answer";
    const json value = parse_json(text, source);
    const std::string code = JsonView(value, source).at("error_code").word(64);
    const bool is_plain = std::ranges::all_of(
        code, [](char c) { return c == '_' || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); });
    return is_plain ? code : "";
  } catch (const ConfigError&) {
    return "";
  }
}

}  // namespace

MlflowServer mlflow_server(const std::string& url,
                           const std::function<const char*(const char* name)>& variable) {
  remote::check_server_url(url);
  MlflowServer server{.url = url.substr(0, url.find_last_not_of('/') + 1)};
  const std::string token = variable_or_empty(variable, "MLFLOW_TRACKING_TOKEN");
  const std::string user = variable_or_empty(variable, "MLFLOW_TRACKING_USERNAME");
  const std::string password = variable_or_empty(variable, "MLFLOW_TRACKING_PASSWORD");
  for (const char c : token) {
    TRIREME_CHECK(c > 32 && c < 127,
                  "MLFLOW_TRACKING_TOKEN has spaces or other unexpected characters; set it as the "
                  "server shows it");
  }
  if (!token.empty()) {
    server.authorization = "Bearer " + token;
  } else if (!user.empty() || !password.empty()) {
    server.authorization = "Basic " + base64(user + ":" + password);
  }
  return server;
}

std::string mlflow_key(std::string_view name) {
  std::string key;
  for (const char c : name.substr(0, kMostKeyBytes)) {
    const bool is_allowed = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                            (c >= 'A' && c <= 'Z') || c == '_' || c == '-' || c == '.' ||
                            c == '/' || c == ' ';
    key += is_allowed ? c : '_';
  }
  // The server takes it for a path, which must be in its simplest form.
  bool is_simple = !key.empty();
  for (size_t begin = 0; begin <= key.size();) {
    const size_t end = std::min(key.find('/', begin), key.size());
    const std::string part = key.substr(begin, end - begin);
    is_simple = is_simple && !part.empty() && part != "." && part != "..";
    begin = end + 1;
  }
  if (!is_simple) {
    std::ranges::replace(key, '/', '_');
    if (key.find_first_not_of('.') == key.npos) key += "_";
  }
  return key;
}

// accepted_error: an error code that is an answer; the result is then null.
json MlflowClient::send(const std::string& method, const std::string& path, const std::string& body,
                        const std::string& accepted_error) {
  std::vector<std::byte> out(kMostAnswerBytes);
  remote::HttpRequest request{.method = method,
                              .url = server_.url + "/api/2.0/mlflow/" + path,
                              .headers = {{"content-type", "application/json"}},
                              .body = std::as_bytes(std::span(body)),
                              .out = out,
                              .patience = server_.patience};
  if (!server_.authorization.empty())
    request.headers.emplace_back("authorization", server_.authorization);
  const remote::HttpAnswer answer = client_.send(request);
  if (answer.status == 0) throw CommError(concat(server_.url, ": ", answer.failure));
  const std::string place =
      concat(server_.url, " answers ", path.substr(0, path.find('?')), " with ");
  if (answer.status >= 200 && answer.status < 300) {
    const std::string_view text(reinterpret_cast<const char*>(out.data()), answer.num_bytes);
    try {
      json value = parse_json(text, "an answer");
      if (value.is_object() && !answer.is_too_long) return value;
    } catch (const ConfigError&) {
      // below
    }
    throw CommError(place + "what is no JSON object; is it an MLflow server?");
  }
  const std::string code = error_code_of(answer.text);
  if (!accepted_error.empty() && code == accepted_error) return nullptr;
  const std::string message = concat(place, "HTTP ", answer.status, code.empty() ? "" : " " + code);
  if (answer.status == 408 || answer.status == 429 || answer.status >= 500)
    throw CommError(message);
  const bool is_denied = answer.status == 401 || answer.status == 403;
  throw ConfigError(concat(message, is_denied ? "; set MLFLOW_TRACKING_TOKEN, or "
                                                "MLFLOW_TRACKING_USERNAME and "
                                                "MLFLOW_TRACKING_PASSWORD"
                                              : ""));
}

namespace {

// The text at a path of an answer. One without it is not MLflow's.
std::string word_at(const json& answer, std::initializer_list<const char*> path) {
  try {
    const std::string source = "an answer";
    JsonView view(answer, source);
    for (const char* key : path) view = view.at(key);
    return view.word();
  } catch (const ConfigError& error) {
    throw CommError(concat("the MLflow server: ", error.what()));
  }
}

// The parameters of a run in an answer.
std::map<std::string, std::string> parameters_of(const json& run) {
  std::map<std::string, std::string> parameters;
  const json none = json::array();
  const json* pairs = &none;
  if (run.contains("data") && run["data"].is_object() && run["data"].contains("params"))
    pairs = &run["data"]["params"];
  for (const json& pair : *pairs) {
    if (!pair.is_object() || !pair.contains("key") || !pair["key"].is_string()) continue;
    const bool has_text = pair.contains("value") && pair["value"].is_string();
    parameters[pair["key"].get<std::string>()] = has_text ? pair["value"].get<std::string>() : "";
  }
  return parameters;
}

}  // namespace

std::string MlflowClient::experiment_of(const std::string& name) {
  const auto find = [&] {
    return send("GET", "experiments/get-by-name?experiment_name=" + remote::percent_encoded(name),
                "", "RESOURCE_DOES_NOT_EXIST");
  };
  json found = find();
  if (found.is_null()) {
    const json made = send("POST", "experiments/create", body_of({{"name", name}}),
                           "RESOURCE_ALREADY_EXISTS");  // another run was faster
    if (!made.is_null()) return word_at(made, {"experiment_id"});
    found = find();
  }
  return word_at(found, {"experiment", "experiment_id"});
}

// What the run lacks of the parameters, and all tags.
void MlflowClient::send_words(const std::string& run_id, const MlflowStart& start,
                              const std::map<std::string, std::string>& known) {
  std::vector<std::pair<std::string, std::string>> parameters, tags;
  for (const auto& [name, text] : start.parameters) {
    const std::string key = mlflow_key(name), value = cut_text(text, kMostParameterBytes);
    const auto before = known.find(key);
    if (before == known.end()) {
      parameters.emplace_back(key, value);
    } else if (before->second != value) {
      tags.emplace_back("changed." + key, value);
    }
  }
  for (const auto& [name, text] : start.tags)
    tags.emplace_back(mlflow_key(name), cut_text(text, kMostTagBytes));
  for (size_t at = 0; at < std::max(parameters.size(), tags.size()); at += kMostWords) {
    send("POST", "runs/log-batch",
         body_of({{"run_id", run_id},
                  {"params", as_pairs(parameters, at, kMostWords)},
                  {"tags", as_pairs(tags, at, kMostWords)}}));
  }
}

std::string MlflowClient::open_run(const MlflowStart& start) {
  const std::string experiment = experiment_of(start.experiment);
  // An identity is hexadecimal, or made so: a quote in it would end the filter's text.
  std::string identity = start.identity;
  std::erase_if(identity, [](char c) { return c == '\'' || c == '"' || c == '\\'; });
  const json found =
      send("POST", "runs/search",
           body_of({{"experiment_ids", {experiment}},
                    {"filter", concat("tags.`", kIdentityTag, "` = '", identity, "'")},
                    {"max_results", 1}}));
  const bool is_known =
      found.contains("runs") && found["runs"].is_array() && !found["runs"].empty();
  json run;
  if (is_known) {
    run = found["runs"][0];
  } else {
    const json made = send(
        "POST", "runs/create",
        body_of({{"experiment_id", experiment},
                 {"run_name", start.run_name},
                 {"start_time", start.time_ms},
                 {"tags", json::array({{{"key", kIdentityTag}, {"value", identity}},
                                       {{"key", "mlflow.source.name"}, {"value", "trireme"}}})}}));
    if (made.contains("run")) run = made["run"];
  }
  const std::string id = word_at(run, {"info", "run_id"});
  if (is_known) set_status(id, "RUNNING", 0);
  send_words(id, start, parameters_of(run));
  return id;
}

void MlflowClient::log(const std::string& run_id, std::span<const MlflowValue> values) {
  TRIREME_ASSERT(values.size() <= kMostValues, values.size());
  json metrics = json::array();
  for (const MlflowValue& value : values) {
    // JSON has no such numbers; protocol buffers' JSON has these texts.
    json number = value.value;
    if (std::isnan(value.value)) number = "NaN";
    if (std::isinf(value.value)) number = value.value > 0 ? "Infinity" : "-Infinity";
    metrics.push_back({{"key", mlflow_key(value.key)},
                       {"value", std::move(number)},
                       {"timestamp", value.time_ms},
                       {"step", value.step}});
  }
  send("POST", "runs/log-batch", body_of({{"run_id", run_id}, {"metrics", std::move(metrics)}}));
}

void MlflowClient::set_status(const std::string& run_id, const std::string& status,
                              int64_t time_ms) {
  json body = {{"run_id", run_id}, {"status", status}};
  if (time_ms > 0) body["end_time"] = time_ms;
  send("POST", "runs/update", body_of(body));
}

}  // namespace trireme::train
