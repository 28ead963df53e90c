#include "trireme/train/derived_run.h"

#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/shown.h"
#include "trireme/train/metrics/metrics.h"
#include "trireme/train/state/resume.h"

namespace trireme::train::inline internal {
namespace {

namespace fs = std::filesystem;

// The files of the folder itself: those of the task, and the note that the run has had a
// checkpoint, which is as true of the new one. The loop's other files lie in folders, but for two.
void copy_files(const fs::path& from, const fs::path& to) {
  for (const fs::directory_entry& item : fs::directory_iterator(from)) {
    const std::string name = item.path().filename().string();
    if (!item.is_regular_file() || name == kConfigName || name == kMetricsName) continue;
    const MappedFile source(item.path());
    OutputFile copy(to / name);
    copy.write(source.bytes().data(), source.bytes().size());
    copy.sync();
    copy.close();
  }
}

}  // namespace

RunConfig derived_config(const std::string& toml, const std::string& where, const Offer& offer,
                         const fs::path& output) {
  RunConfig config =
      parse_saved_config(toml, where, default_config(offer, saved_task_name(toml, where)));
  config.output.folder = output.string();
  // The saved config is resolved.
  if (config.parallel.shard == config.parallel.data) config.parallel.shard = 0;
  config.parallel.data = 0;
  return config;
}

FolderLock lock_run(const fs::path& folder, const std::string& toml, const std::string& where,
                    const Offer& offer) {
  const fs::path path = folder / kConfigName;
  TRIREME_CHECK(fs::is_regular_file(path), folder.string(), " has no ", kConfigName,
                "; expected the folder of a run, or one that is new or empty");
  FolderLock lock(folder);
  const RunConfig like = default_config(offer, saved_task_name(toml, where));
  const RunConfig saved = parse_saved_config(toml, where, like);
  const std::string text = read_file(path);
  const std::string task = saved_task_name(text, path.string());
  TRIREME_CHECK(task == saved_task_name(toml, where), where, " is of the task '",
                shown(like.task_choice.name), "' and ", folder.string(), " of '", shown(task),
                "'; unpack it into a new folder");
  for (const Change& change : changes(parse_saved_config(text, path.string(), like), saved)) {
    const bool stays = change.rule == OnResume::kMustStay && change.key != saved.task->data_key();
    TRIREME_CHECK(!stays, where, " is of another run than ", folder.string(), ": ", change.key, " ",
                  change.before, " -> ", change.after, "; unpack it into a new folder");
  }
  return lock;
}

DerivedRun::DerivedRun(fs::path checkpoint, const fs::path& output)
    : checkpoint_(std::move(checkpoint)), folder_(output) {}

void DerivedRun::commit(const std::string& config) {
  // The path may be relative or end in a slash. A checkpoint elsewhere has no run's files beside
  // it.
  const fs::path root = fs::canonical(checkpoint_).parent_path();
  if (root.filename() == "checkpoints") copy_files(root.parent_path(), folder_.path());
  write_file_atomically(folder_.path() / kConfigName, config);
  folder_.commit();
}

}  // namespace trireme::train::inline internal
