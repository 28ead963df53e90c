// trireme serve: answers completions over HTTP, for tools on this host.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/language/asked_model.h"
#include "trireme/cli/language/completions.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/cli/train/train_rank.h"
#include "trireme/comm/net/http_server.h"

namespace trireme::cli {
namespace {

struct ServeModelArguments {
  AskedModelOptions asked;
  int port = 8000;
  std::string token;
};

// Other ranks wait for the next request no longer than this, so that no timeout ends them.
constexpr std::chrono::seconds kBetweenSigns{1};

// What rank 0 tells the others. A request's body begins with a brace.
constexpr const char* kNothing = "nothing";
constexpr const char* kStop = "stop";

class Serving {
 public:
  Serving(const ServeModelArguments& arguments, const AskedModel& asked)
      : arguments_(arguments),
        asked_(asked),
        name_(std::filesystem::absolute(arguments.asked.checkpoint).lexically_normal()) {}

  // On the rank that prints.
  void serve() {
    const std::string token = arguments_.token.empty() ? unique_name() : arguments_.token;
    comm::HttpServer server(
        {.port = static_cast<uint16_t>(arguments_.port),
         .token = token,
         .limits = {.body_bytes = size_t{16} << 20}},
        {{"POST", "/v1/completions",
          [this](const comm::HttpRequest& request) { return answer(request.body); }},
         {"GET", "/v1/models", [this](const comm::HttpRequest&) { return models(); }}});
    std::printf("serves  %s\n", printable(name_).c_str());
    std::printf("at      http://127.0.0.1:%d/v1/completions\n", server.port());
    std::printf("token   %s\n", printable(token).c_str());
    std::printf("until   a signal, such as Ctrl-C\n");
    std::fflush(stdout);
    server.run([this] {
      if (std::chrono::steady_clock::now() - last_sign_ > kBetweenSigns) tell(kNothing);
      return stop_requested.load();
    });
    tell(kStop);
  }

  // On all others.
  void follow() {
    for (;;) {
      const std::string told = asked_.share("");
      if (told == kStop) return;
      if (told != kNothing) complete(asked_, read_completion_request(told, asked_.trained));
    }
  }

 private:
  void tell(const std::string& what) {
    asked_.share(what);
    last_sign_ = std::chrono::steady_clock::now();
  }

  comm::HttpResponse answer(const std::string& body) {
    const auto start = std::chrono::steady_clock::now();
    const CompletionRequest request = read_completion_request(body, asked_.trained);
    tell(body);
    std::vector<Completion> completions;
    try {
      completions = complete(asked_, request);
    } catch (const std::exception& error) {
      // Other ranks may be elsewhere in the request now.
      throw InternalError(concat("a request failed: ", error.what()));
    }
    size_t num_tokens = 0;
    for (const Completion& completion : completions) num_tokens += completion.tokens.size();
    std::printf("request %zu prompts, %zu new tokens in %.2f s\n", completions.size(), num_tokens,
                seconds_since(start));
    std::fflush(stdout);
    return {.body = completion_response(request, completions, *asked_.trained.tokenizer, name_)};
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
  std::chrono::steady_clock::time_point last_sign_ = std::chrono::steady_clock::now();
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
      "Answer OpenAI's completions over HTTP, for tools on this host.\n"
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
