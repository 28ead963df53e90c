#include "trireme/train/tracking/mlflow_client.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/train/tracking/fake_mlflow.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

using testing::HasSubstr;
using testing::Not;

const char* nothing(const char* /*name*/) { return nullptr; }

MlflowStart start_of(const std::string& identity) {
  return {.experiment = "tests",
          .run_name = "demo",
          .identity = identity,
          .time_ms = 5,
          .parameters = {{"train.steps", "20"}, {"empty", ""}},
          .tags = {{"trireme.version", "0.1.0"}}};
}

TEST(MlflowServer, TakesSecretsFromTheEnvironment) {
  EXPECT_EQ(mlflow_server("http://host:5000//", nothing).url, "http://host:5000");
  EXPECT_EQ(mlflow_server("http://host", nothing).authorization, "");
  const auto token = [](const char* name) {
    return std::string(name) == "MLFLOW_TRACKING_TOKEN" ? "abc" : nullptr;
  };
  EXPECT_EQ(mlflow_server("http://host", token).authorization, "Bearer abc");
  const auto user = [](const char* name) -> const char* {
    if (std::string(name) == "MLFLOW_TRACKING_USERNAME") return "Aladdin";
    return std::string(name) == "MLFLOW_TRACKING_PASSWORD" ? "open sesame" : nullptr;
  };
  // RFC 7617, section 2
  EXPECT_EQ(mlflow_server("http://host", user).authorization, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
  const auto broken = [](const char*) { return "two\r\nX-Header: lines"; };
  try {
    mlflow_server("http://host", broken);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("MLFLOW_TRACKING_TOKEN"));
    EXPECT_THAT(error.what(), Not(HasSubstr("X-Header")));
  }
  EXPECT_THROW(mlflow_server("http://me:secret@host", nothing), ConfigError);
}

TEST(MlflowClient, KeysAreThoseThatTheServerTakes) {
  EXPECT_EQ(mlflow_key("expert_tokens/0/3"), "expert_tokens/0/3");
  EXPECT_EQ(mlflow_key("a:b\"<c>"), "a_b__c_");
  EXPECT_EQ(mlflow_key("../x"), ".._x");
  EXPECT_EQ(mlflow_key("/x//y/"), "_x__y_");
  EXPECT_EQ(mlflow_key(".."), ".._");
  EXPECT_EQ(mlflow_key(""), "_");
  EXPECT_EQ(mlflow_key(std::string(1000, 'a')).size(), 250U);
}

TEST(MlflowClient, MakesARunAndLogsToIt) {
  FakeMlflow fake;
  MlflowClient client({.url = fake.url(), .authorization = "Bearer abc"});
  const std::string id = client.open_run(start_of("aa11"));
  client.log(id,
             std::vector<MlflowValue>{{"loss", 0.1, 3, 1000},
                                      {"norm", std::numeric_limits<double>::quiet_NaN(), 3, 1000}});
  client.set_status(id, "FINISHED", 9000);
  const FakeMlflow::Run run = fake.run();
  EXPECT_EQ(run.name, "demo");
  EXPECT_EQ(run.parameters,
            (std::map<std::string, std::string>{{"train.steps", "20"}, {"empty", ""}}));
  EXPECT_EQ(run.tags.at("trireme.run_id"), "aa11");
  EXPECT_EQ(run.tags.at("trireme.version"), "0.1.0");
  ASSERT_EQ(run.metrics.size(), 2U);
  EXPECT_EQ(run.metrics[0],
            nlohmann::json::parse(R"({"key":"loss","value":0.1,"step":3,"timestamp":1000})"));
  EXPECT_EQ(run.metrics[1]["value"], "NaN");
  EXPECT_EQ(run.status, "FINISHED");
  EXPECT_EQ(run.end_time, 9000);
  EXPECT_EQ(fake.last_header("authorization"), "Bearer abc");
}

TEST(MlflowClient, GoesOnWithARunOfTheSameIdentity) {
  FakeMlflow fake;
  MlflowClient client({.url = fake.url()});
  const std::string first = client.open_run(start_of("aa11"));
  client.set_status(first, "KILLED", 9000);
  MlflowStart again = start_of("aa11");
  again.parameters["train.steps"] = "40";
  again.parameters["new"] = "1";
  EXPECT_EQ(client.open_run(again), first);
  EXPECT_EQ(fake.num_runs(), 1U);
  const FakeMlflow::Run run = fake.run();
  EXPECT_EQ(run.status, "RUNNING");
  EXPECT_EQ(run.parameters.at("train.steps"), "20");  // the server keeps the first
  EXPECT_EQ(run.parameters.at("new"), "1");
  EXPECT_EQ(run.tags.at("changed.train.steps"), "40");
  client.open_run(start_of("bb22"));
  EXPECT_EQ(fake.num_runs(), 2U);
}

TEST(MlflowClient, ManyParametersGoInSeveralCalls) {
  FakeMlflow fake;
  MlflowClient client({.url = fake.url()});
  MlflowStart start = start_of("aa11");
  for (int i = 0; i < 250; ++i) start.parameters[concat("key", i)] = std::string(1000, 'x');
  client.open_run(start);
  EXPECT_EQ(fake.run().parameters.size(), 252U);
  EXPECT_EQ(fake.run().parameters.at("key7").size(), 500U);
}

// What the client makes of an answer: "comm ..." or "config ...".
std::string outcome_of(const std::string& answer) {
  FakeMlflow fake;
  fake.answer_all(answer);
  MlflowClient client(
      {.url = fake.url(), .authorization = "Bearer secret", .patience = std::chrono::seconds(5)});
  try {
    client.open_run(start_of("aa11"));
    return "accepted";
  } catch (const CommError& error) {
    return concat("comm ", error.what());
  } catch (const ConfigError& error) {
    return concat("config ", error.what());
  }
}

TEST(MlflowClient, TellsWhatMayPassFromWhatIsRefused) {
  using remote::plain_answer;
  EXPECT_THAT(outcome_of(plain_answer("500 Oops", "", "secret <html>")), HasSubstr("comm"));
  EXPECT_THAT(outcome_of(plain_answer("429 Slow")), HasSubstr("comm"));
  EXPECT_THAT(outcome_of(plain_answer("200 OK", "", "<html>garbage")), HasSubstr("no JSON object"));
  EXPECT_THAT(outcome_of(plain_answer("200 OK", "", "[1]")), HasSubstr("no JSON object"));
  EXPECT_THAT(outcome_of(plain_answer("200 OK", "", "{}")), HasSubstr("comm"));
  EXPECT_THAT(outcome_of(plain_answer("200 OK", "", R"({"experiment": {"experiment_id": 7}})")),
              HasSubstr("comm"));
  EXPECT_THAT(outcome_of("nonsense\r\n\r\n"), HasSubstr("comm"));
  EXPECT_THAT(outcome_of(plain_answer("403 Forbidden")), HasSubstr("config"));
  EXPECT_THAT(outcome_of(plain_answer("403 Forbidden")), HasSubstr("MLFLOW_TRACKING_TOKEN"));
  EXPECT_THAT(outcome_of(plain_answer("302 Found", "Location: http://127.0.0.1:1/\r\n")),
              HasSubstr("HTTP 302"));
  EXPECT_THAT(outcome_of(plain_answer("400 Bad", "", R"({"error_code": "INVALID_X"})")),
              HasSubstr("HTTP 400 INVALID_X"));
  EXPECT_THAT(outcome_of(plain_answer("400 Bad", "", "{\"error_code\": \"\\u001b[2J\"}")),
              Not(HasSubstr("\x1b")));
  for (const char* status : {"500 x", "403 x", "200 OK"})
    EXPECT_THAT(outcome_of(plain_answer(status, "", "secret")), Not(HasSubstr("secret"))) << status;
}

TEST(MlflowClient, NobodyThereIsACommError) {
  std::string url;
  { url = FakeMlflow().url(); }
  MlflowClient client({.url = url});
  EXPECT_THROW(client.open_run(start_of("aa11")), CommError);
}

}  // namespace
}  // namespace trireme::train
