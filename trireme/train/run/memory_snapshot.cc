#include "trireme/train/run/memory_snapshot.h"

#include <algorithm>
#include <iomanip>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ATen/record_function.h>
#include <nlohmann/json.hpp>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/locale/text.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNumLargest = 3;

// Autograd runs a node within an operator of its own, which says nothing more.
const char* name_of_operator(const char* name) {
  constexpr std::string_view kEngine = "autograd::engine::evaluate_function: ";
  return std::string_view(name).starts_with(kEngine) ? name + kEngine.size() : name;
}

std::unique_ptr<at::ObserverContext> begin_operator(const at::RecordFunction& function) {
  enter_memory_operation(name_of_operator(function.name()));
  return nullptr;
}
void end_operator(const at::RecordFunction& /*function*/, at::ObserverContext* /*context*/) {
  leave_memory_operation();
}

void follow_operators() {
  static std::once_flag once;
  std::call_once(once, [] {
    at::addGlobalCallback(
        at::RecordFunctionCallback(begin_operator, end_operator)
            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  });
}

std::string to_json(const MemorySnapshot& snapshot, int rank) {
  nlohmann::ordered_json kinds, largest = nlohmann::ordered_json::array();
  for (size_t i = 0; i < kNumMemoryKinds; ++i)
    kinds[std::string(kMemoryKinds[i])] = snapshot.kinds.bytes[i];
  for (const MemoryBlock& block : snapshot.largest) {
    largest.push_back({{"bytes", block.bytes},
                       {"kind", kMemoryKinds[static_cast<size_t>(block.kind)]},
                       {"operator", block.operation},
                       {"unit", block.unit}});
  }
  const nlohmann::ordered_json object = {{"step", snapshot.step},
                                         {"rank", rank},
                                         {"total_bytes", snapshot.kinds.total()},
                                         {"failed_bytes", snapshot.failed_bytes},
                                         {"kinds", std::move(kinds)},
                                         {"largest", std::move(largest)}};
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// Without a sync, which a step would wait for: it has to outlive the process, not the machine.
void write_snapshot(const fs::path& path, const MemorySnapshot& snapshot, int rank) {
  const fs::path next = path.string() + ".next";
  OutputFile file(next);
  file.write(to_json(snapshot, rank));
  file.close();
  fs::rename(next, path);
}

std::string mebibytes(int64_t bytes) {
  TextWriter text;
  text << std::fixed << std::setprecision(1) << static_cast<double>(bytes) / (1 << 20) << " MiB";
  return text.str();
}

std::string words_of(const MemoryBlock& block) {
  std::string words =
      concat(mebibytes(block.bytes), " of ", kMemoryKinds[static_cast<size_t>(block.kind)]);
  const std::string_view space = block.operation.empty() || block.unit.empty() ? "" : " in ";
  if (!block.operation.empty() || !block.unit.empty())
    words += concat(" (", block.operation, space, block.unit, ")");
  return words;
}

}  // namespace

void remove_memory_snapshots(const fs::path& run_folder) {
  std::error_code problem, ignored;
  std::vector<fs::path> found;
  for (fs::directory_iterator each(run_folder / kMemoryFolder, problem), end;
       !problem && each != end; each.increment(problem)) {
    if (each->path().filename().string().starts_with("rank-")) found.push_back(each->path());
  }
  for (const fs::path& path : found) fs::remove(path, ignored);
}

void write_memory_snapshots(MemoryLedger& ledger, const fs::path& run_folder, int rank) {
  follow_operators();
  TextWriter name;
  name << "rank-" << std::setw(5) << std::setfill('0') << rank << ".json";
  const fs::path path = run_folder / kMemoryFolder / name.str();
  std::error_code reported;  // by what writes the file
  fs::create_directories(path.parent_path(), reported);
  fs::remove(path, reported);  // of an earlier run, where rank 0 has another folder
  ledger.watch_blocks([path, rank](const MemorySnapshot& snapshot) {
    try {
      write_snapshot(path, snapshot, rank);
    } catch (const std::exception&) {
      // A full disk, or no memory for the text. The one before stays.
    }
  });
}

std::string largest_words(const MemoryLedger& ledger) {
  std::vector<std::string> words;
  if (const MemoryBlocks* const blocks = ledger.blocks()) {
    const MemorySnapshot snapshot = blocks->snapshot();
    for (const MemoryBlock& block : snapshot.largest) {
      if (words.size() < kNumLargest) words.push_back(words_of(block));
    }
    return words.empty() ? "" : concat("; the largest tensors: ", joined(words));
  }
  const MemoryByKind peak = ledger.use().at_peak;
  std::vector<std::pair<int64_t, std::string_view>> kinds;
  for (size_t i = 0; i < kNumMemoryKinds; ++i) kinds.emplace_back(peak.bytes[i], kMemoryKinds[i]);
  std::ranges::sort(kinds, std::ranges::greater(), &std::pair<int64_t, std::string_view>::first);
  for (const auto& [bytes, kind] : kinds) {
    if (words.size() < kNumLargest && bytes > 0)
      words.push_back(concat(mebibytes(bytes), " of ", kind));
  }
  if (words.empty()) return "";
  return concat("; at the peak: ", joined(words),
                " (with watch.memory = \"snapshot\" the tensors are named)");
}

}  // namespace trireme::train
