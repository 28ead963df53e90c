#include "trireme/spmd/operator_table.h"

#include <map>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/spmd/dispatch.h"

namespace trireme::spmd {
namespace {

constexpr const char* kBegin = R"(# Operators of split tensors

Written from the rules in trireme/spmd/rules by tools/operators_page.py. A test compares them.

A tensor that lies in blocks on the ranks takes these operators of torch, forward and backward, and all that torch makes
of them: `linear`, `dropout`, `cross_entropy`, `interpolate`, `nn::LSTM`, the `_foreach` operators. A dim that may not be
split is gathered first, and a partial sum is summed first. Any other operator ends in one line that names it, with the
sizes and places of its arguments, before anything is sent. [How to add a rule](../design/split-operators.md#how-to-add-a-rule).
)";

std::string escaped(const std::string& name) { return "`" + name.substr(name.find(':') + 2) + "`"; }

}  // namespace

std::string operator_page() {
  // Operators with the same sentence share a row. The order is that of the first name.
  std::map<std::string, std::vector<std::string>> names;
  std::vector<std::string> order;
  for (const Rule& rule : all_rules()) {
    auto& row = names[rule.splits];
    if (row.empty()) order.emplace_back(rule.splits);
    row.push_back(rule.name);
  }
  std::string page =
      concat(kBegin, "\n", all_rules().size(),
             " operators have a rule.\n\n| what may be split | operators |\n|---|---|\n");
  for (const std::string& splits : order) {
    page += "| " + splits + " | ";
    bool is_first = true;
    for (const std::string& name : names[splits]) {
      if (!is_first) page += ", ";
      is_first = false;
      page += escaped(name);
    }
    page += " |\n";
  }
  return page;
}

}  // namespace trireme::spmd
