#include "trireme/train/parallel/model_tables.h"

#include <algorithm>
#include <iterator>

#include "trireme/train/numerics/table_norm.h"

namespace trireme::train::inline internal {

void ModelTables::add(const StageTables& stage) {
  if (stage.tables != nullptr) stages_.push_back(stage);
}

std::vector<parallel::EmbeddingTables*> ModelTables::all() const {
  std::vector<parallel::EmbeddingTables*> all;
  for (const StageTables& stage : stages_) all.push_back(stage.tables);
  return all;
}

void ModelTables::settle() {
  for (const StageTables& stage : stages_) stage.tables->settle();
}

std::vector<std::string> ModelTables::names() const {
  std::vector<std::string> names;
  for (const StageTables& stage : stages_) {
    if (stage.tables->options().remote) continue;
    for (const parallel::TableConfig& table : stage.tables->configs()) {
      names.push_back(table.name + ".weight");
    }
  }
  return names;
}

std::vector<std::string> ModelTables::report(RunPoint when) const {
  std::vector<std::string> lines;
  for (const StageTables& stage : stages_) {
    if (stage.report) std::ranges::move(stage.report(when), std::back_inserter(lines));
  }
  return lines;
}

std::vector<double> ModelTables::gradient_squares(comm::Communicator& world) const {
  std::vector<double> squares;
  for (const StageTables& stage : stages_) {
    if (stage.tables->options().remote) continue;
    std::ranges::copy(table_squares(*stage.tables, world), std::back_inserter(squares));
  }
  return squares;
}

int64_t ModelTables::memory_bytes() const {
  int64_t bytes = 0;
  for (const StageTables& stage : stages_) bytes += stage.tables->memory_bytes();
  return bytes;
}

void ModelTables::step(double learning_rate, double factor) {
  for (const StageTables& stage : stages_) {
    stage.tables->set_learning_rate(learning_rate * stage.rate_factor);
    stage.tables->step(factor);
  }
}

void ModelTables::discard_gradients() {
  for (const StageTables& stage : stages_) stage.tables->discard_gradients();
}

void ModelTables::set_num_steps(int64_t num_steps) {
  for (const StageTables& stage : stages_) stage.tables->set_num_steps(num_steps);
}

}  // namespace trireme::train::inline internal
