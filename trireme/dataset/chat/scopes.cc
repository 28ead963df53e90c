#include "trireme/dataset/chat/scopes.h"

#include <algorithm>

namespace trireme::dataset::chat {

// Blocks have few variables, so they are lists that are searched; the search is charged for the
// blocks that have many. The template's own block may have any number, and is a table.

namespace {
constexpr size_t kVariablesPerStep = 16;
}

Scopes::Scopes(Run& run, size_t num_names)
    : run_(run), globals_(num_names), is_set_(num_names, false) {
  push(0);
}

const Value* Scopes::find(NameId name) {
  size_t searched = 0;
  for (size_t frame = current(); frame > 0; frame = frames_[frame].parent) {
    auto& variables = frames_[frame].variables;
    searched += 1 + variables.size();
    const auto found = std::ranges::find(variables, name, &Variable::first);
    if (found == variables.end()) continue;
    run_.charge(searched / kVariablesPerStep);
    return &found->second;
  }
  run_.charge(searched / kVariablesPerStep);
  return is_set_[name] ? &globals_[name] : nullptr;
}

void Scopes::set(NameId name, Value value) {
  if (current() == 0) {
    globals_[name] = std::move(value);
    is_set_[name] = true;
    return;
  }
  auto& variables = frames_.back().variables;
  run_.charge(variables.size() / kVariablesPerStep);
  const auto found = std::ranges::find(variables, name, &Variable::first);
  if (found == variables.end()) {
    variables.emplace_back(name, std::move(value));
  } else {
    found->second = std::move(value);
  }
}

void Scopes::renew() {
  frames_.back().variables.clear();
  frames_.back().serial = ++last_serial_;
}

}  // namespace trireme::dataset::chat
