// How a launched process knows its rank and meets the others: the variables that it is started
// with, the file where the ranks of one host meet if their transport needs a store and none is
// named, and a free port for a program that must know its port before it starts.
#pragma once

#include <filesystem>
#include <string>

#include "trireme/launch/process/child.h"

namespace trireme::launch {

// For workers: the agents' lease, in whole seconds.
inline constexpr const char* kLeaseVariable = "TRIREME_LEASE_SECONDS";

struct RankPlace {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
};

// `variables` with torchrun's RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, TRIREME_JOB, and
// OMP_NUM_THREADS = cores / local ranks unless it is set. Without those of another launcher that
// started this one.
Environment rank_environment(Environment variables, const RankPlace& place, const std::string& job);

// Makes nothing: the ranks do, if they need it. The destructor removes the file.
class MeetingFile {
 public:
  // `job`: a name that no other group of ranks has.
  explicit MeetingFile(const std::string& job);
  ~MeetingFile();
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;

  // The value of TRIREME_STORE.
  std::string store() const { return "file:" + path_.string(); }

 private:
  std::filesystem::path path_;
};

// A TCP port that is free now; 0: the system has none. Another program may take the port before the
// intended one does. The intended program then fails with one line; start it with another port.
int free_port();

}  // namespace trireme::launch
