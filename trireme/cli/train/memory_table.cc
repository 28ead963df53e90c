#include "trireme/cli/train/memory_table.h"

#include <cmath>
#include <numeric>

#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"
#include "trireme/cli/console.h"

namespace trireme::cli {
namespace {

double sum_of(const BytesByKind& bytes) { return std::accumulate(bytes.begin(), bytes.end(), 0.0); }

std::string table_row(std::string_view name, const double* planned, double measured) {
  std::string row = format("memory  %-12s", std::string(name).c_str());
  if (planned != nullptr) row += format("%12s", human_bytes(*planned).c_str());
  row += format("%12s", human_bytes(measured).c_str());
  if (planned != nullptr && *planned > 0) {
    row += format("%+8.1f %%", 100 * (measured / *planned - 1));
  }
  return row + "\n";
}

}  // namespace

std::optional<BytesByKind> measured_memory(const train::StepMetrics& metrics) {
  BytesByKind bytes{};
  for (size_t i = 0; i < kNumMemoryKinds; ++i) {
    const std::optional<int64_t>& value = metrics.*train::kMemoryFields[i];
    if (!value) return std::nullopt;
    bytes[i] = static_cast<double>(*value);
  }
  return bytes;
}

std::string planned_lines(const BytesByKind& planned) {
  constexpr size_t kColumns = 80;
  std::string text, line = "planned " + human_bytes(sum_of(planned)) + " per rank:";
  for (size_t i = 0; i < kNumMemoryKinds; ++i) {
    const std::string part = concat(" ", kMemoryKinds[i], " ", human_bytes(planned[i]),
                                    i + 1 < kNumMemoryKinds ? "," : "");
    if (line.size() + part.size() > kColumns) {
      text += line + "\n";
      line = "       ";
    }
    line += part;
  }
  return text + line + "\n";
}

std::string memory_table(const std::optional<BytesByKind>& planned, const BytesByKind& measured) {
  std::string text = planned
                         ? format("memory  %-12s%12s%12s\n", "at the peak", "planned", "measured")
                         : format("memory  %-12s%12s\n", "at the peak", "measured");
  size_t worst = 0;
  const auto error_of = [&](size_t kind) { return measured[kind] - (*planned)[kind]; };
  for (size_t i = 0; i < kNumMemoryKinds; ++i) {
    text += table_row(kMemoryKinds[i], planned ? &(*planned)[i] : nullptr, measured[i]);
    if (planned && std::abs(error_of(i)) > std::abs(error_of(worst))) worst = i;
  }
  const double all = planned ? sum_of(*planned) : 0;
  text += table_row("sum of these", planned ? &all : nullptr, sum_of(measured));
  if (!planned) return text;
  return text + concat("memory  furthest from the plan: ", kMemoryKinds[worst], ", ",
                       human_bytes(std::abs(error_of(worst))),
                       error_of(worst) < 0 ? " below it\n" : " above it\n");
}

}  // namespace trireme::cli
