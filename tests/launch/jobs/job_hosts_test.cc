#include "trireme/launch/jobs/job_hosts.h"

#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/launch/jobs/fixtures.h"
#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using Hosts = std::vector<JobHost>;

JobHosts job_of(const Variables& variables, const std::string& hostname = "elsewhere") {
  const auto job = read_job_hosts({variables, hostname});
  EXPECT_TRUE(job.has_value());
  return job.value_or(JobHosts{});
}

// Expects an error with `part` after `change` to the fixture's variables.
void expect_refusal(const std::string& name, const Variables& change, const std::string& part,
                    const std::string& hostname = "elsewhere") {
  Variables variables = fixture(name);
  for (const auto& [key, value] : change) variables[key] = value;
  EXPECT_ERROR(ConfigError, read_job_hosts({variables, hostname}), part);
}

TEST(JobHosts, AreNoneWithoutAScheduler) {
  EXPECT_FALSE(read_job_hosts({{{"HOME", "/root"}, {"SLURM_CONF", "/etc/slurm.conf"}}, "a"}));
}

TEST(JobHosts, OfAStepOfSlurm) {
  for (int rank = 0; rank < 3; ++rank) {
    const JobHosts job = job_of(fixture("slurm-step-" + std::to_string(rank)));
    EXPECT_EQ(job.scheduler, "Slurm");
    EXPECT_EQ(job.id, "1.0");
    EXPECT_EQ(job.hosts, (Hosts{{"node01", 1}, {"node02", 1}, {"node03", 1}}));
    EXPECT_EQ(job.node_rank, rank);
    EXPECT_EQ(job.min_hosts, 3);
    EXPECT_EQ(job.head(), "node01");
    EXPECT_EQ(job.port, job_of(fixture("slurm-step-0")).port);
    EXPECT_FALSE(job.end_unix_s);
  }
}

TEST(JobHosts, OfAStepOnPartOfASlurmJob) {
  Variables variables = fixture("slurm-step-1");
  variables["SLURM_STEP_NODELIST"] = "node[02-03]";
  variables["SLURM_STEP_NUM_NODES"] = "2";
  variables["SLURM_STEP_TASKS_PER_NODE"] = "1(x2)";
  variables["SLURM_NODEID"] = "0";
  variables["SLURM_JOB_CPUS_PER_NODE"] = "4,8(x2)";
  variables["SLURM_JOB_END_TIME"] = "4102444800";
  const JobHosts job = job_of(variables);
  EXPECT_EQ(job.hosts, (Hosts{{"node02", 8}, {"node03", 8}}));
  EXPECT_EQ(job.node_rank, 0);
  EXPECT_EQ(job.end_unix_s, 4102444800);
}

TEST(JobHosts, OfABatchScriptOfSlurmWithOneHost) {
  Variables variables = fixture("slurm-batch");
  variables["SLURM_JOB_NODELIST"] = "node01";
  variables["SLURM_JOB_NUM_NODES"] = "1";
  variables["SLURM_JOB_CPUS_PER_NODE"] = "8";
  const JobHosts job = job_of(variables);
  EXPECT_EQ(job.id, "2");
  EXPECT_EQ(job.hosts, (Hosts{{"node01", 8}}));
}

TEST(JobHosts, ABatchScriptOfSlurmIsNotAnAgentOnEveryHost) {
  expect_refusal("slurm-batch", {}, "SLURM_JOB_NODELIST is \"node[01-02]\", 2 hosts, and no step");
  // An interactive shell, and the batch script of a newer Slurm.
  for (const std::string step : {"4294967290", "4294967291"}) {
    expect_refusal("slurm-step-0", {{"SLURM_STEP_ID", step}, {"SLURM_STEP_NODELIST", "node01"}},
                   "start it with srun --ntasks-per-node=1");
  }
}

TEST(JobHosts, SlurmsHalfSetVariablesAreRefused) {
  const std::string name = "slurm-step-1";
  expect_refusal(name, {{"SLURM_STEP_NODELIST", ""}}, "SLURM_STEP_NODELIST is not set");
  expect_refusal(name, {{"SLURM_NODEID", ""}}, "SLURM_NODEID is not set");
  expect_refusal(name, {{"SLURM_JOB_ID", ""}, {"SLURM_JOBID", ""}}, "SLURM_JOB_ID is not set");
  expect_refusal(name, {{"SLURM_STEP_TASKS_PER_NODE", ""}}, "TASKS_PER_NODE is not set");
  EXPECT_ERROR(ConfigError, read_job_hosts({{{"SLURM_JOB_ID", "1"}}, "a"}),
               "SLURM_JOB_ID is set and SLURM_JOB_NODELIST is not, as in a shell or container that "
               "only heard of the job; for all of its hosts start it with srun --ntasks-per-node=1 "
               "trireme run ...; for this host alone, give --nnodes 1");
  EXPECT_ERROR(ConfigError, read_job_hosts({{{"SLURM_NODEID", "0"}}, "a"}),
               "SLURM_JOB_ID is not set");
}

TEST(JobHosts, SlurmsContradictionsAreRefused) {
  const std::string name = "slurm-step-1";
  expect_refusal(name, {{"SLURM_NODEID", "3"}}, "SLURM_NODEID is 3; expected below the 3 hosts");
  expect_refusal(name, {{"SLURM_NODEID", "0"}},
                 "SLURMD_NODENAME is \"node02\" and SLURM_NODEID is 0; expected host \"node01\"");
  expect_refusal(name, {{"SLURM_STEP_NUM_NODES", "4"}},
                 "SLURM_STEP_NUM_NODES is 4; expected 3, the number of hosts in");
  expect_refusal(name, {{"SLURM_STEP_TASKS_PER_NODE", "2(x3)"}},
                 "\"2(x3)\"; expected one agent on each of 3 hosts");
  expect_refusal(name, {{"SLURM_JOB_CPUS_PER_NODE", "8"}},
                 "\"8\", 1 hosts; expected 3, the number");
  expect_refusal(name, {{"SLURM_STEP_NODELIST", "node[01-"}}, "expected hosts as in");
  expect_refusal(name, {{"SLURM_HET_SIZE", "2"}}, "SLURM_HET_SIZE is \"2\"");
  expect_refusal(name, {{"SLURM_JOB_END_TIME", "soon"}}, "SLURM_JOB_END_TIME is \"soon\"");
}

TEST(JobHosts, OfOpenPbs) {
  const JobHosts job = job_of(fixture("pbs-openpbs"), "node02");
  EXPECT_EQ(job.scheduler, "PBS");
  EXPECT_EQ(job.id, "1042.pbs");
  EXPECT_EQ(job.hosts,
            (Hosts{{"node01.cluster", 8}, {"node02.cluster", 8}, {"node03.cluster", 8}}));
  EXPECT_EQ(job.node_rank, 1);
  EXPECT_EQ(job.head(), "node01.cluster");
}

TEST(JobHosts, OfTorque) {
  const JobHosts job = job_of(fixture("pbs-torque"), "n2.cluster");
  EXPECT_EQ(job.hosts, (Hosts{{"n1", 4}, {"n2", 4}}));
  EXPECT_EQ(job.node_rank, 1);
}

TEST(JobHosts, PbsIsRefusedWithoutItsFileAndOnAForeignHost) {
  expect_refusal("pbs-openpbs", {{"PBS_NODEFILE", ""}}, "PBS_NODEFILE is not set", "node01");
  expect_refusal("pbs-openpbs", {{"PBS_JOBID", ""}}, "PBS_JOBID is not set", "node01");
  expect_refusal("pbs-openpbs", {{"PBS_NODEFILE", "/nowhere"}}, "PBS_NODEFILE is \"/nowhere\"",
                 "node01");
  expect_refusal("pbs-openpbs", {}, "does not name this host, \"login1\", once among its 3",
                 "login1");
  expect_refusal("pbs-torque", {{"PBS_NP", "16"}}, "has 8 lines; expected PBS_NP = 16", "n1");
}

TEST(JobHosts, OfLsfAreReadFromEachOfItsVariables) {
  Variables variables = fixture("lsf");
  for (const char* list : {"LSB_DJOB_HOSTFILE", "LSB_MCPU_HOSTS", "LSB_HOSTS"}) {
    const JobHosts job = job_of(variables, "hostb");
    EXPECT_EQ(job.scheduler, "LSF") << list;
    EXPECT_EQ(job.id, "801");
    EXPECT_EQ(job.hosts, (Hosts{{"hosta", 4}, {"hostb", 2}})) << list;
    EXPECT_EQ(job.node_rank, 1);
    variables.erase(list);
  }
  EXPECT_ERROR(ConfigError, read_job_hosts({variables, "hosta"}), "LSB_DJOB_HOSTFILE is not set");
}

TEST(JobHosts, OfAnArrayOfLsfHaveItsElementsNumber) {
  Variables variables = fixture("lsf");
  variables["LSB_JOBINDEX"] = "7";
  EXPECT_EQ(job_of(variables, "hosta").id, "801.7");
  EXPECT_NE(job_of(variables, "hosta").port, job_of(fixture("lsf"), "hosta").port);
}

TEST(JobHosts, LsfIsRefusedWithALostFileOrACutOne) {
  expect_refusal("lsf", {{"LSB_DJOB_HOSTFILE", "/nowhere"}}, "LSB_DJOB_HOSTFILE is \"/nowhere\"",
                 "hosta");
  expect_refusal("lsf", {{"LSB_DJOB_NUMPROC", "8"}}, "6 slots; expected LSB_DJOB_NUMPROC = 8",
                 "hosta");
  expect_refusal("lsf", {{"LSB_JOBID", ""}}, "LSB_JOBID is not set", "hosta");
  expect_refusal("lsf", {}, "does not name this host, \"hostc\"", "hostc");
}

TEST(JobHosts, OfMpirunAreThoseOfItsHostfile) {
  for (int rank = 0; rank < 2; ++rank) {
    const JobHosts job =
        job_of(fixture("open_mpi-" + std::to_string(rank)), rank == 0 ? "hosta" : "hostb");
    EXPECT_EQ(job.scheduler, "Open MPI");
    EXPECT_EQ(job.id, "1439432705");
    EXPECT_EQ(job.hosts, (Hosts{{"hosta", 4}, {"hostb", 4}}));
    EXPECT_EQ(job.node_rank, rank);
  }
  expect_refusal("open_mpi-0", {}, "OMPI_COMM_WORLD_RANK is 0 on this host, hostb", "hostb");
  expect_refusal("open_mpi-0", {}, "does not name this host", "hostc");
  expect_refusal("open_mpi-0", {{"OMPI_COMM_WORLD_SIZE", "3"}}, "names 2 hosts; expected", "hosta");
}

TEST(JobHosts, OfMpirunMayHaveOnlyTheFirstNamed) {
  Variables variables = fixture("open_mpi-1");
  variables.erase("OMPI_MCA_orte_default_hostfile");
  EXPECT_ERROR(ConfigError, read_job_hosts({variables, "hostb"}), "mpirun -x MASTER_ADDR=HOST");
  variables["MASTER_ADDR"] = "10.0.0.1";
  EXPECT_EQ(job_of(variables).hosts, (Hosts{{"10.0.0.1", 0}, {"", 0}}));
  variables["MASTER_PORT"] = "1234";
  EXPECT_EQ(job_of(variables).port, 1234);
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  EXPECT_ERROR(ConfigError, read_job_hosts({variables, "a"}), "mpirun --map-by ppr:1:node");
}

TEST(JobHosts, OfMpirunWithinAJobAreTheJobs) {
  Variables variables = fixture("open_mpi-1");
  variables.erase("OMPI_MCA_orte_default_hostfile");
  for (const auto& [name, value] : fixture("slurm-batch")) variables[name] = value;
  EXPECT_EQ(job_of(variables, "node02").hosts, (Hosts{{"node01", 1}, {"node02", 1}}));
  EXPECT_EQ(job_of(variables, "node02").scheduler, "Open MPI");
}

TEST(JobHosts, OfAnIndexedJobAreItsPods) {
  const JobHosts job = job_of(fixture("kubernetes-indexed"));
  EXPECT_EQ(job.scheduler, "Kubernetes");
  EXPECT_EQ(job.node_rank, 2);
  EXPECT_EQ(job.port, 29400);
  EXPECT_EQ(job.hosts, (Hosts{{"galley-0.galley", 0},
                              {"galley-1.galley", 0},
                              {"galley-2.galley", 0},
                              {"galley-3.galley", 0}}));
}

TEST(JobHosts, OfKubeflowAreItsNodes) {
  const JobHosts job = job_of(fixture("kubernetes-kubeflow"));
  EXPECT_EQ(job.hosts, (Hosts{{"galley-node-0-0.galley", 0}, {"galley-node-0-1.galley", 0}}));
  EXPECT_EQ(job.node_rank, 1);
  EXPECT_EQ(job.nproc_per_node, 4);
}

TEST(JobHosts, OfAnElasticJobAgreeOnTheirRanks) {
  const JobHosts job = job_of(fixture("kubernetes-elastic"));
  EXPECT_EQ(job.id, "galley");
  EXPECT_EQ(job.head(), "galley-worker-0");
  EXPECT_EQ(job.port, 23456);
  EXPECT_EQ(job.node_rank, -1);
  EXPECT_EQ(job.min_hosts, 2);
  EXPECT_EQ(job.hosts.size(), 4U);
  EXPECT_EQ(job.nproc_per_node, 0);
}

TEST(JobHosts, OfAnElasticJobMeetAtAnAddress) {
  Variables variables = fixture("kubernetes-elastic");
  for (const auto& [endpoint, host] :
       Variables{{"[fd00::2]:1", "[fd00::2]"}, {"fd00::2", "fd00::2"}, {"a.b", "a.b"}}) {
    variables["PET_RDZV_ENDPOINT"] = endpoint;
    EXPECT_EQ(job_of(variables).head(), host);
  }
}

TEST(JobHosts, AnIncompleteManifestIsRefused) {
  const std::string name = "kubernetes-indexed";
  expect_refusal(name, {{"PET_NNODES", ""}}, "PET_NNODES is not set; expected the number of pods");
  expect_refusal(name, {{"PET_MASTER_ADDR", ""}}, "PET_MASTER_ADDR is not set");
  expect_refusal(name, {{"JOB_COMPLETION_INDEX", ""}}, "JOB_COMPLETION_INDEX are not set");
  expect_refusal(name, {{"JOB_COMPLETION_INDEX", "4"}}, "is 4; expected below PET_NNODES = 4");
  expect_refusal(name, {{"PET_NODE_RANK", "1"}}, "expected JOB_COMPLETION_INDEX = 2");
  expect_refusal(name, {{"PET_NNODES", "4:2"}}, "PET_NNODES is \"4:2\"");
  expect_refusal(name, {{"PET_NNODES", "0"}}, "PET_NNODES is \"0\"");
  expect_refusal(name, {{"PET_NNODES", "1000000"}}, "at most 100000");
  expect_refusal(name, {{"PET_MASTER_PORT", "70000"}}, "70000; expected at most 65535");
  expect_refusal(name, {{"PET_RDZV_BACKEND", "etcd-v2"}}, "\"etcd-v2\"; expected c10d or static");
  expect_refusal(name, {{"PET_NPROC_PER_NODE", "many"}}, "PET_NPROC_PER_NODE is \"many\"");
}

}  // namespace
}  // namespace trireme::launch
