/// What `atoll inspect` and `atoll plan` are asked about: a run, or a model. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/config/run_config.hpp"
#include "io/saved_model.hpp"

#include <optional>
#include <string>
#include <vector>

namespace atl {

struct SubjectArguments {
  std::string subject;                 ///< a run configuration, a config.json, a model file, or a run folder with one
  std::string preset;                  ///< instead of it
  std::vector<std::string> overrides;  ///< --set
};

/// A run, with the model file's own facts where it is one.
struct Subject {
  RunConfig config;
  LlamaConfig model;
  std::optional<ModelInfo> file;
};

/// ConfigError where the file is none of these, or contradicts itself.
Subject find_subject(const SubjectArguments& arguments);

}  // namespace atl
