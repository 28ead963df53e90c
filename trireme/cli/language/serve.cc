// trireme serve: answers completions over HTTP, for tools on this host.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/language/asked_model.h"
#include "trireme/cli/language/completion_request.h"
#include "trireme/cli/language/served_runs.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/cli/train/train_rank.h"
#include "trireme/comm/net/http_server.h"
#include "trireme/dataset/conversation/chat_prompts.h"
#include "trireme/tasks/language/foreign/imported_files.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::cli {
namespace {

struct ServeModelArguments {
  AskedModelOptions asked;
  int port = 8000;
  std::string token;
};

class Serving {
 public:
  Serving(const ServeModelArguments& arguments, const AskedModel& asked)
      : arguments_(arguments),
        asked_(asked),
        name_(std::filesystem::absolute(arguments.asked.checkpoint).lexically_normal()),
        runs_(asked, name_) {}

  // On the rank that prints.
  void serve() {
    const std::string token = arguments_.token.empty() ? unique_name() : arguments_.token;
    using comm::HttpRequest;
    comm::HttpServer server(
        {.port = static_cast<uint16_t>(arguments_.port),
         .token = token,
         .limits = {.body_bytes = size_t{16} << 20}},
        {{"POST", "/v1/completions",
          [this](const HttpRequest& request) {
            return runs_.answer(read_completion_request(request.body, asked_.trained));
          }},
         {"POST", "/v1/chat/completions",
          [this](const HttpRequest& request) {
            return runs_.answer(read_chat_request(request.body, asked_.trained, prompts()));
          }},
         {"GET", "/v1/models", [this](const HttpRequest&) { return models(); }}});
    std::printf("serves  %s\n", printable(name_).c_str());
    std::printf("at      http://127.0.0.1:%d/v1/completions\n", server.port());
    std::printf("token   %s\n", printable(token).c_str());
    std::printf("until   a signal, such as Ctrl-C\n");
    std::fflush(stdout);
    server.run([this] {
      runs_.look();
      return stop_requested.load();
    });
    runs_.stop();
  }

  // On all others.
  void follow() { runs_.follow(); }

 private:
  // Read when the first conversation comes: other requests need no template.
  const dataset::ChatPrompts& prompts() {
    if (!prompts_) {
      const tasks::ImportedFiles files(train::find_checkpoint(arguments_.asked.checkpoint));
      const dataset::Tokenizer& tokenizer = *asked_.trained.tokenizer;
      TRIREME_CHECK(files.belong_to(&tokenizer),
                    "the run has another tokenizer than the imported model, whose chat template "
                    "says nothing to it; ask for completions of texts");
      prompts_.emplace(files.prefix(), tokenizer, dataset::local_time());
    }
    return *prompts_;
  }

  comm::HttpResponse models() const {
    const nlohmann::ordered_json body = {
        {"object", "list"},
        {"data", {{{"id", name_}, {"object", "model"}, {"owned_by", "trireme"}}}}};
    return {.body = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n'};
  }

  const ServeModelArguments& arguments_;
  const AskedModel& asked_;
  std::string name_;
  ServedRuns runs_;
  std::optional<dataset::ChatPrompts> prompts_;
};

int serve_model(const ServeModelArguments& arguments) {
  return ask_model(
      arguments.asked, [](const tasks::TrainedModel&) {},
      [&](const AskedModel& asked) {
        stop_on_signals();
        Serving serving(arguments, asked);
        if (asked.prints) {
          serving.serve();
        } else {
          serving.follow();
        }
      });
}

}  // namespace

void add_serve(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ServeModelArguments>();
  CLI::App* command = app.add_subcommand(
      "serve",
      "Answer OpenAI's completions and chat completions over HTTP, for tools on this\n"
      "host.\n"
      "  trireme serve runs/demo\n"
      "  trireme serve runs/big --ranks 2 --parallel.tensor=2 --port 8001\n"
      "  lm_eval --model local-completions --tasks lambada_openai --model_args \\\n"
      "      model=exported,base_url=http://127.0.0.1:8000/v1/completions\n"
      "Requests need the header \"Authorization: Bearer TOKEN\", and come from this host only.\n");
  command->add_option("--port", arguments->port, "port of 127.0.0.1; 0 = a free one")
      ->check(within({0, 65535}))
      ->capture_default_str();
  command->add_option("--token", arguments->token, "token of requests; without it one is drawn");
  add_asked_model(*command, "checkpoint", arguments->asked, exit_code,
                  [arguments] { return serve_model(*arguments); });
}

}  // namespace trireme::cli
