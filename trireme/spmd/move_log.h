// What it costs that operators want their tensors elsewhere: every redistribution of the tensors
// on a grid, with the operator, the module and the reason.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "trireme/spmd/place.h"

namespace trireme::spmd {

// Redistributions alike, since the log was made or cleared.
struct Move {
  std::string operation;  // "aten::addmm", or "input \"x\"" and so on
  // Whose parameter was used last; in backward, before it in forward; "": none
  std::string module;
  std::string why;  // "argument 1: sharded(0) -> replicated on tensor"
  int64_t count = 0;
  double bytes = 0;    // sent by this rank, by the formulas of redistribute()
  double seconds = 0;  // waiting for the others included
};

// A table of 80 columns, most bytes first, with a sum. Moves without bytes are counted only.
std::string to_table(std::vector<Move> moves);

// Of one rank. Thread safety: one thread at a time.
class MoveLog {
 public:
  // A name for PlacedMeta::parameter: it lives as long as the log.
  const std::string* keep_name(std::string name) { return &names_.emplace_back(std::move(name)); }

  std::vector<Move> moves() const;
  void clear() { moves_.clear(); }
  // The module in which this thread's operators run; "": not known
  std::string module() const;

  // A redistribution for what has been entered.
  void add(const Grid& grid, const Places& from, const Places& to, double bytes, double seconds);

  // Which argument of the operator that has been entered is moved.
  void set_argument(int argument) {
    if (!causes_.empty()) causes_.back().argument = argument;
  }

  // While it lives, moves are for an operator, or for another cause.
  class Scope {
   public:
    // log: null: nothing happens. parameter: the name of one that the operator takes, or null
    Scope(MoveLog* log, const c10::OperatorHandle& op, const std::string* parameter);
    // cause: lives as long as the scope
    Scope(MoveLog* log, const std::string& cause);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    MoveLog* log_;
  };

 private:
  struct Cause {
    const c10::OperatorHandle* op = nullptr;
    const std::string* text = nullptr;  // of a cause that is no operator
    int argument = -1;
  };
  struct Sum {
    int64_t count = 0;
    double bytes = 0, seconds = 0;
  };
  using Key = std::tuple<std::string, std::string, std::string>;

  void note_parameter(const std::string* name);

  std::deque<std::string> names_{};
  std::vector<Cause> causes_{};
  // The last parameter used, and from which number of autograd's nodes on.
  std::vector<std::pair<uint64_t, const std::string*>> used_{};
  std::map<Key, Sum> moves_{};
};

// The kernel of an operator on placed tensors, within a scope of their grid's log. The messages of
// its ConfigErrors name the module.
c10::KernelFunction with_log(c10::KernelFunction kernel);

}  // namespace trireme::spmd
