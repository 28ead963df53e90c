#include "trireme/cli/launch/run_emit.h"

#include <array>
#include <charconv>
#include <filesystem>

#include <CLI/CLI.hpp>

#include "trireme/base/bounds.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/terminal_text.h"

namespace trireme::cli {
namespace {

// Takes digits from the front of `text`; -1 when there are none or too many.
int64_t take_number(std::string_view& text) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || text.front() == '-' || value > kMaxSeconds) return -1;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

// "1:30:00" or "2-00:00:00".
std::chrono::seconds parse_time(const std::string& time) {
  std::string_view rest = time;
  const bool has_days = time.find('-') != std::string::npos;
  int64_t seconds = 0;
  bool is_valid = true;
  struct Part {
    char separator;  // behind it
    int64_t unit, most;
  };
  const std::array<Part, 4> parts = {
      {{'-', 86400, 365}, {':', 3600, has_days ? 23 : 8760}, {':', 60, 59}, {'\0', 1, 59}}};
  for (size_t i = has_days ? 0 : 1; i < parts.size() && is_valid; ++i) {
    const int64_t number = rest.empty() ? -1 : take_number(rest);
    const bool is_last = parts[i].separator == '\0';
    is_valid = number >= 0 && number <= parts[i].most &&
               (is_last ? rest.empty() : rest.starts_with(parts[i].separator));
    if (is_valid && !is_last) rest.remove_prefix(1);
    seconds += number * parts[i].unit;
  }
  TRIREME_CHECK(is_valid && seconds > 0, "--time is \"", shown(time),
                "\"; expected H:MM:SS or D-HH:MM:SS, at most a year");
  return std::chrono::seconds(seconds);
}

}  // namespace

void add_emit_options(CLI::App& run, EmitOptions& options) {
  constexpr const char* kGroup = "Files for schedulers";
  launch::JobOptions& job = options.job;
  CLI::Option* emit =
      run.add_option("--emit", options.system,
                     concat("print the job file with which a scheduler starts `train CONFIG`: ",
                            in_words(names_of(launch::kJobSystems))));
  emit->group(kGroup);
  const auto add = [&](const char* name, auto& value, const char* meaning) {
    return run.add_option(name, value, meaning)->needs(emit)->group(kGroup);
  };
  add("--output", options.output,
      "write the job file here instead of printing it; the file must not exist");
  add("--name", job.name, "name of the job")->capture_default_str();
  add("--time", options.time,
      "time limit of the job, H:MM:SS or D-HH:MM:SS. Default: the scheduler's");
  add("--notice", options.notice_seconds,
      "seconds before the time limit at which the run saves and stops")
      ->check(within({1, 3600}))
      ->capture_default_str();
  add("--partition", job.partition, "partition (Slurm) or queue (PBS, LSF)");
  add("--account", job.account, "account to charge (LSF: project)");
  add("--image", job.image,
      "container image; required for kubernetes, kubeflow and compose, an Apptainer image "
      "elsewhere");
  add("--cpus-per-node", job.cpus_per_node,
      "cores per host; 0 = whole hosts, or no limit for containers")
      ->check(within({0, 1 << 15}))
      ->capture_default_str();
  add("--gpus-per-node", job.gpus_per_node, "GPUs per host")
      ->check(within({0, 1 << 15}))
      ->capture_default_str();
  add("--claim", job.claim, "kubernetes: persistent volume claim mounted at /work");
  add("--program", job.program, "name or path of this program on the job's hosts")
      ->capture_default_str();
}

std::string emit(const EmitOptions& options) {
  launch::JobOptions job = options.job;
  job.system = choose(launch::kJobSystems, "--emit", options.system);
  if (!options.time.empty()) job.time = parse_time(options.time);
  job.notice = std::chrono::seconds(options.notice_seconds);
  std::string text = launch::emit_job(job);
  if (options.output.empty()) return text;
  std::error_code error;
  TRIREME_CHECK(!std::filesystem::exists(std::filesystem::symlink_status(options.output, error)),
                "--output is ", shown(options.output), ", which exists; expected a new file");
  write_file_atomically(options.output, text);
  return concat("wrote ", printable(options.output), "; its first lines say how to start it\n");
}

}  // namespace trireme::cli
