#include "trireme/launch/jobs/emit.h"

#include "trireme/base/bounds.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/comm/rendezvous/launcher_values.h"
#include "trireme/launch/jobs/quoted.h"

namespace trireme::launch {
namespace {

void check_count(std::string_view what, int64_t value, int64_t minimum, int64_t maximum) {
  TRIREME_CHECK(value >= minimum && value <= maximum, what, " is ", value, "; expected ", minimum,
                " to ", maximum);
}

bool is_container(JobSystem system) {
  return system == JobSystem::kKubernetes || system == JobSystem::kKubeflow ||
         system == JobSystem::kCompose;
}

// A label of DNS, which pods append numbers to.
// Fifty of DNS's 63 characters leave room for what Kubernetes appends.
bool is_label(std::string_view name) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz";
  return !name.empty() && name.size() <= 50 && kLetters.find(name[0]) != kLetters.npos &&
         name.back() != '-' &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == name.npos;
}

void check_numbers(const JobOptions& options) {
  check_count("--nnodes", options.nnodes, 1, static_cast<int64_t>(comm::kMaxJobHosts));
  check_count("the minimum of --nnodes", options.min_nnodes, 1, options.nnodes);
  check_count("--nproc-per-node", options.nproc_per_node, 1, kMaxRanks);
  // What a launched agent would refuse is refused here, before the job waits in a queue.
  check_count("--cpus-per-node", options.cpus_per_node, 0, kMaxRanks);
  check_count("--gpus-per-node", options.gpus_per_node, 0, kMaxRanks);
  check_count("--time", options.time.count(), 0, kMaxSeconds);
  check_count("--notice", options.notice.count(), 1, 3600);
  // The agents save between the notice and the limit, so there must be time before it.
  TRIREME_CHECK(options.time.count() == 0 || options.time > options.notice, "--time is ",
                options.time.count(),
                " seconds; expected more than --notice = ", options.notice.count(),
                ", in which the run is saved");
}

void check_texts(const JobOptions& options) {
  TRIREME_CHECK(!options.config.empty(), "the config's path is empty; expected CONFIG.toml");
  check_quotable("the config's path", options.config);
  // Every text that comes from the user passes one of these checks before a writer sees it.
  for (const std::string& word : options.overrides) check_quotable("an argument", word);
  TRIREME_CHECK(!options.program.empty(), "the program is empty; expected its path or name");
  check_quotable("the program", options.program);
  check_quotable("--image", options.image);
  // Containers name their hosts after the job; batch systems put the name on a line that knows no
  // quotes.
  if (is_container(options.system)) {
    TRIREME_CHECK(is_label(options.name), "--name is \"", shown(options.name),
                  "\"; expected at most 50 small letters, digits and -, with a letter first and no "
                  "- at the end");
    TRIREME_CHECK(!options.image.empty(),
                  "--image is not given; expected the container image "
                  "that has the program (tools/container/Dockerfile)");
  } else {
    check_directive_word("--name", options.name);
  }
  if (!options.partition.empty()) check_directive_word("--partition", options.partition);
  if (!options.account.empty()) check_directive_word("--account", options.account);
  if (options.claim.empty()) return;
  check_directive_word("--claim", options.claim);
  TRIREME_CHECK(options.system == JobSystem::kKubernetes, "--claim is \"", shown(options.claim),
                "\"; expected it with kubernetes only (Kubeflow mounts what its runtime says)");
}

}  // namespace

std::string job_heading(const JobOptions& options, std::string_view start) {
  return concat("# Trains ", comment_text(options.config), " on ", nnodes_text(options), " hosts, ",
                options.nproc_per_node, " workers on each. Start it with: ", start, "\n");
}

std::vector<std::string> agent_words(const JobOptions& options) {
  std::vector<std::string> words;
  if (!is_container(options.system) && !options.image.empty()) {
    words = {"apptainer", "exec"};
    // Without it Apptainer hides the host's driver.
    if (options.gpus_per_node > 0) words.emplace_back("--nv");
    words.push_back(options.image);
  }
  words.insert(words.end(), {options.program, "run", "--nproc-per-node",
                             std::to_string(options.nproc_per_node)});
  return words;
}

std::vector<std::string> trained_words(const JobOptions& options) {
  // A path is not an option.
  const std::string config = (options.config.starts_with('-') ? "./" : "") + options.config;
  std::vector<std::string> words = {"--", options.program, "train", config};
  words.insert(words.end(), options.overrides.begin(), options.overrides.end());
  return words;
}

std::vector<std::string> container_words(const JobOptions& options) {
  std::vector<std::string> words = agent_words(options);
  // Kubeflow itself sets PET_NNODES, without the minimum.
  if (options.system == JobSystem::kKubeflow && options.min_nnodes < options.nnodes) {
    words.insert(words.end(), {"--nnodes", nnodes_text(options)});
  }
  for (std::string& word : trained_words(options)) words.push_back(std::move(word));
  return words;
}

std::string nnodes_text(const JobOptions& options) {
  const std::string most = std::to_string(options.nnodes);
  return options.min_nnodes < options.nnodes ? concat(options.min_nnodes, ":", most) : most;
}

std::string emit_job(const JobOptions& options) {
  check_numbers(options);
  check_texts(options);
  switch (options.system) {
    case JobSystem::kSlurm: return emit_slurm(options);
    case JobSystem::kPbs: return emit_pbs(options);
    case JobSystem::kLsf: return emit_lsf(options);
    case JobSystem::kKubernetes: return emit_kubernetes(options);
    case JobSystem::kKubeflow: return emit_kubeflow(options);
    case JobSystem::kCompose: return emit_compose(options);
  }
  throw InternalError("a job system without a writer");
}

}  // namespace trireme::launch
