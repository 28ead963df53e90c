// The commands of `trireme` that only image models have.
#pragma once

namespace CLI {
class App;
}

namespace trireme::cli::inline internal {

void add_classify(CLI::App& app, int& exit_code);

}  // namespace trireme::cli::inline internal
