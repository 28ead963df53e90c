#include "trireme/cli/console.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <sys/ioctl.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/cli/printable.h"
#include "trireme/cli/profile_table.h"
#include "trireme/train/parallel/layout.h"

namespace trireme::cli::inline internal {
namespace {

// How the model's states are distributed.
std::string describe_sharing(const train::ParallelConfig& parallel) {
  if (parallel.zero == 0) return "a copy on each rank";
  std::string text = format("ZeRO-%lld over %lld ranks", static_cast<long long>(parallel.zero),
                            static_cast<long long>(parallel.shard * parallel.context));
  const auto replicas = static_cast<long long>(parallel.data / parallel.shard);
  if (replicas > 1) text += format(", %lld replicas", replicas);
  return text;
}

// Rank 0's memory for the model from step to step.
std::string describe_memory(const train::RunConfig& config, const train::RunSummary& summary) {
  const auto bytes = [](int64_t count) { return human_bytes(static_cast<double>(count)); };
  std::string text = "parameters " + bytes(summary.memory.parameters) + ", gradients " +
                     bytes(summary.memory.gradients);
  const int64_t accumulating = config.held_gradients() * summary.memory.whole_gradients;
  if (accumulating > summary.memory.gradients) {
    text += " (" + bytes(accumulating) + " until the last microbatch)";
  }
  if (summary.compression_bytes > 0) {
    text += ", compression " + bytes(summary.compression_bytes);
  }
  text += ", optimizer " + bytes(summary.optimizer_bytes);
  if (config.offload.optimizer != train::OffloadPlace::kNone) {
    text += " (on " + name_of(train::kOffloadPlaces, config.offload.optimizer) + ")";
  }
  if (summary.table_bytes > 0) text += ", tables " + bytes(summary.table_bytes);
  return text + " per rank; " + describe_sharing(config.parallel);
}

}  // namespace

std::string describe_wait(std::span<const int> ranks, double seconds) {
  constexpr size_t kNamed = 8;
  std::string names;
  for (size_t i = 0; i < std::min(ranks.size(), kNamed); ++i) {
    names += concat(i == 0 ? "" : ", ", ranks[i]);
  }
  if (ranks.size() > kNamed) names += format(" and %zu more", ranks.size() - kNamed);
  return concat("waiting for ", ranks.size() == 1 ? "rank " : "the disks of ranks ", names,
                ranks.size() == 1 ? "'s disk" : "", ": ", human_duration(seconds));
}

std::string human_count(double count) {
  for (const auto& [unit, name] : {std::pair{1e9, "B"}, std::pair{1e6, "M"}, std::pair{1e3, "k"}}) {
    if (count >= unit) return format("%.*f %s", count < 100 * unit ? 1 : 0, count / unit, name);
  }
  return format("%.0f", count);
}

std::string human_bytes(double bytes) {
  for (const auto& [power, name] :
       {std::pair{30, "GiB"}, std::pair{20, "MiB"}, std::pair{10, "KiB"}}) {
    if (bytes >= std::ldexp(1, power)) return format("%.1f %s", std::ldexp(bytes, -power), name);
  }
  return format("%.0f B", bytes);
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text;
  for (const int64_t length : shape) text += concat(text.empty() ? "" : " x ", length);
  return text.empty() ? "scalar" : text;
}

std::string human_duration(double seconds) {
  const auto whole = static_cast<long>(std::llround(seconds));
  if (whole >= 3600) return format("%ldh %02ldm", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return format("%ldm %02lds", whole / 60, whole % 60);
  return format("%lds", whole);
}

Console::Console() : is_terminal_(isatty(STDOUT_FILENO)) {}

Console::~Console() {
  if (line_open_) std::printf("\n");
}

void Console::on_start(const train::RunConfig& config, const train::RunSummary& summary) {
  num_steps_ = config.train.steps;
  print_interval_ = std::max<int64_t>(1, num_steps_ / 20);
  const int64_t batch = config.train.global_batch;
  print_line(format("model   %s, %s parameters, %s", config.task->model_name().c_str(),
                    human_count(static_cast<double>(summary.num_parameters)).c_str(),
                    name_of(train::kPrecisions, config.train.precision).c_str()));
  print_line(
      format("data    %s, %s %s (%.2f epochs in %lld steps)", config.task->data_name().c_str(),
             human_count(static_cast<double>(summary.num_samples)).c_str(),
             config.task->samples_name().c_str(),
             static_cast<double>(num_steps_ * batch) / static_cast<double>(summary.num_samples),
             static_cast<long long>(num_steps_)));
  print_line(
      format("layout  %d ranks x %d threads%s, %s; batch %lld %s %lld ranks x %lld "
             "microbatches x %lld",
             summary.num_ranks, summary.num_threads,
             summary.device.is_cpu() ? "" : concat(" on ", summary.device.type()).c_str(),
             train::describe_layout(config).c_str(), static_cast<long long>(batch),
             config.is_even() ? "=" : "within", static_cast<long long>(config.parallel.data),
             static_cast<long long>(summary.microbatches_per_step),
             static_cast<long long>(config.train.micro_batch)));
  if (summary.tensor_crosses_hosts) {
    print_line(
        "layout  tensor groups lie on several hosts, and every layer waits for the network: let "
        "parallel.tensor divide the ranks of a host");
  }
  print_line("memory  " + describe_memory(config, summary));
  if (!summary.initial_weights.empty()) print_line("init    " + summary.initial_weights);
  if (summary.resumed_step > 0) {
    const bool is_in_folder = summary.resumed_place == "output.folder";
    print_line(
        concat("resume  after step ", summary.resumed_step, ", from ",
               is_in_folder ? config.output.folder + "/checkpoints" : summary.resumed_place));
    if (summary.compression_restarted) {
      print_line(
          config.train.compression == parallel::Compression::kNone
              ? "resume  without the earlier gradient compression: its residuals are dropped"
              : "resume  gradient compression starts again: its state belongs to another layout or "
                "rule");
    }
  }
  for (const std::string& note : summary.resume_notes) print_line("resume  " + note);
}

void Console::on_step(const train::StepMetrics& metrics) {
  ++num_new_steps_;
  constexpr double kMemory = 0.9;  // of the running mean
  seconds_per_step_ = seconds_per_step_ == 0
                          ? metrics.step_seconds
                          : kMemory * seconds_per_step_ + (1 - kMemory) * metrics.step_seconds;
  const double left = seconds_per_step_ * static_cast<double>(num_steps_ - metrics.step);
  std::string line =
      format("step %5lld/%lld  loss %.4f  %s %s/s  %s left  grad norm %.2f  lr %.2e",
             static_cast<long long>(metrics.step), static_cast<long long>(num_steps_), metrics.loss,
             human_count(metrics.units_per_second).c_str(), metrics.unit.c_str(),
             human_duration(left).c_str(), metrics.grad_norm, metrics.learning_rate);
  if (metrics.mfu) line += format("  mfu %.0f %%", 100 * *metrics.mfu);
  if (metrics.validation_loss) {
    line += format("  validation %.4f", *metrics.validation_loss);
    for (const auto& [name, value] : metrics.validation_others) {
      line += format(", %s %.4f", printable(name).c_str(), value);
    }
  }
  noise_scale_ = metrics.noise_scale;
  if (metrics.skipped) {
    print_line(line + "  skipped, the weights stay");
    return;
  }
  const bool is_last = metrics.step == num_steps_;
  if (is_terminal_ && !metrics.validation_loss && !is_last) {
    update_line(line);
  } else if (is_terminal_ || metrics.validation_loss || is_last || num_new_steps_ == 1 ||
             metrics.step % print_interval_ == 0) {
    print_line(line);
  }
}

void Console::on_finding(const std::string& line) { print_line(line); }

// When lines are not overwritten, they become rarer.
void Console::on_wait(std::span<const int> ranks, double seconds) {
  constexpr double kFirstLine = 10;
  const std::string line = describe_wait(ranks, seconds);
  if (is_terminal_) {
    update_line(line);
    return;
  }
  if (seconds < next_wait_line_ / 2) next_wait_line_ = 0;  // another wait
  next_wait_line_ = std::max(next_wait_line_, kFirstLine);
  if (seconds < next_wait_line_) return;
  next_wait_line_ *= 2;
  print_line(line);
}

void Console::on_checkpoint(const std::filesystem::path& path, double seconds,
                            double stall_seconds) {
  const std::string stall =
      stall_seconds < seconds ? format(", training waited %.2fs", stall_seconds) : "";
  print_line(format("saved   %s (%.1fs%s)", path.c_str(), seconds, stall.c_str()));
}

void Console::on_profile(const train::ProfileReport& report) {
  for (const std::string& line : profile_table(report)) print_line(line);
}

void Console::on_end(train::Outcome outcome) {
  if (noise_scale_) {
    print_line(
        format("noise   scale %s sequences: batches well below it are worth doubling, batches well "
               "above it gain little",
               human_count(*noise_scale_).c_str()));
  }
  if (outcome == train::Outcome::kStopped) {
    print_line("stopped on request; run the same command again to continue");
  } else if (outcome == train::Outcome::kFinished && num_new_steps_ == 0) {
    print_line(format("done    all %lld steps were finished before; more with --train.steps=%lld",
                      static_cast<long long>(num_steps_), static_cast<long long>(2 * num_steps_)));
  }
}

// Cut to the terminal's width, because a line that wraps cannot be overwritten.
void Console::update_line(std::string line) {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1) {
    line = line.substr(0, size.ws_col - 1u);
  }
  std::printf("\r\033[K%s", printable(line).c_str());
  std::fflush(stdout);
  line_open_ = true;
}

void Console::print_line(const std::string& line) {
  std::printf("%s%s\n", line_open_ ? "\r\033[K" : "", printable(line).c_str());
  std::fflush(stdout);
  line_open_ = false;
}

}  // namespace trireme::cli::inline internal
