#include "trireme/model/hugging_face.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::model {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

json llama() {
  return {{"model_type", "llama"},        {"vocab_size", 29},          {"hidden_size", 24},
          {"intermediate_size", 40},      {"num_hidden_layers", 2},    {"num_attention_heads", 6},
          {"num_key_value_heads", 3},     {"hidden_act", "silu"},      {"rms_norm_eps", 2e-6},
          {"rope_theta", 500000},         {"torch_dtype", "bfloat16"}, {"use_cache", true},
          {"max_position_embeddings", 17}};
}

HuggingFaceModel read(const json& object) {
  return parse_hugging_face_config(object.dump(), "config.json");
}

std::string refusal_of_text(const std::string& text) {
  const std::string message =
      harness::message_of<ConfigError>([&] { parse_hugging_face_config(text, "config.json"); });
  EXPECT_EQ(message.find('\n'), std::string::npos);
  return message;
}

std::string refusal(const char* key, const json& value) {
  json object = llama();
  object[key] = value;
  return refusal_of_text(object.dump());
}

TEST(HuggingFaceReader, TakesEverySize) {
  const HuggingFaceModel found = read(llama());
  EXPECT_EQ(found.config.vocab_size, 29);
  EXPECT_EQ(found.config.width, 24);
  EXPECT_EQ(found.config.ffn_width, 40);
  EXPECT_EQ(found.config.layers, 2);
  EXPECT_EQ(found.config.heads, 6);
  EXPECT_EQ(found.config.kv_heads, 3);
  EXPECT_EQ(found.config.sequence_length, 17);
  EXPECT_EQ(found.config.norm_epsilon, 2e-6);
  EXPECT_EQ(found.config.rope_base, 5e5);
  EXPECT_EQ(found.dtype, at::kBFloat16);
}

TEST(HuggingFaceReader, TakesTheDefaultsOfTransformersForWhatIsMissing) {
  json object = llama();
  for (const char* key : {"num_key_value_heads", "rope_theta", "rms_norm_eps", "torch_dtype"}) {
    object.erase(key);
  }
  const HuggingFaceModel found = read(object);
  EXPECT_EQ(found.config.kv_heads, 6);
  EXPECT_EQ(found.config.rope_base, 1e4);
  EXPECT_EQ(found.config.norm_epsilon, 1e-6);
  EXPECT_FALSE(found.dtype);
  EXPECT_FALSE(found.config.tied_embedding);
}

TEST(HuggingFaceReader, ReadsBothSpellingsOfTheRotaryAngles) {
  json object = llama();
  object.erase("rope_theta");
  object["rope_parameters"] = {{"rope_theta", 300}, {"rope_type", "default"}};
  EXPECT_EQ(read(object).config.rope_base, 300);
  object = llama();
  object["rope_scaling"] = {{"type", "default"}};
  EXPECT_EQ(read(object).config.rope_base, 5e5);
}

// Each as transformers 5.23 takes it; tests/cli/foreign_facts_test.py asks it.
TEST(HuggingFaceReader, TakesOneOfTwoRotaryAnglesAndSaysSo) {
  const json plain = {{"rope_type", "default"}};
  const auto with = [&](double theta) {
    json rope = plain;
    rope["rope_theta"] = theta;
    return rope;
  };
  struct Case {
    json keys;
    double angle;
    size_t notes;
  };
  const Case cases[] = {
      {{{"rope_parameters", with(300)}}, 300, 1},
      {{{"rope_parameters", with(5e5)}}, 5e5, 0},
      {{{"rope_scaling", with(300)}, {"rope_parameters", with(400)}}, 300, 2},
      {{{"rope_scaling", plain}, {"rope_parameters", with(400)}}, 5e5, 1},
      {{{"rope_scaling", json::object()}, {"rope_parameters", with(400)}}, 400, 1},
      {{{"rope_scaling", nullptr}, {"rope_parameters", nullptr}}, 5e5, 0}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.keys.dump());
    json object = llama();
    object.update(each.keys);
    const HuggingFaceModel found = read(object);
    EXPECT_EQ(found.config.rope_base, each.angle);
    EXPECT_EQ(found.notes.size(), each.notes);
  }
  json object = llama();
  object["rope_parameters"] = with(300);
  EXPECT_EQ(read(object).notes[0],
            "rope_theta is 300.0 in rope_parameters, which counts, and 500000 beside it");
}

TEST(HuggingFaceReader, TakesTheSecondOfTwoNamesAndSaysSo) {
  json object = {{"model_type", "gpt2"}, {"vocab_size", 29}, {"n_embd", 24},
                 {"n_layer", 2},         {"n_head", 4},      {"n_positions", 17}};
  EXPECT_EQ(read(object).config.width, 24);
  object["hidden_size"] = 32;
  const HuggingFaceModel found = read(object);
  EXPECT_EQ(found.config.width, 32);
  EXPECT_EQ(found.config.ffn_width, 128);
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_THAT(found.notes[0], AllOf(HasSubstr("hidden_size is 32"), HasSubstr("n_embd")));
}

TEST(HuggingFaceReader, SaysWhatTrainsOtherwiseHere) {
  json object = llama();
  object["attention_dropout"] = 0.1;
  ASSERT_EQ(read(object).notes.size(), 1u);
  EXPECT_THAT(read(object).notes[0],
              AllOf(HasSubstr("attention_dropout is 0.1"), HasSubstr("0.0")));
  EXPECT_EQ(read(llama()).notes.size(), 0u);
}

TEST(HuggingFaceReader, TakesKeysOfOtherProgramsThatAreOff) {
  for (const char* key : {"rope_interleaved", "use_mrope"}) {
    EXPECT_EQ(refusal(key, false), "");
    EXPECT_THAT(refusal(key, true), AllOf(HasSubstr(key), HasSubstr("expected false")));
  }
  EXPECT_EQ(refusal("is_llama_config", true), "");
}

TEST(HuggingFaceReader, KeepsWhatAnExportRepeats) {
  json object = llama();
  object["eos_token_id"] = {3, 4};
  object["pad_token_id"] = nullptr;
  object["attention_dropout"] = 0.1;
  object["transformers_version"] = "5.0";
  const json kept = json::parse(kept_keys(object.dump(), "config.json", read(object).config));
  EXPECT_EQ(kept, (json{{"eos_token_id", {3, 4}},
                        {"pad_token_id", nullptr},
                        {"attention_dropout", 0.1},
                        {"use_cache", true}}));
  EXPECT_THAT(harness::message_of<ConfigError>([] { kept_keys("[]", "config.json", {}); }),
              HasSubstr("not a JSON object"));
}

TEST(HuggingFaceReader, NamesTheKeyTheValueAndWhatIsExpected) {
  EXPECT_THAT(refusal("model_type", "mamba"),
              AllOf(HasSubstr("model_type is \"mamba\""), HasSubstr("llama, mistral, qwen2")));
  EXPECT_THAT(refusal("num_hidden_layers", int64_t{1} << 40),
              AllOf(HasSubstr("num_hidden_layers is 1099511627776"), HasSubstr("65536")));
  EXPECT_THAT(refusal("num_attention_heads", 0), HasSubstr("num_attention_heads is 0"));
  EXPECT_THAT(refusal("hidden_size", "wide"), HasSubstr("hidden_size is \"wide\""));
  EXPECT_THAT(refusal("rms_norm_eps", -1), HasSubstr("rms_norm_eps is -1"));
  EXPECT_THAT(refusal("torch_dtype", "int8"), HasSubstr("float32"));
  EXPECT_THAT(refusal("quantization_config", {{"bits", 4}}), HasSubstr("quantization_config"));
  EXPECT_THAT(refusal("partial_rotary_factor", 0.5), HasSubstr("partial_rotary_factor"));
  EXPECT_EQ(refusal("quantization_config", nullptr), "");
  json object = llama();
  object.erase("hidden_size");
  EXPECT_THAT(refusal_of_text(object.dump()), HasSubstr("has no hidden_size"));
  object.erase("model_type");
  EXPECT_THAT(refusal_of_text(object.dump()), HasSubstr("model_type"));
}

TEST(HuggingFaceReader, RefusesWhatIsNoJson) {
  EXPECT_THAT(refusal_of_text(R"({"model_type": "llama", "rms_norm_eps": NaN})"),
              HasSubstr("config.json"));
  EXPECT_THAT(refusal_of_text("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal_of_text(""), HasSubstr("config.json"));
  EXPECT_THAT(refusal_of_text(std::string(2 << 20, ' ')), HasSubstr("config.json"));
}

}  // namespace
}  // namespace trireme::model
