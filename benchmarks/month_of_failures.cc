// What failures cost a job of a month, by plan/cost/goodput.h: with hourly files and a restart
// of everything, with files at the best interval, and with `trireme run`, which goes on from
// memory.
//   month_of_failures_benchmark [--devices 1024] [--device-mtbf-hours 29500] [--step 5]
//       [--state 6500] [--file-rate 100] [--memory-rate 10] [--file-recovery 5.56]
//       [--memory-recovery 3.8] [--from-files 0.01]
// --state: GB of all ranks' states; 6,500 are 405e9 parameters of 16 bytes. They are read and
// written with --file-rate GB/s by the job, and copied with --memory-rate GB/s by each device.
// --file-recovery, --memory-recovery: seconds from a failure to the next step without that. The
// defaults were measured (benchmarks/results): torchrun, and the worst loss of a host under
// `trireme run`.
// --from-files: the share of failures that memory does not survive, such as the loss of a host and
// of its peer at once; those go on from the hourly files.
// 29,500 hours is one failure in 1.8 hours on 16,384 devices.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>

#include "trireme/plan/cost/goodput.h"

namespace {

using trireme::plan::FailureModel;

constexpr double kHour = 3600;
constexpr double kMonth = 30 * 24 * kHour;

std::map<std::string, double> read_options(int argc, char** argv) {
  std::map<std::string, double> options = {
      {"--devices", 1024},       {"--device-mtbf-hours", 29500}, {"--step", 5},
      {"--state", 6500},         {"--file-rate", 100},           {"--memory-rate", 10},
      {"--file-recovery", 5.56}, {"--memory-recovery", 3.8},     {"--from-files", 0.01}};
  for (int i = 1; i + 1 < argc; i += 2) options.at(argv[i]) = std::stod(argv[i + 1]);
  return options;
}

void print_row(const char* name, double interval, double goodput, double reference) {
  const double lost = 1 - goodput;
  std::printf("| %s | %.0f s | %.2f %% | %.1f h | %.0f %% |\n", name, interval, 100 * goodput,
              lost * kMonth / kHour, 100 * (1 - lost / reference));
}

void print_month(const std::map<std::string, double>& options) {
  const double file_seconds = options.at("--state") / options.at("--file-rate");
  FailureModel files{.num_devices = static_cast<int64_t>(options.at("--devices")),
                     .device_mtbf_seconds = options.at("--device-mtbf-hours") * kHour,
                     .interval_seconds = kHour,
                     .save_seconds = file_seconds,
                     .recovery_seconds = options.at("--file-recovery") + file_seconds};
  const double mtbf = files.mtbf_seconds();
  std::printf("%lld devices: a failure every %.1f h, %.0f a month\n\n",
              static_cast<long long>(files.num_devices), mtbf / kHour, kMonth / mtbf);
  std::printf("| | checkpoint every | goodput | lost in a month | of the loss avoided |\n");
  std::printf("|---|---|---|---|---|\n");
  const double hourly = trireme::plan::goodput_of(files);
  print_row("hourly files", files.interval_seconds, hourly, 1 - hourly);
  FailureModel best = files;
  best.interval_seconds = trireme::plan::best_interval_seconds(files);
  print_row("files at the best interval", best.interval_seconds, trireme::plan::goodput_of(best),
            1 - hourly);
  // The two kinds of failures are independent, and their losses are small: goodputs multiply. Files
  // are written behind the training from a copy in memory, which costs no more than the copy.
  const double share = options.at("--from-files");
  FailureModel memory = files;
  memory.device_mtbf_seconds /= 1 - share;
  const double copy_seconds =
      options.at("--state") / options.at("--devices") / options.at("--memory-rate");
  memory.save_seconds = copy_seconds;
  memory.recovery_seconds = options.at("--memory-recovery") + copy_seconds;
  const double step = options.at("--step");
  memory.interval_seconds =
      step * std::max(1.0, std::round(trireme::plan::best_interval_seconds(memory) / step));
  FailureModel rest = files;
  rest.device_mtbf_seconds /= share;
  rest.save_seconds = 0;
  const double from_files = share > 0 ? trireme::plan::goodput_of(rest) : 1;
  print_row("from memory", memory.interval_seconds, trireme::plan::goodput_of(memory) * from_files,
            1 - hourly);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    print_month(read_options(argc, argv));
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "month_of_failures_benchmark: %s; see the top of its source\n",
                 error.what());
    return EXIT_FAILURE;
  }
}
