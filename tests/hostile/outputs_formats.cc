// The outputs of a teacher, of which a run trains.
#include <array>
#include <cstring>
#include <map>
#include <span>
#include <string>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "tests/hostile/format.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/tasks/language/outputs/outputs_writer.h"
#include "trireme/tasks/language/outputs/teacher_outputs.h"

namespace trireme::hostile {
namespace {

using nlohmann::ordered_json;
using tasks::OutputsOf;

constexpr int64_t kTokens = 3, kTop = 2, kVocab = 9;

class Outputs : public Format {
 public:
  explicit Outputs(const std::filesystem::path& folder) : path_(folder / "outputs") {
    std::filesystem::create_directories(folder);
    const tasks::OutputsOrigin origin{.vocab_size = kVocab,
                                      .sequence_length = kTokens,
                                      .packing = "stream",
                                      .model = "llama",
                                      .teacher = {{"config", "0123456789abcdef"}},
                                      .training = {{"index", "0123456789abcdef"}},
                                      .validation = {{"index", "fedcba9876543210"}}};
    tasks::OutputsWriter writer(path_, origin,
                                {.top_k = kTop, .num_training = 4, .num_validation = 2});
    for (const auto& [data, size] :
         {std::pair{OutputsOf::kTraining, 4}, {OutputsOf::kValidation, 2}}) {
      const at::Tensor first = at::arange(size * kTokens, at::kLong).remainder(kVocab - 1);
      const auto filled = [&](double p, at::IntArrayRef shape) {
        return at::full(shape, p, at::kDouble).log();
      };
      writer.write(data, 0,
                   {at::stack({first, first + 1}, 1).view({size, kTokens, kTop}),
                    filled(0.25, {size, kTokens, kTop}), filled(0.5, {size, kTokens})});
    }
    writer.finish();
    const std::string bytes = get_file(path_);
    uint64_t size = 0;
    std::memcpy(&size, bytes.data(), sizeof(size));
    header_ = bytes.substr(8, size);
    data_ = bytes.substr(8 + size);
    const checkpoint::SafetensorsReader reader(path_);
    for (const checkpoint::TensorInfo& info : reader.tensors()) infos_[info.name] = info;
  }
  std::string name() const override { return "outputs"; }

  void write(Random& random) override {
    std::string header = header_, data = data_;
    switch (random.below(4)) {
      case 0: {
        const size_t before = data.size();
        damage_bytes(data, random);
        data.resize(before);
        if (!random.one_in(4)) repair(data);
        break;
      }
      case 1: {
        ordered_json json = ordered_json::parse(header);
        ordered_json& origin = json["__metadata__"]["origin"];
        origin = damaged_json(ordered_json::parse(origin.get<std::string>()), -1, random);
        header = json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
        break;
      }
      default: header = damaged_json(ordered_json::parse(header), -1, random); break;
    }
    const uint64_t size = header.size();
    std::string bytes =
        std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + header + data;
    if (random.one_in(8)) damage_bytes(bytes, random);
    put_file(path_, bytes);
  }

  void read() override {
    expect_refusal_or_sense([&] {
      const tasks::TeacherOutputs outputs(path_);
      expect_refusal_or_sense([&] { outputs.require_origin({.vocab_size = kVocab}); });
      expect_refusal_or_sense([&] { outputs.require_origin(outputs.origin()); });
      require(outputs.identity().is_known(), "no identity");
      for (const OutputsOf data : {OutputsOf::kTraining, OutputsOf::kValidation}) {
        for (int64_t i = 0; i < std::min<int64_t>(outputs.num_samples(data), 20); ++i) {
          expect_refusal_or_sense([&] { look(outputs, outputs.read(data, i)); });
        }
      }
    });
  }

 private:
  static void look(const tasks::TeacherOutputs& outputs, const tasks::SampleOutputs& sample) {
    const int64_t T = outputs.origin().sequence_length, k = outputs.top_k();
    require(sample.tokens_NTk.sizes() == (at::IntArrayRef{T, k}) &&
                sample.log_p_NTk.sizes() == (at::IntArrayRef{T, k}) &&
                sample.log_rest_NT.sizes() == at::IntArrayRef{T},
            "a sample of another shape");
    require(sample.tokens_NTk.ge(0)
                .logical_and(sample.tokens_NTk.lt(outputs.origin().vocab_size))
                .all()
                .item<bool>(),
            "a token outside the vocabulary");
    require(sample.log_p_NTk.le(0.01).all().item<bool>(), "a probability above 1");
    require(sample.log_rest_NT.le(0.01).all().item<bool>(), "a rest above 1");
  }

  // The checksums of all samples as they are now.
  void repair(std::string& data) const {
    for (const std::string split : {"training.", "validation."}) {
      const checkpoint::TensorInfo& sums = infos_.at(split + "checksums");
      const auto N = static_cast<uint64_t>(sums.shape[0]);
      for (uint64_t n = 0; n < N; ++n) {
        size_t i = 0;
        for (const char* part : {"tokens", "log_probabilities", "log_rest"}) {
          const checkpoint::TensorInfo& info = infos_.at(split + part);
          const uint64_t size = (info.end - info.begin) / N;
          const std::string digits =
              checksum(std::as_bytes(std::span(data).subspan(info.begin + n * size, size)));
          const uint64_t sum = std::stoull(digits, nullptr, 16);
          std::memcpy(data.data() + sums.begin + (n * 3 + i++) * sizeof(sum), &sum, sizeof(sum));
        }
      }
    }
  }

  std::filesystem::path path_;
  std::string header_, data_;
  std::map<std::string, checkpoint::TensorInfo> infos_;
};

}  // namespace

void add_outputs_formats(Formats& formats, const std::filesystem::path& folder) {
  formats.push_back(std::make_unique<Outputs>(folder / "outputs"));
}

}  // namespace trireme::hostile
