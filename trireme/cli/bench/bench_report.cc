#include "trireme/cli/bench/bench_report.h"

#include <cstdio>
#include <limits>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/cli/console.h"
#include "trireme/cli/printable.h"

namespace trireme::cli::inline internal {
namespace {

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
  for (const auto& [peer, microseconds] : result.peers) {
    object[peer + "_microseconds"] = microseconds;
    object["ratio_" + peer] = result.ratio(peer);
  }
  return object;
}

}  // namespace

std::string table_header(const std::vector<std::string>& peers) {
  std::vector<std::string> right = {"ranks", "size", "time", "p99", "algorithm", "bus", "x memcpy"};
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
                                    human_ratio(result.memcpy_ratio())};
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
  return result;
}

}  // namespace trireme::cli::inline internal
