#include "trireme/cli/console.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/machine/bf16_product.h"
#include "trireme/base/machine/matrix_product.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/profile_table.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/launch/jobs/quoted.h"
#include "trireme/train/parallel/run_layout.h"

namespace trireme::cli {
namespace {

constexpr int kWidth = 40;

}  // namespace

void ClosingSummary::add(const train::StepMetrics& metrics) {
  ++num_steps_;
  unit_ = metrics.unit;
  units_ += metrics.units_per_second * metrics.step_seconds;
  step_seconds_ += metrics.step_seconds;
  if (num_steps_ == 1) first_loss_ = metrics.loss;
  last_loss_ = metrics.loss;
  if (!metrics.validation_loss) return;
  last_ = {*metrics.validation_loss, metrics.step};
  if (!best_ || last_->loss < best_->loss) best_ = last_;
}

std::vector<std::string> ClosingSummary::lines(double seconds) const {
  if (is_empty()) return {};
  std::vector<std::string> lines;
  lines.push_back(concat("done    ", num_steps_, num_steps_ == 1 ? " step in " : " steps in ",
                         human_duration(seconds)));
  if (step_seconds_ > 0) {
    lines.back() += concat(", ", human_count(units_ / step_seconds_), " ", unit_, "/s");
  }
  lines.push_back(format("loss    %.4f -> %.4f", first_loss_, last_loss_));
  if (best_) {
    lines.back() += format("; validation %.4f", last_->loss);
    if (best_->step != last_->step) {
      lines.back() +=
          format(", best %.4f at step %lld", best_->loss, static_cast<long long>(best_->step));
    }
  }
  if (!checkpoint_.empty()) lines.push_back("kept    " + checkpoint_);
  return lines;
}

std::string next_command(const std::string& program, const std::string& task,
                         const std::string& folder) {
  const std::string run = launch::shell_word(folder);
  if (program == "trireme" && task == "language") {
    return concat("trireme generate --checkpoint ", run, " --prompt 'The '");
  }
  if (program == "trireme" && task == "vision") return "trireme classify --checkpoint " + run;
  if (program == "trireme" && task == "diffusion") return "trireme sample --checkpoint " + run;
  return concat(program, " checkpoint inspect ", run);
}

ProgressBar::ProgressBar(std::string label, std::string unit, std::FILE* stream)
    : label_(std::move(label)),
      unit_(std::move(unit)),
      stream_(stream),
      is_terminal_(isatty(fileno(stream))) {}

ProgressBar::~ProgressBar() {
  if (shown_percent_ >= 0) std::fputs("\r\033[K", stream_);
}

void ProgressBar::update(int64_t done, int64_t total) {
  const int percent = total > 0 ? static_cast<int>(100 * done / total) : 100;
  if (!is_terminal_ || percent == shown_percent_) return;
  shown_percent_ = percent;
  std::string bar(kWidth, ' ');
  std::fill_n(bar.begin(), kWidth * percent / 100, '#');
  const auto shown = [&](int64_t count) {
    return unit_.empty() ? human_bytes(static_cast<double>(count)) : std::to_string(count);
  };
  std::fprintf(stream_, "\r\033[K%-7s [%s] %3d%%  %s of %s %s", label_.c_str(), bar.c_str(),
               percent, shown(done).c_str(), shown(total).c_str(), unit_.c_str());
  std::fflush(stream_);
}

// There are lines that stay and, on a terminal, one that is overwritten. line_open_ says that the
// latter is on the screen; whoever prints next must erase it. So all output goes through
// print_line() and update_line(), under one mutex, because another thread reports waits. The mutex
// is recursive, as show_wait() holds it around them. Where nothing can be overwritten, the lines of
// a long wait become rarer. Names come from configs and data, so each line is made printable.

namespace {

// Describes the distribution of the model's states.
std::string describe_sharing(const train::ParallelConfig& parallel) {
  if (parallel.zero == 0) return "a copy on each rank";
  std::string text = format("ZeRO-%lld over %lld ranks", static_cast<long long>(parallel.zero),
                            static_cast<long long>(parallel.shard * parallel.context));
  const auto replicas = static_cast<long long>(sample_ranks(parallel) / parallel.shard);
  if (replicas > 1) text += format(", %lld replicas", replicas);
  return text;
}

// Rank 0's memory for the model from step to step.
std::string describe_memory(const train::RunConfig& config, const train::RunSummary& summary) {
  const auto bytes = [](int64_t count) { return human_bytes(static_cast<double>(count)); };
  const auto place = [](train::OffloadPlace at) {
    return at == train::OffloadPlace::kNone ? ""
                                            : " (on " + name_of(train::kOffloadPlaces, at) + ")";
  };
  std::string text = "parameters " + bytes(summary.memory.parameters) +
                     place(config.offload.parameters) + ", gradients " +
                     bytes(summary.memory.gradients) + place(config.offload.gradients);
  if (summary.memory.accumulating > summary.memory.gradients) {
    text += " (" + bytes(summary.memory.accumulating) + " until the last microbatch)";
  }
  if (summary.compression_bytes > 0) {
    text += ", compression " + bytes(summary.compression_bytes);
  }
  text += ", optimizer " + bytes(summary.optimizer_bytes) + place(config.offload.optimizer);
  if (summary.table_bytes > 0) text += ", tables " + bytes(summary.table_bytes);
  return text + " per rank; " + describe_sharing(config.parallel);
}

// "0, 3, 5 and 2 more".
std::string some_of(std::span<const int> ranks) {
  constexpr size_t kNamed = 8;
  std::string names;
  for (size_t i = 0; i < std::min(ranks.size(), kNamed); ++i) {
    names += concat(i == 0 ? "" : ", ", ranks[i]);
  }
  if (ranks.size() > kNamed) names += format(" and %zu more", ranks.size() - kNamed);
  return names;
}

}  // namespace

std::string describe_wait(std::span<const int> ranks, double seconds) {
  return concat("waiting for ", ranks.size() == 1 ? "rank " : "the disks of ranks ", some_of(ranks),
                ranks.size() == 1 ? "'s disk" : "", ": ", human_duration(seconds));
}

std::string describe_callback_wait(const std::string& callback, std::span<const int> ranks,
                                   double seconds) {
  return concat("waiting for the callback ", callback,
                ranks.size() == 1 ? " on rank " : " on ranks ", some_of(ranks), ": ",
                human_duration(seconds));
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
  start_ = std::chrono::steady_clock::now();
  next_command_ = next_command(std::filesystem::path(own_program()).filename().string(),
                               config.task_choice.name, config.output.folder);
  num_steps_ = config.train.steps;
  epochs_ = config.train.epochs;
  resumed_step_ = summary.resumed_step;
  print_interval_ = std::max<int64_t>(1, num_steps_ / 20);
  const int64_t batch = config.train.global_batch;
  const auto count = [](int64_t number) { return human_count(static_cast<double>(number)); };
  const std::string trained =
      summary.num_trained < summary.num_parameters
          ? concat(" of which ", count(summary.num_trained), " are trained,")
          : "";
  print_line(format("model   %s, %s parameters,%s %s", config.task->model().traits().name.c_str(),
                    count(summary.num_parameters).c_str(), trained.c_str(),
                    name_of(train::kPrecisions, config.train.precision).c_str()));
  if (summary.device.is_cpu() && config.dtype() == at::kBFloat16 && widens_on_cpu(at::kBFloat16)) {
    print_line("model   no AMX here: bf16 saves memory, not time; products are taken in fp32");
  }
  if (config.train.fp32_products != train::Fp32Products::kFp32 && !has_bf16_product()) {
    print_line("model   no AMX here: train.fp32_products changes nothing");
  }
  print_line(format("data    %s, %s %s (%.2f epochs in %lld steps)",
                    config.task->traits().data_name.c_str(),
                    human_count(static_cast<double>(summary.num_samples)).c_str(),
                    config.task->traits().samples_name.c_str(),
                    static_cast<double>(config.batch_sizes().before(num_steps_)) /
                        static_cast<double>(summary.num_samples),
                    static_cast<long long>(num_steps_)));
  for (const train::SourceUse& source : summary.sources) {
    print_line(format("data    %s: %.4g %%, %s, %s samples, %.2f passes", source.name.c_str(),
                      100 * source.share, source.about.c_str(), count(source.samples).c_str(),
                      source.passes));
  }
  const std::string forward =
      config.shares.empty()
          ? concat(sample_ranks(config.parallel) * config.parallel.learners, " ranks x ",
                   summary.microbatches_per_step, " microbatches x ", config.train.micro_batch)
          : concat(summary.microbatches_per_step, " microbatches x ",
                   train::describe_shares(config.shares, summary.resumed_step), " of the ranks");
  print_line(format("layout  %d ranks x %d threads%s, %s; batch %lld %s %s", summary.num_ranks,
                    summary.num_threads,
                    summary.device.is_cpu() ? "" : concat(" on ", summary.device.type()).c_str(),
                    train::describe_layout(config).c_str(), static_cast<long long>(batch),
                    config.is_even() ? "=" : "within", forward.c_str()));
  if (config.train.batch_ramp_start > 0) {
    print_line(format("batch   grows from %lld to %lld samples in %lld steps",
                      static_cast<long long>(config.train.batch_ramp_start),
                      static_cast<long long>(batch),
                      static_cast<long long>(config.train.batch_ramp_steps)));
  }
  if (summary.tensor_crosses_hosts) {
    print_line(
        "layout  tensor groups lie on several hosts, and every layer waits for the network: let "
        "parallel.tensor divide the ranks of a host");
  }
  print_line("memory  " + describe_memory(config, summary));
  if (!summary.initial_weights.empty()) print_line("init    " + summary.initial_weights);
  for (const std::string& note : summary.initial_notes) print_line("init    " + note);
  if (summary.resumed_step > 0) {
    const bool is_in_folder = summary.resumed_place == "output.folder";
    print_line(
        concat("resume  after step ", summary.resumed_step, ", from ",
               is_in_folder ? config.output.folder + "/checkpoints" : summary.resumed_place));
    if (summary.compression_restarted) {
      print_line(
          config.train.compression == parallel::Compression::kNone && summary.compression_bytes == 0
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
  const std::string line = step_line(metrics, left);
  noise_scale_ = metrics.noise_scale;
  summary_.add(metrics);
  const bool is_kept = metrics.skipped || metrics.validation_loss || num_new_steps_ == 1 ||
                       metrics.step == num_steps_ || metrics.step % print_interval_ == 0;
  if (is_kept) {
    print_line(line);
  } else if (is_terminal_) {
    update_line(line);
  }
}

// On a terminal what fits on one of its lines; elsewhere everything.
std::string Console::step_line(const train::StepMetrics& metrics, double left) const {
  const std::string steps = std::to_string(num_steps_);
  std::vector<LinePart> parts = {
      {0, format("step %*lld/%s", static_cast<int>(steps.size()),
                 static_cast<long long>(metrics.step), steps.c_str())},
      {1, format("loss %.4f", metrics.loss)},
      {4, concat(human_count(metrics.units_per_second), " ", metrics.unit, "/s")},
      {5, concat(human_duration(left), " left")},
      {6, format("norm %.2f", metrics.grad_norm)},
      {7, format("lr %.1e", metrics.learning_rate)}};
  if (metrics.mfu) parts.push_back({8, format("mfu %.0f %%", 100 * *metrics.mfu)});
  if (metrics.validation_loss) {
    std::string text = format("validation %.4f", *metrics.validation_loss);
    for (const auto& [name, value] : metrics.validation_others) {
      text += format(", %s %.4f", printable(name).c_str(), value);
    }
    parts.push_back({2, text});
  }
  if (metrics.skipped) parts.push_back({3, "skipped, the weights stay"});
  return fitted_line(parts, is_terminal_ ? output_columns() - 1 : std::string::npos);
}

void Console::on_finding(const std::string& line) { print_line(line); }

void Console::on_wait(std::span<const int> ranks, double seconds) {
  show_wait(describe_wait(ranks, seconds), seconds);
}

void Console::on_callback_wait(const std::string& callback, std::span<const int> ranks,
                               double seconds) {
  show_wait(describe_callback_wait(callback, ranks, seconds), seconds);
}

// When lines are not overwritten, prints fewer of them.
void Console::show_wait(const std::string& line, double seconds) {
  constexpr double kFirstLine = 10;
  const std::lock_guard lock(mutex_);
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
  summary_.add_checkpoint(path.string());
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
  }
  for (const std::string& line : summary_.lines(seconds_since(start_))) print_line(line);
  if (outcome != train::Outcome::kStopped && !next_command_.empty() && !summary_.is_empty()) {
    print_line("next    " + next_command_);
  }
  if (outcome == train::Outcome::kFinished && num_new_steps_ == 0) {
    const std::string more = epochs_ > 0
                                 ? format("epochs=%g", 2 * epochs_)
                                 : concat("steps=", 2 * std::max(num_steps_, resumed_step_));
    print_line(concat("done    all ", num_steps_, " steps were finished before; more with --train.",
                      more));
  }
}

// Cut to the terminal's width, because a line that wraps cannot be overwritten.
void Console::update_line(std::string line) {
  const std::lock_guard lock(mutex_);
  line = line.substr(0, output_columns() - 1);
  std::printf("\r\033[K%s", printable(line).c_str());
  std::fflush(stdout);
  line_open_ = true;
}

void Console::print_line(const std::string& line) {
  const std::lock_guard lock(mutex_);
  const std::string text = printable(line);
  std::printf("%s%s\n", line_open_ ? "\r\033[K" : "",
              is_terminal_ ? wrapped_line(text, output_columns()).c_str() : text.c_str());
  std::fflush(stdout);
  line_open_ = false;
  if (keep_) keep_(line);
}

}  // namespace trireme::cli
