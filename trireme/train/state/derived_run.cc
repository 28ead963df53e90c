#include "trireme/train/state/derived_run.h"

#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/train/state/resume.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

// Only its owner may have been allowed to read it.
void copy_own_file(const fs::path& from, const fs::path& to) {
  const fs::file_status status = fs::symlink_status(from);
  if (status.type() == fs::file_type::not_found) return;
  TRIREME_CHECK(status.type() == fs::file_type::regular, from.string(),
                status.type() == fs::file_type::symlink ? " is a link" : " is no regular file",
                "; expected the run's own file: put a copy of it there");
  const MappedFile source(from);
  OutputFile copy(to);
  fs::permissions(to, status.permissions() & fs::perms::all);
  copy.write(source.bytes().data(), source.bytes().size());
  copy.sync();
  copy.close();
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
    const bool stays =
        change.rule == OnResume::kMustStay && change.key != saved.task->traits().data_key;
    TRIREME_CHECK(!stays, where, " is of another run than ", folder.string(), ": ", change.key, " ",
                  change.before, " -> ", change.after, "; unpack it into a new folder");
  }
  return lock;
}

DerivedRun::DerivedRun(fs::path checkpoint, const fs::path& output)
    : checkpoint_(std::move(checkpoint)), folder_(output) {}

void DerivedRun::commit(const std::string& config, const std::vector<std::string>& files) {
  // The path may be relative or end in a slash. A checkpoint elsewhere has no run's files beside
  // it.
  const fs::path root = fs::canonical(checkpoint_).parent_path();
  if (root.filename() == "checkpoints") {
    const fs::path run = root.parent_path();
    for (const std::string& name : files) copy_own_file(run / name, folder_.path() / name);
    copy_own_file(run / kCheckpointNote,
                  folder_.path() / kCheckpointNote);  // as true of the new run
  }
  write_file_atomically(folder_.path() / kConfigName, config);
  folder_.commit();
}

}  // namespace trireme::train
