// Times raw MPI calls, for `trireme bench comm --compare mpi`. Started by mpirun:
//   mpirun -n 2 mpi_peer --operation all_reduce,barrier --dtype fp32 --sizes 4,65536 --seconds 0.5
// Rank 0 prints one JSON object per case. Operations are in place where trireme's are. Reductions
// of fp16 and bf16 are left out, because MPI has no type for them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include <mpi.h>

namespace {

constexpr double kBatchSeconds = 20e-6;  // as trireme's, so that reading the clock does not matter
constexpr double kWarmUpShare = 0.2;

struct Dtype {
  MPI_Datatype type;
  int item_bytes;
  bool has_sum;
};

Dtype dtype_of(const std::string& name) {
  const std::map<std::string, Dtype> dtypes = {
      {"fp64", {MPI_DOUBLE, 8, true}},    {"fp32", {MPI_FLOAT, 4, true}},
      {"bf16", {MPI_UINT16_T, 2, false}}, {"fp16", {MPI_UINT16_T, 2, false}},
      {"int64", {MPI_INT64_T, 8, true}},  {"int32", {MPI_INT32_T, 4, true}},
      {"int16", {MPI_INT16_T, 2, true}},  {"int8", {MPI_INT8_T, 1, true}},
      {"uint8", {MPI_UINT8_T, 1, true}}};
  return dtypes.at(name);
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

// One rank's buffers for a case, and the call on them.
class Case {
 public:
  Case(const std::string& operation, const Dtype& dtype, int64_t bytes)
      : operation_(operation),
        type_(dtype.type),
        count_(static_cast<int>(bytes / dtype.item_bytes)) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    // The first ranks take the remainder, as trireme's do.
    for (int rank = 0; rank < size_; ++rank) {
      counts_.push_back(count_ / size_ + (rank < count_ % size_ ? 1 : 0));
    }
    offsets_.resize(counts_.size());
    std::exclusive_scan(counts_.begin(), counts_.end(), offsets_.begin(), 0);
    const int own = counts_[rank_];
    own_counts_.assign(size_, own);
    for (int rank = 0; rank < size_; ++rank) own_offsets_.push_back(rank * own);
    const size_t largest = static_cast<size_t>(std::max(count_, own * size_)) * dtype.item_bytes;
    input_.resize(largest);
    output_.resize(largest);
  }

  std::function<void()> call() { return calls().at(operation_); }

 private:
  std::map<std::string, std::function<void()>> calls() {
    char* in = input_.data();
    char* out = output_.data();
    const int own = counts_[rank_];
    return {
        {"all_reduce",
         [=, this] { MPI_Allreduce(MPI_IN_PLACE, in, count_, type_, MPI_SUM, MPI_COMM_WORLD); }},
        {"reduce",
         [=, this] {
           const void* from = rank_ == 0 ? MPI_IN_PLACE : in;
           MPI_Reduce(from, in, count_, type_, MPI_SUM, 0, MPI_COMM_WORLD);
         }},
        {"broadcast", [=, this] { MPI_Bcast(in, count_, type_, 0, MPI_COMM_WORLD); }},
        {"all_gather",
         [=, this] {
           MPI_Allgatherv(in, own, type_, out, counts_.data(), offsets_.data(), type_,
                          MPI_COMM_WORLD);
         }},
        {"reduce_scatter",
         [=, this] {
           MPI_Reduce_scatter(in, out, counts_.data(), type_, MPI_SUM, MPI_COMM_WORLD);
         }},
        {"all_to_all",
         [=, this] {
           MPI_Alltoallv(in, counts_.data(), offsets_.data(), type_, out, own_counts_.data(),
                         own_offsets_.data(), type_, MPI_COMM_WORLD);
         }},
        {"gather",
         [=, this] {
           MPI_Gatherv(in, own, type_, out, counts_.data(), offsets_.data(), type_, 0,
                       MPI_COMM_WORLD);
         }},
        {"scatter",
         [=, this] {
           MPI_Scatterv(in, counts_.data(), offsets_.data(), type_, out, own, type_, 0,
                        MPI_COMM_WORLD);
         }},
        {"send_recv",
         [=, this] {
           MPI_Sendrecv(in, count_, type_, (rank_ + 1) % size_, 0, out, count_, type_,
                        (rank_ + size_ - 1) % size_, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
         }},
        {"barrier", [] { MPI_Barrier(MPI_COMM_WORLD); }},
    };
  }

  std::string operation_;
  MPI_Datatype type_;
  int count_;
  int rank_ = 0;
  int size_ = 1;
  std::vector<int> counts_, offsets_;          // every rank's block
  std::vector<int> own_counts_, own_offsets_;  // all_to_all's output: one own block from each rank
  std::vector<char> input_, output_;           // resize() writes them, so every page is allocated
};

double run(const std::function<void()>& call, int64_t count) {
  const double start = MPI_Wtime();
  for (int64_t i = 0; i < count; ++i) call();
  return MPI_Wtime() - start;
}

struct Timing {
  double median = 0;
  double p99 = 0;
};

// Microseconds per call, by the method of trireme/cli/bench/bench_comm.h.
Timing measure(const std::function<void()>& call, double seconds) {
  call();
  double one = 0;
  for (int64_t count = 1;; count *= 2) {
    MPI_Barrier(MPI_COMM_WORLD);
    double elapsed = run(call, count);
    MPI_Allreduce(MPI_IN_PLACE, &elapsed, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    one = std::max(elapsed / static_cast<double>(count), 1e-9);
    if (elapsed > kWarmUpShare * seconds / 2) break;
  }
  const auto batch = std::clamp<int64_t>(std::llround(std::ceil(kBatchSeconds / one)), 1, 1000);
  const double budget = (1 - kWarmUpShare) * seconds / (one * static_cast<double>(batch));
  std::vector<double> times(std::clamp<int64_t>(std::llround(budget), 5, 20000));
  for (double& time : times) {
    MPI_Barrier(MPI_COMM_WORLD);
    time = 1e6 * run(call, batch) / static_cast<double>(batch);
  }
  MPI_Allreduce(MPI_IN_PLACE, times.data(), static_cast<int>(times.size()), MPI_DOUBLE, MPI_MAX,
                MPI_COMM_WORLD);
  std::sort(times.begin(), times.end());
  const size_t count = times.size();
  const auto rank = static_cast<size_t>(std::ceil(0.99 * static_cast<double>(count)));
  return {(times[(count - 1) / 2] + times[count / 2]) / 2, times[rank - 1]};
}

void run_case(const std::string& operation, const std::string& dtype_name, int64_t bytes,
              double seconds) {
  const Dtype dtype = dtype_of(dtype_name);
  const bool sums = operation.find("reduce") != std::string::npos;
  if (sums && !dtype.has_sum) return;
  Case buffers(operation, dtype, bytes);
  const Timing timing = measure(buffers.call(), seconds);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank != 0) return;
  std::printf(
      "{\"operation\": \"%s\", \"transport\": \"mpi\", \"memory\": \"ordinary\", "
      "\"dtype\": \"%s\", \"bytes\": %lld, \"ranks\": %d, \"microseconds\": %.17g, "
      "\"p99_microseconds\": %.17g}\n",
      operation.c_str(), dtype_name.c_str(), static_cast<long long>(bytes), size, timing.median,
      timing.p99);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  std::map<std::string, std::string> options = {{"--operation", "all_reduce"},
                                                {"--dtype", "fp32"},
                                                {"--sizes", "4,65536,1048576,16777216"},
                                                {"--seconds", "0.5"}};
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  const double seconds = std::atof(options["--seconds"].c_str());
  for (const std::string& operation : split(options["--operation"])) {
    if (operation == "barrier") {
      run_case(operation, "fp32", 0, seconds);
      continue;
    }
    for (const std::string& dtype : split(options["--dtype"])) {
      for (const std::string& bytes : split(options["--sizes"])) {
        run_case(operation, dtype, std::atoll(bytes.c_str()), seconds);
      }
    }
  }
  MPI_Finalize();
  return 0;
}
