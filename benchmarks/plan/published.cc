#include "benchmarks/plan/published.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

#include <c10/core/ScalarType.h>

#include "trireme/base/error.h"
#include "trireme/plan/cost/workload.h"

namespace trireme::benchmarks {
namespace {

using plan::Cluster;
using plan::Workload;

using Line = std::map<std::string, std::string>;

std::vector<std::string> split_line(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  return cells;
}

std::vector<Line> read_table(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string text;
  if (!std::getline(file, text)) throw std::runtime_error(path.string() + " cannot be read");
  const std::vector<std::string> names = split_line(text);
  std::vector<Line> lines;
  while (std::getline(file, text)) {
    const std::vector<std::string> cells = split_line(text);
    Line line;
    for (size_t i = 0; i < names.size() && i < cells.size(); ++i) line[names[i]] = cells[i];
    lines.push_back(std::move(line));
  }
  return lines;
}

double real(const Line& line, const std::string& name) {
  const std::string& text = line.at(name);
  return text.empty() ? 0 : std::stod(text);
}
int64_t whole(const Line& line, const std::string& name) {
  return static_cast<int64_t>(real(line, name));
}
bool starts_with(const Line& line, const std::string& name, const std::string& text) {
  return line.at(name).starts_with(text);
}

// GPT as in Megatron-LM: a feed-forward of 4 D.
model::ModelConfig gpt(int64_t layers, int64_t width, int64_t heads, int64_t sequence,
                       int64_t vocabulary) {
  model::ModelConfig config;
  config.family = "gpt2";
  config.layers = layers;
  config.width = width;
  config.heads = config.kv_heads = heads;
  config.ffn_width = 4 * width;
  config.sequence_length = sequence;
  config.vocab_size = vocabulary;
  return config;
}

model::ModelConfig llama(int64_t layers, int64_t width, int64_t heads, int64_t kv_heads,
                         int64_t ffn, int64_t sequence, int64_t vocabulary) {
  model::ModelConfig config = gpt(layers, width, heads, sequence, vocabulary);
  config.family = "llama";
  config.kv_heads = kv_heads;
  config.ffn_width = ffn;
  return config;
}

Workload mixed(model::ModelConfig model, double gradient_bytes) {
  Workload work;
  work.set_model(std::move(model));
  work.sizes = {
      .weight = 2, .gradient = gradient_bytes, .wide = 4, .states = 8, .has_masters = true};
  work.kept_by_block = model::family_of(work.model).kept_by_block(work.model);
  work.has_whole_logits = true;
  return work;
}

void set_recompute(Workload& work, model::Recompute kind) {
  work.recompute_kind = kind;
  work.recompute = model::recompute_plan(kind, "attention_core");
}

void set_axes(Workload& work, int64_t tensor, int64_t pipeline, int64_t data) {
  work.axes.tensor = tensor;
  work.axes.pipeline = pipeline;
  work.axes.data = data;
}

void set_batch(Workload& work, int64_t global, int64_t micro) {
  work.global_batch = global;
  work.micro_batch = micro;
  plan::hold_gradients(work);
}

void set_zero(Workload& work, int64_t stage) {
  work.zero = stage;
  work.axes.shard = stage > 0 ? work.axes.data : 1;
  plan::hold_gradients(work);
}

void set_chunks(Workload& work, int64_t chunks) {
  if (chunks <= 1) return;
  work.schedule = "interleaved";
  work.stages_per_rank = chunks;
}

// A row of a table of GPTs, by the columns that all of them have.
Workload gpt_row(const Line& line, int64_t sequence, int64_t vocabulary, double gradient_bytes) {
  return mixed(gpt(whole(line, "layers"), whole(line, "hidden"), whole(line, "attention_heads"),
                   sequence, vocabulary),
               gradient_bytes);
}
void set_layout(Workload& work, const Line& line) {
  set_axes(work, whole(line, "TP"), whole(line, "PP"), whole(line, "DP"));
  set_batch(work, whole(line, "global_batch"), whole(line, "microbatch"));
}

Cluster cluster_of(const std::string& device, int64_t devices) {
  const int64_t per_node = std::min<int64_t>(devices, 8);
  return {.device = plan::device_named(device),
          .nodes = (devices + per_node - 1) / per_node,
          .devices_per_node = per_node};
}

std::string layout_name(const Workload& work) {
  return concat("t", work.axes.tensor, " p", work.axes.pipeline, " d", work.axes.data,
                work.stages_per_rank > 1 ? concat(" v", work.stages_per_rank) : "", " b",
                work.micro_batch, "/", work.global_batch);
}

std::string model_name(const model::ModelConfig& model) {
  return concat(std::llround(static_cast<double>(model::num_parameters(model)) / 1e8) / 10.0, "B ");
}

PublishedRow row_of(std::string table, Workload work, const std::string& device) {
  PublishedRow row;
  row.table = std::move(table);
  row.family = device.substr(0, device.find('-'));
  row.name = model_name(work.model) + layout_name(work);
  row.cluster = cluster_of(device, work.axes.num_ranks());
  row.work = std::move(work);
  return row;
}

void add_megatron(const std::filesystem::path& folder, std::vector<PublishedRow>& rows) {
  for (const Line& line : read_table(folder / "megatron_2021.csv")) {
    Workload work = gpt_row(line, 2048, 51200, 4);
    set_layout(work, line);
    set_chunks(work, whole(line, "interleave_v"));
    set_recompute(work, model::Recompute::kFull);
    rows.push_back(row_of("Megatron 2021", work, "a100-80gb"));
    rows.back().step_seconds = real(line, "derived_iter_time_s");
  }
  for (const Line& line : read_table(folder / "megatron_2021_table2.csv")) {
    const int64_t gpus = whole(line, "gpus"), parts = whole(line, "model_parallel_size_TPxPP");
    Workload work = gpt_row(line, 2048, 51200, 4);
    const int64_t tensor = parts == 1 ? 1 : 8;
    set_axes(work, tensor, parts / tensor, gpus / parts);
    set_batch(work, whole(line, "global_batch"), whole(line, "microbatch"));
    if (parts == 1) set_zero(work, 3);
    set_recompute(work, model::Recompute::kFull);
    rows.push_back(
        row_of(parts == 1 ? "DeepSpeed ZeRO-3 2021" : "Megatron 2021, table 2", work, "a100-80gb"));
    rows.back().cluster.attention = plan::AttentionKernel::kComposed;
    rows.back().step_seconds = real(line, "derived_iter_time_s");
  }
  for (const Line& line : read_table(folder / "megatron_2020_tp_dp.csv")) {
    Workload work = gpt_row(line, 1024, 51200, 2);
    set_axes(work, whole(line, "TP"), 1, whole(line, "DP"));
    set_batch(work, whole(line, "global_batch"), whole(line, "global_batch") / work.axes.data);
    set_recompute(work, model::Recompute::kFull);
    rows.push_back(
        row_of("Megatron 2020", work, starts_with(line, "gpu", "V100") ? "v100" : "a100-40gb"));
    rows.back().step_seconds = real(line, "iter_time_ms") / 1e3;
  }
  for (const Line& line : read_table(folder / "korthikanti_2022.csv")) {
    for (const bool full : {true, false}) {
      Workload work = gpt_row(line, 2048, 51200, 4);
      set_layout(work, line);
      set_chunks(work, whole(line, "interleave_m"));
      work.sequence_parallel = !full;
      set_recompute(work, full ? model::Recompute::kFull : model::Recompute::kSelective);
      rows.push_back(row_of("Korthikanti 2022", work, "a100-80gb"));
      rows.back().name += full ? " full" : " selective";
      rows.back().step_seconds =
          real(line, full ? "iter_time_full_recompute_s" : "iter_time_present_work_s");
    }
  }
}

void add_megascale(const std::filesystem::path& folder, std::vector<PublishedRow>& rows) {
  for (const Line& line : read_table(folder / "megascale.csv")) {
    if (line.at("iter_time_s").empty()) continue;
    const int64_t parts = whole(line, "TP") * whole(line, "PP");
    Workload work = gpt_row(line, 2048, 64000, 4);
    set_axes(work, whole(line, "TP"), whole(line, "PP"), whole(line, "gpus") / parts);
    set_batch(work, whole(line, "global_batch"), 1);
    set_chunks(work, whole(line, "interleave"));
    set_zero(work, 1);
    work.sequence_parallel = true;
    set_recompute(work, model::Recompute::kSelective);
    rows.push_back(
        row_of(line.at("system") == "MegaScale" ? "MegaScale" : "MegaScale's Megatron-LM", work,
               "a100-80gb"));
    rows.back().step_seconds = real(line, "iter_time_s");
  }
}

void add_bloom(const std::filesystem::path& folder, std::vector<PublishedRow>& rows) {
  for (const Line& line : read_table(folder / "bloom_a100_sweep.csv")) {
    Workload work = gpt_row(line, 2048, 250680, 2);
    set_layout(work, line);
    set_zero(work, whole(line, "ZeRO_stage"));
    set_recompute(work, model::Recompute::kFull);
    rows.push_back(row_of("BLOOM", work, "a100-80gb"));
    PublishedRow& row = rows.back();
    // Four Omni-Path links of 100 Gb/s for 8 GPUs, and 4 NVLinks of each GPU.
    row.cluster.device.network_rate = 6.25e9;
    row.cluster.device.link_rate = 100e9;
    row.name += concat(" N", work.model.heads);
    row.step_seconds = real(line, "iter_time_s");
    row.memory_bytes = real(line, "max_memory_GB") * (1 << 30);
    row.is_out_of_memory = line.at("oom") == "OOM";
    if (row.step_seconds == 0 && !row.is_out_of_memory) rows.pop_back();
  }
}

void add_vtrain(const std::filesystem::path& folder, std::vector<PublishedRow>& rows) {
  for (const std::string& kind : {std::string("multi"), std::string("single")}) {
    for (const Line& line : read_table(folder / ("vtrain_" + kind + ".csv"))) {
      Workload work = gpt_row(line, whole(line, "seq"), 51200, 4);
      set_layout(work, line);
      set_recompute(work, model::Recompute::kFull);
      rows.push_back(row_of("vTrain, " + kind, work, "a100-80gb"));
      rows.back().step_seconds = real(line, "iter_time_ms") / 1e3;
    }
  }
}

// Sizes of the MPT models: scripts/train/yamls of mosaicml/llm-foundry.
model::ModelConfig mpt(const std::string& name, int64_t sequence) {
  struct Size {
    std::string_view name;
    int64_t layers, width, heads;
  };
  constexpr Size kSizes[] = {{"125m", 12, 768, 12}, {"350m", 24, 1024, 16}, {"760m", 24, 1536, 12},
                             {"1b", 24, 2048, 16},  {"3b", 32, 2560, 20},   {"7b", 32, 4096, 32},
                             {"13b", 40, 5120, 40}, {"30b", 48, 7168, 56},  {"70b", 80, 8192, 64}};
  const auto* size = std::ranges::find(kSizes, name, &Size::name);
  if (size == std::end(kSizes)) throw std::runtime_error("unknown MPT " + name);
  return gpt(size->layers, size->width, size->heads, sequence, 50368);
}

void add_mosaic(const std::filesystem::path& folder, std::vector<PublishedRow>& rows) {
  for (const Line& line : read_table(folder / "mosaic_llmfoundry.csv")) {
    if (line.at("precision") != "amp_bf16" && line.at("precision") != "bf16") continue;
    const std::string gpu = line.at("gpu");
    Workload work = mixed(mpt(line.at("model"), whole(line, "seq")), 4);
    set_axes(work, 1, 1, whole(line, "gpus"));
    set_batch(work, whole(line, "global_batch_seqs"), whole(line, "microbatch"));
    set_zero(work, line.at("sharding") == "FULL_SHARD" ? 3 : 2);
    set_recompute(work, line.at("activation_ckpt") == "True" ? model::Recompute::kFull
                                                             : model::Recompute::kNone);
    rows.push_back(row_of("Mosaic", work,
                          gpu == "h100_80gb"   ? "h100-sxm"
                          : gpu == "a100_40gb" ? "a100-40gb"
                                               : "a100-80gb"));
    rows.back().cluster.attention = plan::AttentionKernel::kFused;
    rows.back().name += concat(" T", work.model.sequence_length);
    rows.back().step_seconds = real(line, "global_batch_tokens") /
                               (real(line, "throughput_tok_s_gpu") * real(line, "gpus"));
  }
}

void add_torchtitan(const std::filesystem::path& folder, std::vector<PublishedRow>& rows) {
  for (const Line& line : read_table(folder / "torchtitan.csv")) {
    if (line.at("precision") != "bf16") continue;
    const std::string& name = line.at("model");
    const bool third = !name.starts_with("Llama 2");
    const int64_t T = whole(line, "seq");
    const model::ModelConfig model =
        name.ends_with("405B")  ? llama(126, 16384, 128, 8, 53248, T, 128256)
        : name.ends_with("70B") ? llama(80, 8192, 64, 8, 28672, T, third ? 128256 : 32000)
        : name.ends_with("13B") ? llama(40, 5120, 40, 40, 13824, T, 32000)
                                : llama(32, 4096, 32, 8, 14336, T, 128256);
    Workload work = mixed(model, 4);
    set_axes(work, whole(line, "TP"), whole(line, "PP"), whole(line, "FSDP"));
    work.axes.context = whole(line, "CP");
    set_batch(work, whole(line, "global_batch"), whole(line, "local_batch"));
    set_zero(work, 3);
    work.sequence_parallel = work.axes.tensor > 1;
    work.hides_tensor = line.at("async_TP") == "1";
    // "selective" recomputes the feed-forwards' products, or every other layer.
    const std::string& again = line.at("activation_ckpt");
    if (again.starts_with("selective")) {
      work.recompute_kind = model::Recompute::kSelective;
      work.recompute = {.feed_forward = true};
    } else {
      set_recompute(work, again == "full" ? model::Recompute::kFull : model::Recompute::kNone);
    }
    const bool is_a100 = line.at("gpu").starts_with("A100");
    rows.push_back(row_of("torchtitan", work, is_a100 ? "a100-80gb" : "h100-sxm"));
    PublishedRow& row = rows.back();
    if (!is_a100) {  // 96 GB of HBM2e, 500 W
      row.cluster.device.memory_rate = 2.4e12;
      row.cluster.device.memory_bytes = 96e9;
    }
    row.name += concat(" T", T, " ", again, line.at("compile") == "1" ? " compiled" : "");
    row.step_seconds =
        work.tokens_per_step() / (real(line, "tokens_per_s_per_gpu") * real(line, "gpus"));
    row.memory_bytes = real(line, "peak_memory_GiB") * (1 << 30);
  }
}

}  // namespace

std::vector<PublishedRow> read_published(const std::filesystem::path& folder) {
  std::vector<PublishedRow> rows;
  add_megatron(folder, rows);
  add_megascale(folder, rows);
  add_bloom(folder, rows);
  add_vtrain(folder, rows);
  add_mosaic(folder, rows);
  add_torchtitan(folder, rows);
  std::map<std::string, bool> is_next;
  for (PublishedRow& row : rows) {
    bool& is_for_fit = is_next[row.table + row.family];
    is_for_fit = !is_for_fit;
    row.is_for_fit = is_for_fit;
  }
  return rows;
}

}  // namespace trireme::benchmarks
