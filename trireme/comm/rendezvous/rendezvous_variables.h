// What the launcher told this process: torchrun's variables, or Open MPI's, or Slurm's.
#pragma once

#include <string>

namespace trireme::comm {

struct WorldInfo {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  // What the launcher calls the job, the same on all ranks; may be empty, and another job's too.
  std::string job;

  // Where the ranks meet: "tcp://HOST:PORT" or "file:PATH"; empty when nothing says.
  std::string store = {};
  // The launcher serves the store at that address already; otherwise rank 0 does.
  bool launcher_serves_store = false;
  // All ranks were started on this host under the name `job`, which no other job has, so that they
  // can meet without a store.
  bool is_one_host = true;
  // GLOO_SOCKET_IFNAME; empty: the interface that routes to the store's host.
  std::string interface = {};
  // TRIREME_LISTEN: the address that rank 0 serves the store at; empty: the store's own.
  std::string listen = {};
};

// Whether a launcher has started this process as one of several ranks, or says so of one: torchrun,
// this program, mpirun, or srun with more than one task (a shell that srun gave is no rank).
bool is_launched();

// The first of these that has set a variable of its own; there is no fallback to one rank:
//   torchrun  RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE
//   Open MPI  OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
//   Slurm     SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE,
//   SLURM_NODEID
// The store is TRIREME_STORE ("file:PATH"), or else MASTER_ADDR and MASTER_PORT. Open MPI without
// MASTER_ADDR means this host, when it runs all ranks; Slurm without it means the first host of
// SLURM_STEP_NODELIST, or this host when it runs all ranks; both without MASTER_PORT take a port
// that follows from their job's number.
// TRIREME_JOB names the job, or else the launcher does. Without a store it is the user's word that
// no other job of this host has the name; with one, only `trireme train --ranks N` is believed.
// Throws: ConfigError that names the variable, its value and what is expected
WorldInfo world_info();

}  // namespace trireme::comm
