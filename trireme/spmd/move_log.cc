#include "trireme/spmd/move_log.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/node.h>

#include "trireme/base/error.h"
#include "trireme/spmd/placed_tensor.h"

namespace trireme::spmd {
namespace {

// Of older forwards nothing is needed but the place of nodes whose backward is still to come.
constexpr size_t kMostUses = 1 << 16;

std::string module_of(const std::string* parameter) {
  if (parameter == nullptr) return "";
  const size_t dot = parameter->rfind('.');
  return dot == std::string::npos ? "" : parameter->substr(0, dot);
}

std::string kind_of(const Place& place) {
  return mesh::to_string(mesh::Placement{place.kind, place.is_sharded() ? place.dim : 0});
}

bool gives_view(const c10::OperatorHandle& op) {
  const auto& returns = op.schema().returns();
  return !op.schema().is_mutable() && !returns.empty() && returns[0].alias_info() != nullptr;
}

std::string in_digits(double value, const char* format) {
  std::array<char, 32> text{};
  const int size = std::snprintf(text.data(), text.size(), format, value);
  return {text.data(), static_cast<size_t>(size)};
}

// The end of a text that is too long tells more.
std::string fitted_left(const std::string& text, size_t width) {
  if (text.size() > width) return "..." + text.substr(text.size() - width + 3);
  return text + std::string(width - text.size(), ' ');
}
std::string fitted_right(const std::string& text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

// A cause that is no operator has the module's columns too.
std::string table_row(const std::string& operation, const std::string& module,
                      const std::string& count, const std::string& bytes,
                      const std::string& seconds) {
  const std::string cause = module.empty()
                                ? fitted_left(operation, 51)
                                : fitted_left(operation, 24) + " " + fitted_left(module, 26);
  return cause + fitted_right(count, 7) + fitted_right(bytes, 12) + fitted_right(seconds, 10) +
         "\n";
}

}  // namespace

std::string to_table(std::vector<Move> moves) {
  std::ranges::stable_sort(moves, std::ranges::greater(), &Move::bytes);
  std::string text = table_row("operation", "module", "count", "bytes", "seconds");
  Move total;
  int64_t free = 0;
  for (const Move& move : moves) {
    if (move.bytes == 0) {
      free += move.count;
      continue;
    }
    total.count += move.count;
    total.bytes += move.bytes;
    total.seconds += move.seconds;
    text += table_row(move.operation, move.module, std::to_string(move.count),
                      in_digits(move.bytes, "%.0f"), in_digits(move.seconds, "%.4f"));
    text += "  " + (move.why.size() > 78 ? move.why.substr(0, 75) + "..." : move.why) + "\n";
  }
  text += table_row("total", "", std::to_string(total.count), in_digits(total.bytes, "%.0f"),
                    in_digits(total.seconds, "%.4f"));
  return text + "and " + std::to_string(free) + " that send nothing\n";
}

std::vector<Move> MoveLog::moves() const {
  std::vector<Move> moves;
  for (const auto& [key, sum] : moves_) {
    const auto& [operation, module, why] = key;
    moves.push_back({operation, module, why, sum.count, sum.bytes, sum.seconds});
  }
  std::ranges::stable_sort(moves, std::ranges::greater(), &Move::bytes);
  return moves;
}

std::string MoveLog::module() const {
  if (used_.empty()) return "";
  const auto node = torch::autograd::get_current_node();
  if (!node) return module_of(used_.back().second);
  const auto after =
      std::ranges::upper_bound(used_, node->sequence_nr(), {}, &decltype(used_)::value_type::first);
  return after == used_.begin() ? "" : module_of(std::prev(after)->second);
}

void MoveLog::note_parameter(const std::string* name) {
  if (torch::autograd::get_current_node()) return;
  if (!used_.empty() && used_.back().second == name) return;
  // The operator's own node has its number already.
  const uint64_t next = at::sequence_number::peek();
  if (used_.size() >= kMostUses) used_.erase(used_.begin(), used_.begin() + kMostUses / 2);
  used_.emplace_back(next > 0 ? next - 1 : 0, name);
}

void MoveLog::add(const Grid& grid, const Places& from, const Places& to, double bytes,
                  double seconds) {
  std::string operation = "whole_of()", module, why;
  if (!causes_.empty()) {
    const Cause& cause = causes_.back();
    operation = cause.op ? cause.op->schema().name() : *cause.text;
    if (cause.op) module = this->module();
    if (cause.op && cause.argument >= 0) why = concat("argument ", cause.argument, ": ");
    if (cause.op && bytes > 0 && gives_view(*cause.op)) why += "cuts a shard, ";
  }
  const char* separator = "";
  for (int axis = 0; axis < grid.num_axes(); ++axis) {
    if (from[axis] == to[axis]) continue;
    why += concat(separator, kind_of(from[axis]), " -> ", kind_of(to[axis]), " on ",
                  grid.axes()[axis].name);
    separator = ", ";
  }
  Sum& sum = moves_[{std::move(operation), std::move(module), std::move(why)}];
  ++sum.count;
  sum.bytes += bytes;
  sum.seconds += seconds;
}

MoveLog::Scope::Scope(MoveLog* log, const c10::OperatorHandle& op, const std::string* parameter)
    : log_(log) {
  if (!log_) return;
  if (parameter) log_->note_parameter(parameter);
  log_->causes_.push_back({.op = &op});
}

MoveLog::Scope::Scope(MoveLog* log, const std::string& cause) : log_(log) {
  if (log_) log_->causes_.push_back({.text = &cause});
}

MoveLog::Scope::~Scope() {
  if (log_) log_->causes_.pop_back();
}

namespace {

// An error that has its module's name.
class LocatedError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

// Of the placed tensors among an operator's arguments.
struct TensorsOnStack {
  TensorsOnStack(const torch::jit::Stack& stack, size_t count) {
    for (size_t i = stack.size() - count; i < stack.size(); ++i) {
      const c10::IValue& value = stack[i];
      if (value.isTensor()) {
        add(value.toTensor());
      } else if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) add(tensor);
      } else if (value.isOptionalTensorList()) {
        for (const auto& tensor : value.toOptionalTensorVector()) {
          if (tensor) add(*tensor);
        }
      }
    }
  }
  void add(const at::Tensor& tensor) {
    const PlacedMeta* meta = placed(tensor);
    if (!meta) return;
    if (!log && meta->grid) log = meta->grid->log();  // a trace has no grid
    if (meta->parameter) parameter = meta->parameter;
  }

  MoveLog* log = nullptr;
  const std::string* parameter = nullptr;
};

class LoggedKernel final : public c10::OperatorKernel {
 public:
  explicit LoggedKernel(c10::KernelFunction kernel) : kernel_(std::move(kernel)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) const {
    const TensorsOnStack tensors(*stack, op.schema().arguments().size());
    if (!tensors.log) {
      kernel_.callBoxed(op, keys, stack);
      return;
    }
    const MoveLog::Scope scope(tensors.log, op, tensors.parameter);
    try {
      kernel_.callBoxed(op, keys, stack);
    } catch (const LocatedError&) {
      throw;
    } catch (const ConfigError& error) {
      const std::string module = tensors.log->module();
      if (module.empty()) throw;
      throw LocatedError(concat("module ", module, ": ", error.what()));
    }
  }

 private:
  c10::KernelFunction kernel_;
};

}  // namespace

c10::KernelFunction with_log(c10::KernelFunction kernel) {
  if (kernel.isFallthrough()) return kernel;
  return c10::KernelFunction::makeFromBoxedFunctor(
      std::make_unique<LoggedKernel>(std::move(kernel)));
}

}  // namespace trireme::spmd
