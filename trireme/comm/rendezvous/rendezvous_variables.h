// Reads what this process was told by its environment: the variables of torchrun, Open MPI or
// Slurm, and the secret of the job.
#pragma once

#include <string>
#include <string_view>

namespace trireme::comm {

struct WorldInfo {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  // The launcher's name for the job, the same on all ranks. May be empty, and other jobs may have
  // it.
  std::string job;

  // Where the ranks meet: "tcp://HOST:PORT" or "file:PATH"; empty when no variable says.
  std::string store = {};
  // true: the launcher already serves the store at that address. false: rank 0 serves it.
  bool launcher_serves_store = false;
  // All ranks were started on this host under the name `job`, which no other job has. They can
  // therefore meet without a store.
  bool is_one_host = true;
  // GLOO_SOCKET_IFNAME; empty: the interface that routes to the store's host.
  std::string interface = {};
  // TRIREME_LISTEN: the address where rank 0 serves the store; empty: the store's own.
  std::string listen = {};
};

// Whether a launcher started this process as a rank: torchrun, this program, mpirun, or srun with
// more than one task. A shell started by srun is not a rank.
bool is_launched();

// Whether RANK and WORLD_SIZE seem to count pods or hosts and not ranks: they are set without
// LOCAL_RANK, as Kubeflow's PyTorchJob does for programs that start their ranks themselves.
bool counts_pods();

// Whether a launcher tells a rank its place, its job or its agent with this variable. What a rank
// starts must not inherit those, unless it is a rank too: it would wait for the others.
bool is_rank_variable(std::string_view variable);

// Reads the variables of the first of these launchers that has set one. If some are missing it
// throws; it never falls back to one rank.
//   torchrun  RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE
//   Open MPI  OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
//   Slurm     SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE,
//             SLURM_NODEID
// The store is TRIREME_STORE ("file:PATH"), or else MASTER_ADDR and MASTER_PORT. With Open MPI and
// Slurm, MASTER_ADDR defaults to this host when it runs all ranks, and MASTER_PORT to a port
// derived from the job's number. With Slurm and several hosts, MASTER_ADDR defaults to the first
// host of SLURM_STEP_NODELIST.
// The job's name is TRIREME_JOB, or else the launcher's. Without a store, the user guarantees that
// no other job on this host has that name. With a store, only `trireme train --ranks N` is trusted
// to.
// Throws: ConfigError with the variable, its value and what is expected
WorldInfo world_info();

// How to make a token, for errors.
inline constexpr const char* kTokenAdvice =
    "make one with `(umask 077; head -c 32 /dev/urandom | base64 > ~/.trireme-token)` and set "
    "TRIREME_TOKEN_FILE=~/.trireme-token on all ranks";

// The secret that the ranks of a job share; only processes that know it can join (store_server.h).
// The value of TRIREME_TOKEN, or else the content of the file TRIREME_TOKEN_FILE without
// surrounding white space; empty when neither is set. The file must belong to this user, and nobody
// else may read it.
// Throws: ConfigError, which never shows the token
std::string job_token();

}  // namespace trireme::comm
