#include "trireme/checkpoint/write/site_commit.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/checkpoint/publish.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

void remove_all_but(const FileNames& wanted, const fs::path& folder) {
  for (const fs::directory_entry& item : fs::directory_iterator(folder)) {
    // Links that no chunk uses. They would keep old files on the disk.
    if (!wanted.contains(item.path().filename().string())) fs::remove(item.path());
  }
}

// Advice for a save that lacked room or permission; "" when it failed for another reason.
std::string advice_for(const Unfinished& save, const std::string& reason) {
  // By the text: the error has travelled from another rank, where errno was.
  const auto says = [&](int code) { return reason.find(std::strerror(code)) != std::string::npos; };
  if (says(EACCES) || says(EPERM) || says(EROFS)) {
    return concat(": let this user write in ", save.root.string(), ", or choose another folder");
  }
  if (!says(ENOSPC) && !says(EDQUOT) && !says(EFBIG)) return "";
  std::error_code code;
  const fs::space_info space = fs::space(save.root, code);
  return concat(": the checkpoint needs ", save.num_bytes, " bytes in ", save.root.string(),
                code ? "" : concat(", which has ", space.available, " free"),
                "; make room there, or choose another folder");
}

}  // namespace

Manifest joined(Manifest report, Manifest other, size_t num_shared) {
  const size_t own = report.files.size();
  for (auto& [name, record] : other.tensors) {
    for_all_chunks(record.pieces.at(0), [&](Chunk& chunk) {
      // Shared files have the same numbers in both reports; own ones move.
      if (chunk.file >= num_shared) chunk.file += own - num_shared;
    });
  }
  report.tensors.merge(other.tensors);
  report.files.insert(report.files.end(), other.files.begin() + static_cast<int64_t>(num_shared),
                      other.files.end());
  return report;
}

Written complete_manifest(int64_t step, const std::string& state,
                          std::map<std::string, TensorRecord> plan,
                          std::span<const std::string> reports, const Sites& sites) {
  const int size = static_cast<int>(reports.size());
  Written written{{.step = step, .world_size = size, .state = state},
                  std::vector<FileNames>(sites.size())};
  Manifest& manifest = written.manifest;
  std::map<std::string, size_t> numbers;  // of files in the manifest
  const auto number_of = [&](const FileRecord& file) {
    const auto [number, is_new] = numbers.emplace(file.name, manifest.files.size());
    // Shared files are reported by every rank and listed once.
    if (is_new) manifest.files.push_back(file);
    return number->second;
  };
  using Place = std::pair<std::string, std::vector<int64_t>>;  // of a box: tensor and offset
  std::map<Place, Piece> pieces;
  for (int rank = 0; rank < size; ++rank) {
    Manifest report = parse_manifest(reports[rank], "a rank's report");
    FileNames& used = written.used[sites.of(rank)];
    for (auto& [name, record] : report.tensors) {
      Piece& piece = record.pieces.at(0);
      for_all_chunks(piece, [&](Chunk& chunk) {
        const FileRecord& file = report.files.at(chunk.file);
        used.insert(file.name);
        chunk.file = number_of(file);
      });
      // A box is one rank's, so nothing is overwritten.
      pieces[{name, piece.box.offset}] = std::move(piece);
    }
  }
  for (auto& [name, record] : plan) {
    for (Piece& piece : record.pieces) {
      Piece& stored = pieces.at({name, piece.box.offset});
      piece.chunks = std::move(stored.chunks);
      piece.patches = std::move(stored.patches);
    }
  }
  manifest.tensors = std::move(plan);
  return written;
}

std::vector<FileNames> with_replicas(const std::vector<FileNames>& used, int replicas) {
  std::vector<FileNames> wanted = used;
  for (size_t site = 0; site < used.size(); ++site) {
    for (int distance = 1; distance <= replicas; ++distance) {
      // A ring: the sites before this one, at any number of replicas.
      const FileNames& names = used[(site + used.size() - distance % used.size()) % used.size()];
      wanted[site].insert(names.begin(), names.end());
    }
  }
  return wanted;
}

void clean_up_on_error(const Unfinished& save, const Sites& sites, comm::Communicator& group,
                       const OnWait& on_wait, const std::function<void()>& work) {
  try {
    work();
  } catch (const CommError&) {
    // Ranks may still be writing, so nothing is removed. The next save does that.
    throw;
  } catch (const Error& error) {
    // All ranks are here, and none is writing any more.
    const auto clean_up = [&](const Peers&) {
      std::error_code ignored;
      fs::remove_all(temporary_folder(save.root, save.step, save.epoch), ignored);
      return advice_for(save, error.what());
    };
    const std::string advice = from_leader(sites, group, clean_up, on_wait);
    if (advice.empty()) throw;
    throw ConfigError(error.what() + advice);
  }
}

void commit_at_sites(const fs::path& root, const Manifest& manifest,
                     const std::vector<FileNames>& wanted, const Sites& sites,
                     const SaveOptions& options, comm::Communicator& group) {
  const auto finish = [&](const Peers&) {
    const fs::path temporary = temporary_folder(root, manifest.step, options.epoch);
    remove_all_but(wanted[sites.mine()], temporary);
    commit(root, temporary, manifest, options.fsync);
    // One site needs no second round.
    if (sites.size() == 1) remove_old(root, manifest.step, options);
  };
  on_leaders(sites, group, finish, options.on_wait);
  if (sites.size() == 1) return;
  // A second round: until all have the new checkpoint, only the old one is complete.
  const auto clean_up = [&](const Peers&) { remove_old(root, manifest.step, options); };
  on_leaders(sites, group, clean_up, options.on_wait);
}

}  // namespace trireme::checkpoint
