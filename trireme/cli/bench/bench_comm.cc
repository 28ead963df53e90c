#include "trireme/cli/bench/bench_comm.h"

#include <cstring>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/cli/bench/bench_buffers.h"
#include "trireme/cli/bench/bench_measure.h"
#include "trireme/comm/objects.h"

namespace trireme::cli::inline internal {
namespace {

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

}  // namespace

double CommResult::algorithm_bandwidth() const {
  return gigabytes_per_second(what.bytes, microseconds);
}

double CommResult::bus_bandwidth() const {
  return algorithm_bandwidth() * bus_factor(what.operation, num_ranks);
}

double CommResult::memcpy_ratio() const {
  return microseconds > 0 ? memcpy_microseconds / microseconds : 0;
}

double CommResult::ratio(const std::string& peer) const {
  const auto found = peers.find(peer);
  return found != peers.end() && microseconds > 0 ? found->second / microseconds : 0;
}

std::vector<CommResult> run_cases(comm::Communicator& group, const std::string& transport,
                                  const std::vector<CommCase>& cases, double seconds_per_case,
                                  const OnCase& on_case) {
  constexpr double kMemcpyShare = 0.2;
  std::map<int64_t, double> memcpy_microseconds;
  std::vector<CommResult> results;
  for (const CommCase& what : cases) {
    if (on_case) on_case(what);
    if (!memcpy_microseconds.contains(what.bytes)) {
      memcpy_microseconds[what.bytes] =
          measure_memcpy(group, what.bytes, kMemcpyShare * seconds_per_case);
    }
    CaseBuffers buffers(group, what);
    check_values(group, transport, what, buffers);
    buffers.fill_zero();
    const Timing timing = measure(
        group, [&] { buffers.run(); }, (1 - kMemcpyShare) * seconds_per_case);
    results.push_back({.what = what,
                       .transport = transport,
                       .num_ranks = group.size(),
                       .microseconds = timing.median_microseconds,
                       .p99_microseconds = timing.p99_microseconds,
                       .memcpy_microseconds = memcpy_microseconds[what.bytes]});
  }
  return results;
}

}  // namespace trireme::cli::inline internal
