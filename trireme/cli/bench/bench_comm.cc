#include "trireme/cli/bench/bench_comm.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include "trireme/base/bounded_json.h"
#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/numbers.h"
#include "trireme/cli/bench/bench_case.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/comm/objects.h"

namespace trireme::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBatchSeconds = 20e-6;
constexpr int64_t kMaxBatch = 1000;
constexpr int64_t kMinBatches = 5;
constexpr int64_t kMaxBatches = 20000;
constexpr double kWarmUpShare = 0.2;  // of the budget

// The largest value of all ranks, so that all make the same decision.
double largest(comm::Communicator& group, double value) {
  const at::Tensor shared = at::full({1}, value, at::kDouble);
  group.all_reduce(shared, {.operation = comm::ReduceOp::kMax})->wait();
  return shared.item<double>();
}

// Doubles the number of runs until they have used their share of the budget. Returns the seconds
// per operation in the last batch, on the slowest rank.
double warm_up(comm::Communicator& group, const std::function<void()>& operation, double seconds) {
  for (int64_t count = 1;; count *= 2) {
    group.barrier()->wait();
    const Clock::time_point start = Clock::now();
    for (int64_t i = 0; i < count; ++i) operation();
    const double elapsed = largest(group, seconds_since(start));
    if (elapsed > seconds / 2) return elapsed / static_cast<double>(count);
  }
}

double gigabytes_per_second(int64_t bytes, double microseconds) {
  return microseconds > 0 ? static_cast<double>(bytes) / microseconds / 1e3 : 0;
}

// Every rank copies its own bytes at the same time, so memory is shared as in an operation.
double measure_memcpy(comm::Communicator& group, int64_t bytes, double seconds) {
  if (bytes == 0) return 0;
  const at::Tensor from = at::zeros({bytes}, at::kByte);
  const at::Tensor to = at::empty({bytes}, at::kByte);
  from.fill_(1);  // gives it its own pages; fresh zeros share one
  return measure(
             group,
             [&] {
               std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(),
                           static_cast<size_t>(bytes));
             },
             seconds)
      .median_microseconds;
}

// Adds streams of `count` words and writes the sum to each of them, as an all-reduce in shared
// memory does with a rank's part of every buffer. Blocks stay in the first cache.
void sum_streams(std::vector<std::vector<uint64_t>>& streams, int64_t count) {
  constexpr int64_t kBlock = 512;
  uint64_t sums[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = std::min(kBlock, count - begin);
    std::copy_n(streams.front().data() + begin, size, sums);
    for (size_t s = 1; s < streams.size(); ++s) {
      const uint64_t* from = streams[s].data() + begin;
      for (int64_t i = 0; i < size; ++i) sums[i] += from[i];
    }
    for (std::vector<uint64_t>& stream : streams) std::copy_n(sums, size, stream.data() + begin);
  }
}

// The limit of an all-reduce in shared memory: every rank reads as many streams as there are ranks,
// each with its part of the bytes, and writes as many, at the same time and without waiting.
double measure_loop(comm::Communicator& group, int64_t bytes, double seconds) {
  const int64_t words = bytes / group.size() / static_cast<int64_t>(sizeof(uint64_t));
  if (words == 0) return 0;
  std::vector<std::vector<uint64_t>> streams(static_cast<size_t>(group.size()),
                                             std::vector<uint64_t>(static_cast<size_t>(words), 1));
  return measure(
             group, [&] { sum_streams(streams, words); }, seconds)
      .median_microseconds;
}

void check_values(comm::Communicator& group, const std::string& transport, const CommCase& what,
                  CaseBuffers& buffers) {
  buffers.fill_pattern();
  buffers.run();
  // Every rank learns of every error, so that all ranks stop.
  for (const std::string& error : comm::all_gather_strings(group, buffers.first_error())) {
    if (error.empty()) continue;
    throw InternalError(concat(name_of(what.operation), " of ", what.bytes, " bytes ",
                               name_of(what.dtype), " in ", name_of(what.memory), " memory over ",
                               transport, ", ", group.size(), " ranks: ", error));
  }
}

std::string human_microseconds(double microseconds) {
  if (microseconds >= 1e6) return format("%.2f s", microseconds / 1e6);
  if (microseconds >= 1e3) return format("%.2f ms", microseconds / 1e3);
  return format("%.2f us", microseconds);
}

std::string human_bandwidth(double gigabytes) {
  return gigabytes >= 0.1 ? format("%.2f GB/s", gigabytes) : format("%.2f MB/s", gigabytes * 1e3);
}

std::string human_ratio(double ratio) {
  if (ratio == 0) return "-";
  if (ratio < 0.001) return "<0.001";
  return format(ratio < 0.1 ? "%.3f" : ratio < 10 ? "%.2f" : "%.1f", ratio);
}

std::string row(const std::vector<std::string>& left, const std::vector<std::string>& right) {
  constexpr int kWidths[] = {14, 9, 9, 5};
  std::string line;
  for (size_t i = 0; i < left.size(); ++i) line += format("%-*s ", kWidths[i], left[i].c_str());
  for (size_t i = 0; i < right.size(); ++i) {
    line += format(i == 0 ? " %5s" : " %11s", right[i].c_str());
  }
  return line;
}

nlohmann::ordered_json object_of(const CommResult& result) {
  nlohmann::ordered_json object = {{"operation", name_of(result.what.operation)},
                                   {"transport", result.transport},
                                   {"memory", name_of(result.what.memory)},
                                   {"dtype", name_of(result.what.dtype)},
                                   {"bytes", result.what.bytes},
                                   {"ranks", result.num_ranks},
                                   {"microseconds", result.microseconds},
                                   {"p99_microseconds", result.p99_microseconds},
                                   {"algorithm_bandwidth_gbps", result.algorithm_bandwidth()},
                                   {"bus_bandwidth_gbps", result.bus_bandwidth()},
                                   {"memcpy_microseconds", result.memcpy_microseconds},
                                   {"memcpy_ratio", result.memcpy_ratio()}};
  if (result.loop_microseconds > 0) {
    object["loop_microseconds"] = result.loop_microseconds;
    object["loop_ratio"] = result.loop_ratio();
  }
  for (const auto& [peer, microseconds] : result.peers) {
    object[peer + "_microseconds"] = microseconds;
    object["ratio_" + peer] = result.ratio(peer);
  }
  return object;
}

}  // namespace

BatchPlan plan_batches(double operation_seconds, double budget_seconds) {
  const double one = std::max(operation_seconds, 1e-9);
  BatchPlan plan;
  plan.batch = std::clamp<int64_t>(std::llround(std::ceil(kBatchSeconds / one)), 1, kMaxBatch);
  const double batch_seconds = one * static_cast<double>(plan.batch);
  plan.num_batches = std::clamp<int64_t>(
      std::llround(std::min(1e9, budget_seconds / batch_seconds)), kMinBatches, kMaxBatches);
  return plan;
}

Timing summarize(std::vector<double> microseconds) {
  TRIREME_ASSERT(!microseconds.empty(), "no times");
  std::ranges::sort(microseconds);
  const size_t count = microseconds.size();
  const auto rank = static_cast<size_t>(std::ceil(0.99 * static_cast<double>(count)));
  return {median(microseconds), microseconds[std::max<size_t>(rank, 1) - 1]};
}

Timing measure(comm::Communicator& group, const std::function<void()>& operation,
               double budget_seconds) {
  const double one = warm_up(group, operation, kWarmUpShare * budget_seconds);
  const BatchPlan plan = plan_batches(one, (1 - kWarmUpShare) * budget_seconds);
  std::vector<double> times(static_cast<size_t>(plan.num_batches));
  for (double& microseconds : times) {
    group.barrier()->wait();
    const Clock::time_point start = Clock::now();
    for (int64_t i = 0; i < plan.batch; ++i) operation();
    microseconds = 1e6 * seconds_since(start) / static_cast<double>(plan.batch);
  }
  const at::Tensor slowest = at::from_blob(times.data(), {plan.num_batches}, at::kDouble);
  group.all_reduce(slowest, {.operation = comm::ReduceOp::kMax})->wait();
  return summarize(times);
}

double CommResult::algorithm_bandwidth() const {
  return gigabytes_per_second(what.bytes, microseconds);
}

double CommResult::bus_bandwidth() const {
  return algorithm_bandwidth() * bus_factor(what.operation, num_ranks);
}

double CommResult::memcpy_ratio() const {
  return microseconds > 0 ? memcpy_microseconds / microseconds : 0;
}

double CommResult::loop_ratio() const {
  return microseconds > 0 ? loop_microseconds / microseconds : 0;
}

double CommResult::ratio(const std::string& peer) const {
  const auto found = peers.find(peer);
  return found != peers.end() && microseconds > 0 ? found->second / microseconds : 0;
}

std::vector<CommResult> run_cases(comm::Communicator& group, const std::string& transport,
                                  const std::vector<CommCase>& cases, double seconds_per_case,
                                  const OnCase& on_case) {
  constexpr double kLimitShare = 0.2;  // of the time, for each limit
  std::map<int64_t, double> memcpy_microseconds;
  std::map<int64_t, double> loop_microseconds;
  std::vector<CommResult> results;
  for (const CommCase& what : cases) {
    if (on_case) on_case(what);
    if (!memcpy_microseconds.contains(what.bytes)) {
      memcpy_microseconds[what.bytes] =
          measure_memcpy(group, what.bytes, kLimitShare * seconds_per_case);
    }
    const bool has_loop = what.operation == CommOperation::kAllReduce;
    if (has_loop && !loop_microseconds.contains(what.bytes)) {
      loop_microseconds[what.bytes] =
          measure_loop(group, what.bytes, kLimitShare * seconds_per_case);
    }
    CaseBuffers buffers(group, what);
    check_values(group, transport, what, buffers);
    buffers.fill_zero();
    const Timing timing = measure(
        group, [&] { buffers.run(); }, (1 - kLimitShare) * seconds_per_case);
    results.push_back({.what = what,
                       .transport = transport,
                       .num_ranks = group.size(),
                       .microseconds = timing.median_microseconds,
                       .p99_microseconds = timing.p99_microseconds,
                       .memcpy_microseconds = memcpy_microseconds[what.bytes],
                       .loop_microseconds = has_loop ? loop_microseconds[what.bytes] : 0});
  }
  return results;
}

std::string table_header(const std::vector<std::string>& peers) {
  std::vector<std::string> right = {"ranks",     "size", "time",     "p99",
                                    "algorithm", "bus",  "x memcpy", "x loop"};
  for (const std::string& peer : peers) right.push_back("x " + peer);
  return row({"operation", "transport", "memory", "dtype"}, right);
}

std::string table_row(const CommResult& result, const std::vector<std::string>& peers) {
  const bool has_bytes = result.what.bytes > 0;
  const auto of_bytes = [&](const std::string& text) { return has_bytes ? text : "-"; };
  std::vector<std::string> right = {std::to_string(result.num_ranks),
                                    of_bytes(human_bytes(static_cast<double>(result.what.bytes))),
                                    human_microseconds(result.microseconds),
                                    human_microseconds(result.p99_microseconds),
                                    of_bytes(human_bandwidth(result.algorithm_bandwidth())),
                                    of_bytes(human_bandwidth(result.bus_bandwidth())),
                                    human_ratio(result.memcpy_ratio()),
                                    human_ratio(result.loop_ratio())};
  for (const std::string& peer : peers) right.push_back(human_ratio(result.ratio(peer)));
  return row({name_of(result.what.operation), result.transport,
              of_bytes(name_of(result.what.memory)), of_bytes(name_of(result.what.dtype))},
             right);
}

std::string json_list(std::span<const CommResult> results) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const CommResult& result : results) list.push_back(object_of(result));
  return json_text(list);
}

std::string write_line(const CommResult& result) {
  return object_of(result).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

CommResult read_line(const std::string& line) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  const std::string source =
      concat("a rank printed \"", line.substr(0, 100), "\", which is not a result");
  const nlohmann::json value = parse_json(line, source);
  const JsonView object(value, source);
  CommResult result;
  result.what.operation = parse_operations({object.at("operation").text()}).front();
  result.what.memory = parse_memories({object.at("memory").text()}).front();
  result.what.dtype = parse_dtypes({object.at("dtype").text()}).front();
  result.what.bytes = object.at("bytes").integer(0, kLargest);
  result.transport = object.at("transport").text();
  result.num_ranks = static_cast<int>(object.at("ranks").integer(1, 1 << 15));
  result.microseconds = object.at("microseconds").number(0);
  result.p99_microseconds = object.at("p99_microseconds").number(0);
  if (const auto found = object.find("memcpy_microseconds")) {
    result.memcpy_microseconds = found->number(0);
  }
  if (const auto found = object.find("loop_microseconds")) {
    result.loop_microseconds = found->number(0);
  }
  return result;
}

}  // namespace trireme::cli
