#include "trireme/cli/program.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <torch/version.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "trireme/base/build_info.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/train/annotated/annotated_task.h"

namespace trireme::cli {

std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe"); }

std::vector<std::string> own_words() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (!words.empty()) words.erase(words.begin());
  return words;
}

int report(ExitCode code, const std::string& message) {
  std::string line = printable(message.substr(0, message.find('\n')));
  const char* descriptor = std::getenv("TRIREME_ERROR_FD");
  if (descriptor != nullptr) {
    const char* rank = std::getenv("RANK");
    if (code == kPeerLost || code == kBug) line = concat("rank ", rank ? rank : "?", ": ", line);
    if (::write(std::atoi(descriptor), line.data(), line.size()) == std::ssize(line)) return code;
  }
  std::fprintf(stderr, "trireme: %s\n", line.c_str());
  return code;
}

namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& group) {
  return group.get_subcommands([](const CLI::App*) { return true; });
}

// Advice on a word that is not a command of `group`. names: the existing commands.
std::string advice_on(const CLI::App& app, const CLI::App& group, const std::string& word,
                      const std::string& names) {
  const std::string program = app.get_name();
  if (word == "help") return concat("`", program, " --help` lists them");
  if (word == "resume" || word == "continue") {
    return concat("the same `", program,
                  " train` command goes on from the newest checkpoint in output.folder");
  }
  // A command of another group, or one that stands above.
  for (const CLI::App* outer : commands_of(app)) {
    if (outer->get_name() == word) return concat("did you mean `", program, " ", word, "`?");
    for (const CLI::App* inner : commands_of(*outer)) {
      if (inner->get_name() != word) continue;
      return concat("did you mean `", program, " ", outer->get_name(), " ", word, "`?");
    }
  }
  std::vector<std::string> known;
  for (const CLI::App* command : commands_of(group)) known.push_back(command->get_name());
  const std::string meant = likely_name(known, word);
  return concat(meant.empty() ? "" : concat("did you mean \"", meant, "\"? "), "expected one of ",
                names);
}

// Follows the words that are commands. The first that is not one gets an error with the choices.
void check_commands(const CLI::App& app, int argc, char** argv) {
  const CLI::App* group = &app;
  for (int i = 1; group->get_require_subcommand_min() > 0; ++i) {
    if (i < argc && argv[i][0] == '-') return;
    std::string names;
    const CLI::App* chosen = nullptr;
    for (const CLI::App* command : commands_of(*group)) {
      names += (names.empty() ? "" : ", ") + command->get_name();
      if (i < argc && command->get_name() == argv[i]) chosen = command;
    }
    TRIREME_CHECK(i < argc, "a command is missing; expected one of ", names, " (see --help)");
    TRIREME_CHECK(chosen != nullptr, "unknown command \"", argv[i], "\"; ",
                  advice_on(app, *group, argv[i], names));
    group = chosen;
  }
}

// Else a file that the program opens would become its output.
void open_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDWR);  // takes the lowest number
  }
}

// Names an option once, whatever its spellings, and other options in the order of the alphabet: a
// set of pointers, as CLI11 keeps them, has another order on another machine.
class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    const std::vector<std::string>& names = option->get_lnames();
    return is_positional || names.size() < 2 ? Formatter::make_option_name(option, is_positional)
                                             : "--" + names.front();
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string text = Formatter::make_option_opts(option);
    const std::string needs = others("Needs", option->get_needs());
    const std::string excludes = others("Excludes", option->get_excludes());
    return text.substr(0, text.size() - needs.size() - excludes.size()) + needs + excludes;
  }

 private:
  std::string others(const std::string& label, const std::set<CLI::Option*>& options) const {
    if (options.empty()) return "";
    std::set<std::string> names;
    for (const CLI::Option* option : options) names.insert(option->get_name());
    std::string text = " " + get_label(label) + ":";
    for (const std::string& name : names) text += " " + name;
    return text;
  }
};

bool has_annotated_task(const train::Offer& offer) {
  return std::ranges::any_of(offer.tasks, [](const train::TaskKind& kind) {
    return dynamic_cast<const train::AnnotatedTask*>(kind.make().get()) != nullptr;
  });
}

int run(CLI::App& app, int argc, char** argv, const int& exit_code) {
  const ClassicThread classic;  // for the parser's numbers and the commands' printf
  try {
    check_commands(app, argc, argv);
    app.parse(argc, argv);
    return exit_code;
  } catch (const CLI::ParseError& error) {
    const ClassicProcess help_too;
    if (error.get_name() == "CallForHelp") {
      std::fputs(wrapped_help(app.help(), output_columns()).c_str(), stdout);
      return kDone;
    }
    if (error.get_exit_code() == 0) return app.exit(error);  // --version
    return report(kUserError, std::string(error.what()) + " (see --help)");
  } catch (const ConfigError& error) {
    return report(kUserError, error.what());
  } catch (const CommError& error) {
    return report(kPeerLost, error.what());
  } catch (const CheckpointError& error) {
    return report(kBadCheckpoint, error.what());
  } catch (const InternalError& error) {
    return report(kBug, error.what());
  } catch (const Error& error) {
    return report(kUserError, error.what());  // a file that cannot be read or written
  } catch (const std::filesystem::filesystem_error& error) {
    return report(kUserError, concat(error.path1().string(), ": ", error.code().message()));
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again)
      return report(kBug, error.what());
    return report(kUserError,
                  concat("cannot start a thread: ", error.code().message(),
                         "; raise the limit on processes (ulimit -u, or the container's)"));
  } catch (const c10::Error& error) {
    return report(kBug, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return report(kBug, error.what());
  }
}

}  // namespace

int run_program(int argc, char** argv, const ProgramOptions& options) {
  open_standard_streams();
  // Writing beyond `ulimit -f` becomes an error message, as on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  const std::string name =
      options.name.empty() ? std::filesystem::path(argv[0]).filename().string() : options.name;
  CLI::App app(options.description, name);
  app.set_version_flag(
      "--version", concat(options.version, "trireme ", build_version(), " (libtorch " TORCH_VERSION,
                          build_revision().empty() ? "" : ", revision ", build_revision(), ")"));
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());  // and of each command, which inherits it
  std::optional<ClassicProcess> for_defaults(std::in_place);  // which the parser turns into text
  app.footer(
      "Exit codes: 0 done, 1 bug, 2 you can fix it (config, arguments, data), 3 a rank was lost\n"
      "(run again to resume), 4 a checkpoint cannot be used. `" +
      name + " COMMAND --help` says more.");
  int exit_code = kDone;
  const train::Offer offer(options.tasks, options.callbacks);
  add_train(app, exit_code, offer, options.needs_config);
  add_predict(app, exit_code, offer);
  add_checkpoint(app, exit_code, offer);
  add_run(app, exit_code, offer, options.needs_config);
  add_doctor(app, exit_code);
  add_verify(app, exit_code, offer);
  add_replay(app, exit_code, offer);
  add_logs(app, exit_code);
  if (has_annotated_task(offer)) add_annotated_shard(app, exit_code, offer);
  for (const AddCommand add : options.commands) add(app, exit_code);
  for_defaults.reset();
  return run(app, argc, argv, exit_code);
}

}  // namespace trireme::cli
