#include "trireme/cli/program.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <c10/util/Exception.h>
#include <torch/version.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "trireme/base/error.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/printable.h"

namespace trireme::cli {

inline namespace internal {
std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe"); }

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

}  // namespace internal

namespace {

// Follows the words that are commands. The first that is not one gets an error with the choices.
void check_commands(const CLI::App& app, int argc, char** argv) {
  const CLI::App* group = &app;
  for (int i = 1; group->get_require_subcommand_min() > 0; ++i) {
    if (i < argc && argv[i][0] == '-') return;
    std::string names;
    const CLI::App* chosen = nullptr;
    for (const CLI::App* command : group->get_subcommands([](const CLI::App*) { return true; })) {
      names += (names.empty() ? "" : ", ") + command->get_name();
      if (i < argc && command->get_name() == argv[i]) chosen = command;
    }
    TRIREME_CHECK(i < argc, "a command is missing; expected one of ", names, " (see --help)");
    TRIREME_CHECK(chosen != nullptr, "unknown command \"", argv[i], "\"; expected one of ", names);
    group = chosen;
  }
}

int run(CLI::App& app, int argc, char** argv, const int& exit_code) {
  try {
    check_commands(app, argc, argv);
    app.parse(argc, argv);
    return exit_code;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
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
  } catch (const c10::Error& error) {
    return report(kBug, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return report(kBug, error.what());
  }
}

}  // namespace

int run_program(int argc, char** argv, const ProgramOptions& options) {
  // Writing beyond `ulimit -f` becomes an error message, as on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  const std::string name =
      options.name.empty() ? std::filesystem::path(argv[0]).filename().string() : options.name;
  CLI::App app(options.description, name);
  app.set_version_flag(
      "--version", options.version + "trireme " TRIREME_VERSION " (libtorch " TORCH_VERSION ")");
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 bug, 2 you can fix it (config, arguments, data), 3 a rank was lost\n"
      "(run again to resume), 4 a checkpoint cannot be used. `" +
      name + " COMMAND --help` says more.");
  int exit_code = kDone;
  const train::Offer offer(options.tasks, options.callbacks);
  add_train(app, exit_code, offer, options.needs_config);
  add_checkpoint(app, exit_code, offer);
  add_run(app, exit_code);
  add_doctor(app, exit_code);
  add_logs(app, exit_code);
  for (const AddCommand add : options.commands) add(app, exit_code);
  return run(app, argc, argv, exit_code);
}

}  // namespace trireme::cli
