/// SPDX-License-Identifier: Apache-2.0
#include "apps/subject.hpp"

#include "core/errors.hpp"
#include "io/huggingface/safetensors_model.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

namespace atl {

namespace {

namespace fs = std::filesystem;

enum class Kind { run, hugging_face, saved_model };

/// By the content, as names say little.
Kind kind_of(const std::string& path) {
  if (fs::is_directory(path) || is_safetensors(path)) return Kind::saved_model;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError(fmt::format("{}: cannot be read; give a run.toml, a config.json or a model file", path));
  std::string head(8, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  if (head == "\x89HDF\r\n\x1a\n") return Kind::saved_model;
  const auto first = head.find_first_not_of(" \t\r\n");
  return first != std::string::npos && head[first] == '{' ? Kind::hugging_face : Kind::run;
}

/// A configuration of a run that is not there: one sequence a rank, unless the overrides say more.
RunConfig without_a_run(const SubjectArguments& arguments, const std::string& model) {
  std::vector<std::string> keys{"train.steps=1", "train.micro_batch=1"};
  if (!model.empty()) keys.push_back(model);
  keys.insert(keys.end(), arguments.overrides.begin(), arguments.overrides.end());
  return load_run_config("", keys);
}

}  // namespace

Subject find_subject(const SubjectArguments& arguments) {
  Subject subject;
  if (arguments.subject.empty()) {
    subject.config =
        without_a_run(arguments, arguments.preset.empty() ? "" : fmt::format("model.preset=\"{}\"", arguments.preset));
  } else {
    const std::string path =
        fs::is_directory(arguments.subject) ? find_saved_model(arguments.subject) : arguments.subject;
    switch (kind_of(path)) {
      case Kind::run:
        subject.config = load_run_config(path, arguments.overrides);
        break;
      case Kind::hugging_face:
        subject.config = without_a_run(arguments, fmt::format("model.config='{}'", path));
        break;
      case Kind::saved_model: {
        for (const std::string& text : arguments.overrides)
          if (text.rfind("model.", 0) == 0)
            throw ConfigError(
                fmt::format("--set {}: the model of {} is fixed; name its sizes without the file", text, path));
        subject.file = read_model_info(path);
        subject.model = subject.file->config;
        const fs::path folder = fs::is_directory(path) ? fs::path(path) : fs::path(path).parent_path();
        const std::string run = (folder / "run.toml").string();
        subject.config = fs::exists(run) ? load_run_config(run, arguments.overrides)
                                         : without_a_run(arguments, "model.preset=tiny");  // no model of its own
        return subject;
      }
    }
  }
  subject.model = resolve_model(subject.config);
  return subject;
}

}  // namespace atl
