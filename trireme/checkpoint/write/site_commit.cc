#include "trireme/checkpoint/write/site_commit.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "trireme/base/error.h"
#include "trireme/checkpoint/publish.h"

namespace trireme::checkpoint::inline internal {
namespace {

namespace fs = std::filesystem;

void remove_all_but(const FileNames& wanted, const fs::path& folder) {
  for (const fs::directory_entry& item : fs::directory_iterator(folder)) {
    if (!wanted.contains(item.path().filename().string())) fs::remove(item.path());
  }
}

// Advice for a save that lacked room or permission; "" when it failed for another reason.
std::string advice_for(const Unfinished& save, const std::string& reason) {
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

void clean_up_on_error(const Unfinished& save, const Sites& sites, comm::Communicator& group,
                       const OnWait& on_wait, const std::function<void()>& work) {
  try {
    work();
  } catch (const CommError&) {
    throw;
  } catch (const Error& error) {
    // All ranks are here, and none is writing any more.
    const auto clean_up = [&](const Peers&) {
      std::error_code ignored;
      fs::remove_all(temporary_folder(save.root, save.step), ignored);
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
    const fs::path temporary = temporary_folder(root, manifest.step);
    remove_all_but(wanted[sites.mine()], temporary);
    commit(root, temporary, manifest, options.fsync);
    if (sites.size() == 1) remove_old(root, manifest.step, options);
  };
  on_leaders(sites, group, finish, options.on_wait);
  if (sites.size() == 1) return;
  const auto clean_up = [&](const Peers&) { remove_old(root, manifest.step, options); };
  on_leaders(sites, group, clean_up, options.on_wait);
}

}  // namespace trireme::checkpoint::inline internal
