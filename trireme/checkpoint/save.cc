#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include <fcntl.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/shown.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/save_plan.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

// Folders with this prefix are never checkpoints; they are being written or removed.
constexpr std::string_view kHiddenPrefix = ".step-";

void add_axes(const std::string& name, const mesh::Layout& layout, TensorRecord& record) {
  if (layout.outer() != nullptr) add_axes(name, *layout.outer(), record);  // it splits first
  for (const mesh::Placement& placement : layout.placements()) {
    if (placement.kind == mesh::Placement::Kind::kPartial)
      throw CheckpointError(concat("\"", name, "\" is a partial sum: reduce it first"));
    record.placements.push_back(placement);
  }
  record.axes.insert(record.axes.end(), layout.axes().begin(), layout.axes().end());
}

// This rank's entries in the form that plan_save() takes.
std::map<std::string, TensorRecord> describe(std::span<const Entry> entries, int world_rank,
                                             int world_size) {
  std::map<std::string, TensorRecord> held;
  for (const Entry& entry : entries) {
    TensorRecord record{.dtype = entry.local.scalar_type(), .shape = entry.layout.whole_shape()};
    bool is_first_replica = true;
    add_axes(entry.name, entry.layout, record);
    for (const mesh::Layout* layout = &entry.layout; layout != nullptr; layout = layout->outer()) {
      const mesh::Layout* outer = layout->outer();
      const int rank = layout->outer_rank();
      is_first_replica &= outer == nullptr || outer->owner(rank) == rank;
    }
    mesh::Box box = entry.box(world_rank, world_size);
    if (!is_first_replica) box.size.assign(box.size.size(), 0);
    record.pieces.push_back({.box = std::move(box)});
    if (!is_printable(entry.name))
      throw CheckpointError(concat("the name \"", shown(entry.name),
                                   "\" is too long or has control characters; expected at most ",
                                   kMaxWordBytes, " bytes"));
    if (!held.emplace(entry.name, std::move(record)).second)
      throw CheckpointError(concat("\"", entry.name, "\" is listed twice"));
  }
  return held;
}

// Removes what interrupted saves have left.
void remove_leftovers(const fs::path& root) {
  for (const auto& item : fs::directory_iterator(root)) {
    if (item.path().filename().string().starts_with(kHiddenPrefix)) fs::remove_all(item.path());
  }
}

// Writes this rank's file. The result lists the file and its pieces with their checksums.
Manifest write_shard(const fs::path& folder, const std::map<std::string, TensorRecord>& plan,
                     std::span<const Entry> entries, const Peers& peers, int rank, int world_size,
                     bool fsync) {
  Manifest written;
  const std::string file = shard_name(rank, world_size);
  std::vector<TensorInfo> infos;
  for (const auto& [name, record] : plan) {
    for (const Piece& piece : record.pieces) {
      if (piece.file != file) continue;
      infos.push_back({.name = name, .dtype = record.dtype, .shape = piece.box.size});
      TensorRecord mine = record;
      mine.pieces = {piece};
      written.tensors.emplace(name, std::move(mine));
    }
  }
  if (infos.empty()) return written;
  std::map<std::string, const Entry*> held;
  for (const Entry& entry : entries) held[entry.name] = &entry;
  SafetensorsWriter writer(folder / file, std::move(infos), {{"format", "pt"}});
  for (const TensorInfo& info : writer.tensors()) {
    peers.check();
    const Entry& entry = *held.at(info.name);
    written.tensors.at(info.name).pieces[0].checksum =
        writer.write(entry.offloaded ? entry.offloaded->read() : entry.local);
  }
  writer.finish(fsync);
  written.files.push_back(
      {.name = file, .num_bytes = writer.num_bytes(), .header_checksum = writer.header_checksum()});
  return written;
}

// Fills in the files and checksums that the ranks reported.
Manifest complete_manifest(int64_t step, const std::string& state,
                           std::map<std::string, TensorRecord> plan,
                           std::span<const std::string> reports) {
  Manifest manifest{.step = step, .world_size = static_cast<int>(reports.size()), .state = state};
  std::map<std::pair<std::string, std::string>, std::string> checksums;  // (tensor, file) -> it
  for (const std::string& text : reports) {
    const Manifest report = parse_manifest(text, "a rank's report");
    for (const FileRecord& file : report.files) manifest.files.push_back(file);
    for (const auto& [name, record] : report.tensors)
      checksums[{name, record.pieces.at(0).file}] = record.pieces.at(0).checksum;
  }
  for (auto& [name, record] : plan) {
    for (Piece& piece : record.pieces) piece.checksum = checksums.at({name, piece.file});
  }
  manifest.tensors = std::move(plan);
  return manifest;
}

void rename_or_throw(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  throw Error(
      concat("cannot rename ", from.string(), " to ", to.string(), ": ", std::strerror(errno)));
}

// First hides the folder, durably, so that a half-removed checkpoint is never taken for one.
void remove_checkpoint(const fs::path& folder, bool fsync) {
  const fs::path hidden =
      folder.parent_path() / concat(".", folder.filename().string(), ".removed");
  rename_or_throw(folder, hidden);
  if (fsync) sync_folder(folder.parent_path());
  fs::remove_all(hidden);
}

// Renames `temporary` to `final`. At this moment the checkpoint comes into being.
void publish(const fs::path& temporary, const fs::path& final, bool fsync) {
  if (fs::exists(fs::symlink_status(final))) {
    // Swaps old and new in one step if the file system can.
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final.c_str(), RENAME_EXCHANGE) == 0) {
      if (fsync) sync_folder(final.parent_path());
      fs::remove_all(temporary);
      return;
    }
    remove_checkpoint(final, fsync);
  }
  rename_or_throw(temporary, final);
}

void commit(const fs::path& root, const fs::path& temporary, const Manifest& manifest,
            const SaveOptions& options) {
  const std::string text = to_text(manifest);
  // A checkpoint that readers would refuse must not replace a good one.
  parse_and_check_manifest(text, temporary / kManifestName);
  OutputFile file(temporary / kManifestName);
  file.write(text);
  if (options.fsync) file.sync();
  file.close();
  if (options.fsync) sync_folder(temporary);
  publish(temporary, root / folder_name(manifest.step), options.fsync);
  if (options.fsync) sync_folder(root);
}

// Keeps `newest` whatever its step. A folder that cannot be removed is left for the next save: the
// new checkpoint is safe, which is what the caller asked for.
void remove_old(const fs::path& root, int64_t newest, const SaveOptions& options) {
  if (options.keep <= 0) return;
  std::vector<fs::path> folders = list(root);
  std::erase(folders, root / folder_name(newest));
  for (size_t i = 0; i + static_cast<size_t>(options.keep) <= folders.size(); ++i) {
    try {
      remove_checkpoint(folders[i], options.fsync);
    } catch (const std::exception&) {
    }
  }
}

// The tensors of each rank, from the ranks' descriptions.
std::vector<std::map<std::string, TensorRecord>> held_at(
    int64_t step, std::span<const std::string> descriptions) {
  std::vector<std::map<std::string, TensorRecord>> held_by;
  for (const std::string& text : descriptions) {
    Manifest held = parse_manifest(text, "a rank's description");
    if (held.step != step)
      throw CheckpointError(concat("ranks save different steps: ", step, " and ", held.step));
    held_by.push_back(std::move(held.tensors));
  }
  return held_by;
}

// Advice for a save that lacked room or permission; "" when it failed for another reason.
std::string advice_for(const fs::path& root, const std::map<std::string, TensorRecord>& plan,
                       const std::string& reason) {
  const auto says = [&](int code) { return reason.find(std::strerror(code)) != std::string::npos; };
  if (says(EACCES) || says(EPERM) || says(EROFS)) {
    return concat(": let this user write in ", root.string(), ", or choose another folder");
  }
  if (!says(ENOSPC) && !says(EDQUOT) && !says(EFBIG)) return "";
  int64_t needed = 0;
  for (const auto& [name, record] : plan) needed += record.num_bytes();
  std::error_code code;
  const fs::space_info space = fs::space(root, code);
  return concat(": the checkpoint needs ", needed, " bytes in ", root.string(),
                code ? "" : concat(", which has ", space.available, " free"),
                "; make room there, or choose another folder");
}

}  // namespace

mesh::Box Entry::box(int world_rank, int world_size) const {
  const int ranks = layout.num_ranks();
  if (ranks < 1 || world_size % ranks != 0)
    throw CheckpointError(
        concat("\"", name, "\" has a layout of ", ranks, " ranks in a world of ", world_size));
  mesh::Box whole = layout.whole_box(rank == kInnermost ? world_rank % ranks : rank);
  if (local.sizes() != at::IntArrayRef(whole.size))
    throw CheckpointError(concat("\"", name, "\" has the shape ", local.sizes(),
                                 ", its layout gives this rank ", at::IntArrayRef(whole.size)));
  return whole;
}

void save(const fs::path& root, int64_t step, std::span<const Entry> entries,
          const std::string& state, comm::Communicator& world, const SaveOptions& options) {
  const int rank = world.rank();
  const int size = world.size();
  const fs::path temporary = root / concat(".", folder_name(step), ".tmp");
  const auto describe_mine = [&](const Peers&) {
    if (step < 0 || step > kMaxStep)
      throw CheckpointError(
          concat("step ", step, " to save; expected a number from 0 to ", kMaxStep));
    return to_text({.step = step,
                    .state = rank == 0 ? state : "{}",
                    .tensors = describe(entries, rank, size)});
  };
  const auto described = gather_or_throw(world, describe_mine, options.on_wait);
  std::map<std::string, TensorRecord> plan;
  const auto prepare = [&](const Peers&) {
    plan = plan_save(held_at(step, described));
    if (rank != 0) return;
    make_folders(root);
    remove_leftovers(root);
    fs::create_directory(temporary);
  };
  const auto write = [&](const Peers& peers) {
    return to_text(write_shard(temporary, plan, entries, peers, rank, size, options.fsync));
  };
  try {
    run_or_throw(world, prepare, options.on_wait);
    const auto reports = gather_or_throw(world, write, options.on_wait);
    const auto finish = [&](const Peers&) {
      if (rank != 0) return;
      commit(root, temporary, complete_manifest(step, state, plan, reports), options);
      remove_old(root, step, options);
    };
    run_or_throw(world, finish, options.on_wait);
  } catch (const CommError&) {
    throw;
  } catch (const Error& error) {
    // All ranks are here, and none is writing any more.
    const auto clean_up = [&](const Peers&) {
      std::error_code ignored;
      fs::remove_all(temporary, ignored);
      return advice_for(root, plan, error.what());
    };
    const std::string advice = from_root(world, clean_up, options.on_wait);
    if (advice.empty()) throw;
    throw ConfigError(error.what() + advice);
  }
}

std::vector<fs::path> list(const fs::path& root) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code code;
  if (!fs::exists(root, code) && !code) return {};
  auto items = fs::directory_iterator(root, code);
  if (code == std::errc::not_a_directory)
    throw CheckpointError(concat("cannot read ", root.string(), ": ", code.message()));
  if (code) throw Error(concat("cannot read ", root.string(), ": ", code.message()));
  for (const auto& item : items) {
    const int64_t step = step_of(item.path().filename().string());
    if (step < 0) continue;
    const fs::path manifest = item.path() / kManifestName;
    const bool is_complete = fs::exists(manifest, code);
    // It may be the newest: a run must not resume an older one because a disk or a permission
    // fails.
    if (code && code != std::errc::not_a_directory)
      throw Error(concat("cannot read ", manifest.string(), ": ", code.message()));
    if (is_complete) found.emplace_back(step, item.path());
  }
  std::sort(found.begin(), found.end());
  std::vector<fs::path> folders;
  for (auto& [step, path] : found) folders.push_back(std::move(path));
  return folders;
}

std::optional<fs::path> latest(const fs::path& root) {
  const std::vector<fs::path> folders = list(root);
  if (folders.empty()) return std::nullopt;
  return folders.back();
}

}  // namespace trireme::checkpoint
