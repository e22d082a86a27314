/// Tests of io/config/run_config.hpp. SPDX-License-Identifier: Apache-2.0
#include "io/config/run_config.hpp"

#include "core/errors.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <unistd.h>

namespace atl {
namespace {

namespace fs = std::filesystem;
using Overrides = std::vector<std::string>;

/// The least that makes a run.
const Overrides least = {"model.preset=tiny", "train.steps=10", "train.batch=8"};

class RunConfigTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder); }
  void TearDown() override { fs::remove_all(folder); }

  std::string write(const std::string& text) const {
    std::ofstream(path) << text;
    return path;
  }
  RunConfig load(const std::string& text, const Overrides& overrides = least) const {
    return load_run_config(write(text), overrides);
  }
  /// The message of the ConfigError that loading must throw, without the folder.
  std::string refusal(const std::string& text, const Overrides& overrides = least) const {
    try {
      load(text, overrides);
    } catch (const ConfigError& error) {
      std::string message = error.what();
      for (std::size_t at; (at = message.find(folder.string() + "/")) != std::string::npos;)
        message.erase(at, folder.string().size() + 1);
      return message;
    }
    return "accepted";
  }

  const fs::path folder = fs::temp_directory_path() / ("atoll_run_config_test_" + std::to_string(::getpid()));
  const std::string path = (folder / "run.toml").string();
};

std::string refusal_of(const Overrides& more) {
  Overrides overrides = least;
  overrides.insert(overrides.end(), more.begin(), more.end());
  try {
    load_run_config("", overrides);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

RunConfig loaded(const Overrides& more) {
  Overrides overrides = least;
  overrides.insert(overrides.end(), more.begin(), more.end());
  return load_run_config("", overrides);
}

TEST_F(RunConfigTest, KeysAreAContract) {
  RunConfig config;
  std::string names;
  const ConfigTable table = run_config_table(config);
  for (const auto& key : table.keys()) names += key.full_name() + " ";
  EXPECT_EQ(
      names,
      "run.dir run.seed "
      "model.preset model.config model.hidden_size model.intermediate_size model.num_hidden_layers "
      "model.num_attention_heads model.num_key_value_heads model.head_dim model.vocab_size model.rope_theta "
      "model.rope_scaling model.rms_norm_eps model.tie_word_embeddings model.max_position_embeddings "
      "model.initializer_range model.init_from "
      "data.train data.weights data.eval data.raw_type data.sequence_length data.packing data.end_of_document "
      "data.synthetic_tokens data.synthetic_eval_tokens "
      "train.steps train.batch train.micro_batch train.accumulate train.precision train.reduce_precision "
      "train.recompute train.loss_chunk train.tf32 train.time_limit "
      "optimizer.kind optimizer.lr optimizer.betas optimizer.eps optimizer.weight_decay optimizer.clip_norm "
      "schedule.kind schedule.warmup schedule.min_lr schedule.decay_steps "
      "parallel.strategy parallel.shard_size parallel.group_size parallel.groups parallel.group_sizes "
      "parallel.group_by parallel.group_file parallel.reshard_after_forward parallel.prefetch "
      "parallel.backend parallel.sum_order parallel.time_out "
      "federation.every federation.outer federation.lr federation.momentum federation.nesterov federation.betas "
      "federation.tau federation.weights federation.inner_state "
      "eval.every eval.batches "
      "checkpoint.every checkpoint.align checkpoint.keep checkpoint.keep_every checkpoint.async checkpoint.writers "
      "checkpoint.moments checkpoint.resume log.every log.level ");
}

TEST_F(RunConfigTest, ReadsEveryKey) {
  const RunConfig config = load(R"(
    [run]
    dir = "out/a b"
    seed = 7
    [model]
    hidden_size = 96
    intermediate_size = 200
    num_hidden_layers = 3
    num_attention_heads = 6
    num_key_value_heads = 2
    head_dim = 10
    vocab_size = 300
    rope_theta = 5e5
    rope_scaling = { rope_type = "llama3", factor = 4, low_freq_factor = 1.5, high_freq_factor = 3.0, original_max_position_embeddings = 64 }
    rms_norm_eps = 1e-6
    tie_word_embeddings = true
    max_position_embeddings = 128
    initializer_range = 0.01
    init_from = "start.h5"
    [data]
    train = ["train.h5", "more/*.bin"]
    weights = [3, 1]
    eval = "eval.h5"
    raw_type = "uint32"
    sequence_length = 77
    packing = "documents"
    end_of_document = 5
    synthetic_tokens = 1000
    synthetic_eval_tokens = 500
    [train]
    steps = 1_000
    batch = 24
    micro_batch = 2
    accumulate = 3
    precision = "bf16"
    reduce_precision = "bf16"
    recompute = "block"
    loss_chunk = 33
    time_limit = "1h30m"
    [optimizer]
    kind = "sgd"
    lr = 1
    betas = [0.8, 0.9]
    eps = 1e-7
    weight_decay = 0.2
    clip_norm = 0
    [schedule]
    kind = "wsd"
    warmup = 20
    min_lr = 0.5
    decay_steps = 0.25
    [parallel]
    strategy = "fl+hsdp"
    shard_size = 2
    group_size = 4
    groups = 3
    group_sizes = [4, 2, 1]
    group_by = "node"
    group_file = "cells"
    reshard_after_forward = false
    prefetch = 2
    [federation]
    every = 5
    outer = "adam"
    lr = 1
    betas = [0.5, 0.75]
    tau = 0.01
    weights = "uniform"
    [eval]
    every = 11
    batches = 12
    [log]
    every = 13
    level = "debug"
  )",
                                {});
  EXPECT_EQ(config.run.dir, "out/a b");
  EXPECT_EQ(config.run.seed, 7);
  LlamaConfig model;
  model.hidden_size = 96;
  model.intermediate_size = 200;
  model.num_hidden_layers = 3;
  model.num_attention_heads = 6;
  model.num_key_value_heads = 2;
  model.head_dim = 10;
  model.vocab_size = 300;
  model.rope_theta = 500000;
  model.rope_scaling = {RopeScaling::Kind::llama3, 4, 1.5, 3, 64};
  model.rms_norm_eps = 1e-6;
  model.tie_word_embeddings = true;
  model.max_position_embeddings = 128;
  model.initializer_range = 0.01;
  EXPECT_EQ(resolve_model(config), model);
  EXPECT_EQ(config.model.init_from, "start.h5");
  EXPECT_EQ(config.data.train, (Overrides{"train.h5", "more/*.bin"}));
  EXPECT_EQ(config.data.weights, (std::vector<double>{3, 1}));
  EXPECT_EQ(config.data.raw_type, TokenType::u32);
  EXPECT_EQ(config.data.eval, "eval.h5");
  EXPECT_EQ(config.data.sequence_length, 77);
  EXPECT_EQ(config.data.documents, (DocumentOptions{Packing::documents, 5}));
  EXPECT_EQ(config.data.synthetic_tokens, 1000);
  EXPECT_EQ(config.data.synthetic_eval_tokens, 500);
  EXPECT_EQ(config.train.steps, 1000);
  EXPECT_EQ(config.train.batch, 24);
  EXPECT_EQ(config.train.micro_batch, 2);
  EXPECT_EQ(config.train.accumulate, 3);
  EXPECT_EQ(config.train.precision, Precision::bf16);
  EXPECT_EQ(config.train.reduce_precision, Precision::bf16);
  EXPECT_EQ(config.train.recompute, Recompute::block);
  EXPECT_EQ(config.train.loss_chunk, 33);
  EXPECT_EQ(config.train.time_limit, "1h30m");
  EXPECT_EQ(config.optimizer.kind, OptimizerOptions::Kind::sgd);
  EXPECT_EQ(config.optimizer.lr, 1.0);
  EXPECT_EQ(config.optimizer.beta1, 0.8);
  EXPECT_EQ(config.optimizer.beta2, 0.9);
  EXPECT_EQ(config.optimizer.eps, 1e-7);
  EXPECT_EQ(config.optimizer.weight_decay, 0.2);
  EXPECT_EQ(config.optimizer.clip_norm, 0.0);
  EXPECT_EQ(config.schedule.kind, ScheduleOptions::Kind::wsd);
  EXPECT_EQ(config.schedule.warmup, 20);
  EXPECT_EQ(config.schedule.min_lr, 0.5);
  EXPECT_EQ(config.schedule.decay_steps, 0.25);
  EXPECT_EQ(config.parallel.strategy, Strategy::fl_hsdp);
  EXPECT_EQ(config.parallel.shard_size, 2);
  EXPECT_EQ(config.parallel.group_size, 4);
  EXPECT_EQ(config.parallel.groups, 3);
  EXPECT_EQ(config.parallel.group_sizes, (std::vector<int>{4, 2, 1}));
  EXPECT_EQ(config.parallel.group_by, ParallelOptions::GroupBy::node);
  EXPECT_EQ(config.parallel.group_file, "cells");
  EXPECT_FALSE(config.parallel.reshard_after_forward);
  EXPECT_EQ(config.parallel.prefetch, 2);
  EXPECT_EQ(config.federation.every, 5);
  EXPECT_EQ(config.federation.outer, FederationOptions::Outer::adam);
  EXPECT_EQ(config.federation.lr, 1.0);
  EXPECT_EQ(config.federation.betas, (std::array<double, 2>{0.5, 0.75}));
  EXPECT_EQ(config.federation.tau, 0.01);
  EXPECT_EQ(config.federation.inner_state, FederationOptions::InnerState::keep);
  EXPECT_EQ(config.federation.weights, FederationOptions::Weights::uniform);
  EXPECT_EQ(config.eval.every, 11);
  EXPECT_EQ(config.eval.batches, 12);
  EXPECT_EQ(config.log.every, 13);
  EXPECT_EQ(config.log.level, "debug");

  // What --show-config prints gives the same configuration, and shows all of it.
  const std::string shown = show(config);
  const RunConfig again = load(shown, {});
  EXPECT_EQ(to_json(again), to_json(config));
  EXPECT_EQ(hash_of(again), hash_of(config));
  EXPECT_EQ(show(again), shown);
  EXPECT_NE(shown.find("\n# preset = \"\"\n"), std::string::npos);
  RunConfig copy = config;
  const ConfigTable table = run_config_table(copy);
  const std::set<std::string> excluded{"preset", "config", "momentum", "nesterov"};  // by what is given
  for (const auto& key : table.keys()) EXPECT_TRUE(key.given() || excluded.count(key.name) > 0) << key.full_name();
}

TEST_F(RunConfigTest, ShowsWhatFollowsFromAPreset) {
  const RunConfig config = loaded({"model.preset=1b", "run.dir=say \"hi\"\\\n"});
  const std::string shown = show(config);
  EXPECT_NE(shown.find("\npreset = \"1b\"\n"), std::string::npos) << shown;
  EXPECT_NE(shown.find("\n# hidden_size = 2048\n"), std::string::npos) << shown;
  EXPECT_NE(shown.find("\n# rope_scaling = { factor = 32.0, high_freq_factor = 4.0, low_freq_factor = 1.0, "
                       "original_max_position_embeddings = 8192, rope_type = \"llama3\" }\n"),
            std::string::npos)
      << shown;
  const RunConfig again = load(shown, {});
  EXPECT_EQ(to_json(again), to_json(config));
  EXPECT_EQ(again.run.dir, "say \"hi\"\\\n");
  EXPECT_NO_THROW(parse_toml(show(RunConfig{}), "defaults"));  // also of a configuration that lacks what is required
}

TEST_F(RunConfigTest, OverridesNeedNoQuotes) {
  const RunConfig config =
      loaded({"parallel.strategy=fl+fsdp", "run.dir=/tmp/x#1", "optimizer.lr=1e-3", "optimizer.betas=[0.5, 0.6]",
              "model.tie_word_embeddings=true", "data.train=a=b.h5", "train.precision=\"bf16\"", "log.level=warn"});
  EXPECT_EQ(config.parallel.strategy, Strategy::fl_fsdp);
  EXPECT_EQ(config.run.dir, "/tmp/x#1");
  EXPECT_EQ(config.optimizer.lr, 1e-3);
  EXPECT_EQ(config.optimizer.beta2, 0.6);
  EXPECT_EQ(config.model.tie_word_embeddings, true);
  EXPECT_EQ(config.data.train, Overrides{"a=b.h5"});
  EXPECT_EQ(config.train.precision, Precision::bf16);
  EXPECT_EQ(config.log.level, "warn");
  EXPECT_EQ(loaded({"run.dir=2024"}).run.dir, "2024");
  EXPECT_EQ(loaded({"run.dir=2024-05-01"}).run.dir, "2024-05-01");
  EXPECT_EQ(loaded({"run.dir=1\nx=2"}).run.dir, "1\nx=2");
  EXPECT_EQ(loaded({"train.steps=20", "train.steps=30"}).train.steps, 30);  // the last one wins
}

TEST_F(RunConfigTest, OverridesComeAfterTheFile) {
  EXPECT_EQ(load("[train]\nsteps = 99\n").train.steps, 10);
  EXPECT_EQ(load("[optimizer]\nlr = 0.5\n").optimizer.lr, 0.5);
  EXPECT_EQ(load("").train.steps, 10);  // an empty file is a file of defaults
}

TEST_F(RunConfigTest, MalformedOverrides) {
  EXPECT_EQ(refusal_of({"train.steps"}),
            "--set train.steps: expected table.key=value, for example --set train.steps=100");
  for (const char* text : {"steps=3", "train.=3", ".steps=3", "a.b.c=3", "", "=", "."})
    EXPECT_NE(refusal_of({text}).find("expected table.key=value"), std::string::npos) << text;
  EXPECT_EQ(refusal_of({"train.steps=many"}),
            "--set train.steps=many: train.steps = \"many\" is a string; expected an integer");
  EXPECT_EQ(refusal_of({"train.steps="}), "--set train.steps=: train.steps = \"\" is a string; expected an integer");
  // A line break must not smuggle a second assignment in, whose first half would pass alone.
  EXPECT_NE(refusal_of({"train.steps=20\nx=2"}).find("is a string; expected an integer"), std::string::npos);
  EXPECT_EQ(refusal_of({"run.dir=\xff"}), "--set run.dir: the value is not UTF-8");
}

TEST_F(RunConfigTest, UnknownNames) {
  EXPECT_EQ(refusal("[run]\nseed = 1\n\n[train]\nstpes = 5\n"),
            "run.toml:5: unknown key train.stpes; did you mean train.steps?");
  EXPECT_EQ(refusal("[optimiser]\nlr = 5\n"), "run.toml:2: unknown table [optimiser]; did you mean [optimizer]?");
  EXPECT_EQ(refusal("[trian]\n"), "run.toml:1: unknown table [trian]; did you mean [train]?");
  EXPECT_EQ(refusal("[train]\nlr = 5\n"), "run.toml:2: unknown key train.lr; did you mean optimizer.lr?");
  EXPECT_EQ(refusal("[log]\nsomething_else = 5\n"),
            "run.toml:2: unknown key log.something_else; keys of [log] are every, level");
  EXPECT_EQ(refusal("steps = 5\n"), "run.toml:1: steps stands outside any table; did you mean train.steps?");
  EXPECT_EQ(refusal("train = 5\n"), "run.toml:1: train stands outside any table; write it as a table: [train]");
  EXPECT_EQ(refusal("[train]\n[checkpoint]\n"), "accepted");
  EXPECT_EQ(refusal_of({"train.step=5"}), "--set train.step=5: unknown key train.step; did you mean train.steps?");
}

TEST_F(RunConfigTest, WrongTypes) {
  EXPECT_EQ(refusal("\n\n\n\n\n[train]\nsteps = \"many\"\n"),
            "run.toml:7: train.steps = \"many\" is a string; expected an integer");
  EXPECT_EQ(refusal("[train]\nsteps = 1.5\n"),
            "run.toml:2: train.steps = 1.5 is a floating-point number; expected an integer");
  EXPECT_EQ(refusal("[optimizer]\nlr = true\n"), "run.toml:2: optimizer.lr = true is a boolean; expected a number");
  EXPECT_EQ(refusal("[run]\ndir = 5\n"), "run.toml:2: run.dir = 5 is an integer; expected a string");
  EXPECT_EQ(refusal("[run]\ndir = 2024-05-01\n"),
            "run.toml:2: dates and times mean nothing here; put the value in quotes");
  EXPECT_EQ(refusal("[parallel]\nreshard_after_forward = 1\n"),
            "run.toml:2: parallel.reshard_after_forward = 1 is an integer; expected true or false");
  EXPECT_EQ(refusal("[model]\ntie_word_embeddings = \"yes\"\n"),
            "run.toml:2: model.tie_word_embeddings = \"yes\" is a string; expected true or false");
  EXPECT_EQ(refusal("[train]\nprecision = 32\n"),
            "run.toml:2: train.precision = 32 is an integer; expected a string: \"fp32\" or \"bf16\" or \"fp64\"");
  EXPECT_EQ(refusal("[train.steps]\nx = 1\n"), "run.toml:1: train.steps = { x = 1 } is a table; expected an integer");
  EXPECT_EQ(refusal("[optimizer]\nbetas = 0.9\n"),
            "run.toml:2: optimizer.betas = 0.9 is a floating-point number; expected an array of two numbers");
  EXPECT_EQ(refusal("[optimizer]\nbetas = [0.9]\n"),
            "run.toml:2: optimizer.betas = [0.9] is not an array of two numbers");
}

TEST_F(RunConfigTest, WrongValues) {
  EXPECT_EQ(refusal("[train]\nsteps = -3\n"),
            "run.toml:2: train.steps = -3 is out of range; it must be at least 1, at most 1000000000000");
  EXPECT_EQ(refusal("[optimizer]\nlr = 0\n"), "run.toml:2: optimizer.lr = 0 is out of range; it must be above 0");
  EXPECT_EQ(refusal("[optimizer]\nlr = nan\n"), "run.toml:2: optimizer.lr = nan is not finite");
  EXPECT_EQ(refusal("[optimizer]\nbetas = [0.9, 1.0]\n"),
            "run.toml:2: optimizer.betas = [0.9, 1.0] is out of range; both must be at least 0, below 1");
  EXPECT_EQ(refusal("[parallel]\ngroups = 5_000_000_000\n"),  // does not fit its int, and must not be cut to fit
            "run.toml:2: parallel.groups = 5000000000 is out of range; it must be at least 0, at most 2147483647");
  EXPECT_EQ(refusal("[parallel]\nstrategy = \"fl-fsdp\"\n"),
            "run.toml:2: parallel.strategy = \"fl-fsdp\" is not one of \"ddp\", \"fsdp\", \"hsdp\", \"fl+fsdp\", "
            "\"fl+hsdp\"; did you mean \"fl+fsdp\"?");
  EXPECT_EQ(refusal("[schedule]\nwarmup = 1.5\n"),
            "run.toml:2: schedule.warmup = 1.5 is neither a whole number of steps nor a fraction below 1");
  EXPECT_EQ(refusal("[model]\npreset = \"8B\"\n"),
            "run.toml:2: model.preset = \"8B\" is not one of \"tiny\", \"125m\", \"1b\", \"8b\", \"70b\"; did you mean "
            "\"8b\"?");
  EXPECT_EQ(
      refusal("[model]\nrope_scaling = { rope_type = \"yarn\" }\n"),
      "run.toml:2: model.rope_scaling = { rope_type = \"yarn\" } is not one of \"llama3\", \"linear\", \"default\"");
  EXPECT_EQ(
      refusal("[model]\nrope_scaling = { rope_type = \"llama3\", factr = 2 }\n"),
      "run.toml:2: model.rope_scaling = { factr = 2, rope_type = \"llama3\" } has the unknown key factr; did you mean "
      "factor?");
  EXPECT_EQ(
      refusal("[model]\nrope_scaling = { rope_type = \"llama3\" }\n"),
      "run.toml:2: model.rope_scaling = { rope_type = \"llama3\" } has no factor, which rope_type \"llama3\" needs");
}

TEST_F(RunConfigTest, FilesThatAreNoConfiguration) {
  EXPECT_EQ(refusal("[run]\nseed = 1\nseed = 2\n").substr(0, 20), "run.toml:3: not TOML");
  EXPECT_EQ(refusal("[run\n").substr(0, 20), "run.toml:1: not TOML");
  EXPECT_EQ(refusal("[run]\ndir = \"\xff\"\n").substr(0, 20), "run.toml:2: not TOML");
  try {
    load_run_config((folder / "none.toml").string(), least);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(),
              (folder / "none.toml").string() + ": cannot read the run configuration: No such file or directory");
  }
  EXPECT_THROW(load_run_config(folder.string(), least), ConfigError);  // a folder
}

TEST_F(RunConfigTest, Communication) {
  for (const char* backend : {"auto", "mpi", "nccl"})  // whether a build has it shows when it starts
    EXPECT_EQ(
        refusal(std::string("[parallel]\nbackend = \"") + backend + "\"\nsum_order = \"library\"\ntime_out = 60\n"),
        "accepted");
  EXPECT_EQ(refusal("[parallel]\nbackend = \"ncl\"\n"),
            "run.toml:2: parallel.backend = \"ncl\" is not one of \"auto\", \"mpi\", \"nccl\"; did you mean \"nccl\"?");
  EXPECT_EQ(refusal("[parallel]\ntime_out = 0\n"),
            "run.toml:2: parallel.time_out = 0 is out of range; it must be above 0");
}

TEST_F(RunConfigTest, TimeLimits) {
  EXPECT_EQ(refusal("[train]\ntime_limit = 3600\n"), "accepted");
  EXPECT_EQ(refusal("[train]\ntime_limit = \"none\"\n"), "accepted");
  EXPECT_EQ(refusal("[train]\ntime_limit = 0\n"),
            "run.toml:2: train.time_limit = 0 is no time at all; give more, or \"none\" for no limit");
  EXPECT_EQ(refusal("[train]\ntime_limit = 1.5\n"),
            "run.toml:2: train.time_limit = 1.5 is a floating-point number; expected a duration such as \"1h30m\", or "
            "seconds");
  EXPECT_EQ(refusal("[train]\ntime_limit = \"soon\"\n").substr(0, 60),
            "run.toml:2: train.time_limit = \"soon\" is not a duration; wri");
  // Without quotes, as a shell leaves it; 1:30:00 is a time of day to TOML.
  for (const char* text : {"5400", "1h30m", "1:30:00", "01:30:00", "1-12:00:00"}) {
    std::vector<std::string> overrides = least;
    overrides.push_back(std::string("train.time_limit=") + text);
    EXPECT_EQ(load_run_config("", overrides).train.time_limit, text);
  }
}

TEST_F(RunConfigTest, EveryKeyOfTheDesignIsKnown) {
  // The contract of the design, key for key: each is either a key, or one that says "not yet".
  const char* const design[] = {"run.dir",
                                "run.seed",
                                "model.preset",
                                "model.config",
                                "model.hidden_size",
                                "model.intermediate_size",
                                "model.num_hidden_layers",
                                "model.num_attention_heads",
                                "model.num_key_value_heads",
                                "model.vocab_size",
                                "model.rope_theta",
                                "model.rope_scaling",
                                "model.rms_norm_eps",
                                "model.tie_word_embeddings",
                                "model.max_position_embeddings",
                                "model.initializer_range",
                                "model.init_from",
                                "data.train",
                                "data.eval",
                                "data.sequence_length",
                                "data.packing",
                                "train.steps",
                                "train.batch",
                                "train.micro_batch",
                                "train.accumulate",
                                "train.precision",
                                "train.recompute",
                                "train.loss_chunk",
                                "train.tf32",
                                "train.reduce_precision",
                                "train.time_limit",
                                "optimizer.kind",
                                "optimizer.lr",
                                "optimizer.betas",
                                "optimizer.eps",
                                "optimizer.weight_decay",
                                "optimizer.clip_norm",
                                "schedule.kind",
                                "schedule.warmup",
                                "schedule.min_lr",
                                "schedule.decay_steps",
                                "parallel.strategy",
                                "parallel.shard_size",
                                "parallel.group_size",
                                "parallel.groups",
                                "parallel.group_sizes",
                                "parallel.group_by",
                                "parallel.group_file",
                                "parallel.reshard_after_forward",
                                "parallel.prefetch",
                                "parallel.backend",
                                "parallel.sum_order",
                                "parallel.time_out",
                                "federation.every",
                                "federation.outer",
                                "federation.lr",
                                "federation.momentum",
                                "federation.nesterov",
                                "federation.betas",
                                "federation.tau",
                                "federation.weights",
                                "federation.inner_state",
                                "eval.every",
                                "eval.batches",
                                "checkpoint.every",
                                "checkpoint.align",
                                "checkpoint.keep",
                                "checkpoint.keep_every",
                                "checkpoint.async",
                                "checkpoint.writers",
                                "checkpoint.moments",
                                "checkpoint.resume",
                                "log.every",
                                "log.level"};
  RunConfig config;
  const ConfigTable table = run_config_table(config);
  for (const std::string name : design) {
    int found = 0;
    for (const auto& key : table.keys()) found += key.full_name() == name;
    EXPECT_EQ(found, 1) << name;
  }
}

TEST_F(RunConfigTest, WhatIsRequired) {
  EXPECT_EQ(refusal("", {"model.preset=tiny", "train.batch=8"}),
            "train.steps is missing; give the number of optimizer steps, as in --set train.steps=1000");
  EXPECT_EQ(refusal("", {"model.preset=tiny", "train.steps=8"}).substr(0, 22), "train.batch is missing");
  EXPECT_EQ(refusal("", {"model.preset=tiny", "train.steps=8", "train.micro_batch=1"}), "accepted");
  EXPECT_EQ(refusal("", {"train.steps=8", "train.batch=8"}).substr(0, 28), "no model: give model.preset ");
  EXPECT_EQ(
      refusal("", {"train.steps=8", "train.batch=8", "model.hidden_size=8", "model.vocab_size=9"}),
      "the model is incomplete: give model.intermediate_size, model.num_hidden_layers, model.num_attention_heads too, "
      "or start from model.preset or model.config");
}

TEST_F(RunConfigTest, KeysThatContradictEachOther) {
  EXPECT_EQ(refusal_of({"model.config=config.json"}),
            "model.preset = \"tiny\" and model.config = \"config.json\" exclude each other; give one of them");
  EXPECT_EQ(
      refusal_of({"data.eval=eval.h5"}),
      "data.train = \"synthetic\" and data.eval = \"eval.h5\" are different languages; give \"synthetic\" for both, or "
      "for neither");
  EXPECT_EQ(refusal_of({"data.train=[\"synthetic\", \"a.h5\"]"}),
            "data.train has \"synthetic\" among other data, which are another language; give it alone");
  EXPECT_EQ(refusal_of({"data.train=[]"}),
            "data.train is empty; give the path of token data, several of them, or \"synthetic\"");
  EXPECT_EQ(refusal_of({"data.train=[\"a.h5\", \"b.bin\"]", "data.weights=[1]"}),
            "data.weights has 1 numbers, data.train 2 paths; give one for each path, in their order, or no weights: in "
            "proportion to the sizes");
  EXPECT_EQ(
      refusal_of({"data.train=[\"a.h5\", 7]"}),
      "--set data.train=[\"a.h5\", 7]: data.train = [\"a.h5\", 7] has an integer; expected a path, or an array of "
      "paths");
  EXPECT_EQ(refusal_of({"data.weights=[1, 0]"}),
            "--set data.weights=[1, 0]: data.weights = [1, 0] is out of range; each must be above 0 and at most 1e15 "
            "(leave a path out of data.train to give it none)");
  EXPECT_EQ(refusal_of({"data.weights=[1, nan]"}).find("out of range") == std::string::npos, false);
  EXPECT_EQ(refusal_of({"data.raw_type=uint61"}),
            "--set data.raw_type=uint61: data.raw_type = \"uint61\" is not one of \"auto\", \"uint16\", \"uint32\", "
            "\"int32\", \"int64\"; did you mean \"uint16\"?");
  EXPECT_EQ(
      refusal_of({"data.packing=document"}),
      "--set data.packing=document: data.packing = \"document\" is not one of \"concatenate\", \"documents\"; did "
      "you mean \"documents\"?");
  EXPECT_EQ(refusal_of({"data.packing=documents"}),
            "data.packing = \"documents\" has no meaning with the synthetic language, which is one text without "
            "documents; leave it out, or use other data");
  EXPECT_EQ(refusal_of({"data.packing=documents", "data.train=a.h5", "data.eval=b.h5"}), "accepted");
  EXPECT_EQ(refusal_of({"data.train=a.bin", "data.end_of_document=0"}),
            "data.end_of_document = 0 has no meaning with data.packing = \"concatenate\"; use data.packing = "
            "\"documents\", or leave it out");
  EXPECT_EQ(refusal_of({"data.train=train.h5", "eval.every=5"}),
            "eval.every = 5, but there is nothing to evaluate on; give data.eval");
  EXPECT_EQ(refusal_of({"schedule.min_lr=1"}),
            "schedule.min_lr = 1 is above optimizer.lr = 0.0003, the highest learning rate");
  EXPECT_EQ(refusal_of({"schedule.warmup=11"}),
            "schedule.warmup = 11 is longer than train.steps = 10; give fewer steps, or a fraction below 1");
  EXPECT_EQ(refusal_of({"model.num_key_value_heads=3"}).substr(0, 30), "model.num_attention_heads = 4 ");
}

TEST_F(RunConfigTest, KeysOfTheOuterOptimizer) {
  const auto federated = [](Overrides more) {
    more.insert(more.begin(), {"parallel.strategy=fl+fsdp", "parallel.groups=2"});
    return refusal_of(more);
  };
  EXPECT_EQ(federated({"federation.outer=sgd"}), "accepted");
  EXPECT_EQ(federated({"federation.outer=sgd", "federation.lr=0.7", "federation.momentum=0.9",
                       "federation.nesterov=true", "federation.inner_state=average"}),
            "accepted");
  EXPECT_EQ(federated({"federation.lr=0.7"}),
            "federation.lr has no meaning with federation.outer = \"fedavg\"; remove it, or use \"sgd\", \"adam\", "
            "\"yogi\" or \"adagrad\"");
  EXPECT_EQ(federated({"federation.outer=adam", "federation.lr=0.1", "federation.momentum=0.9"}),
            "federation.momentum has no meaning with federation.outer = \"adam\"; remove it, or use \"sgd\"");
  EXPECT_EQ(
      federated({"federation.outer=adagrad", "federation.lr=0.1", "federation.betas=[0.9, 0.99]"}),
      "federation.betas has no meaning with federation.outer = \"adagrad\"; remove it, or use \"adam\" or \"yogi\"");
  EXPECT_EQ(federated({"federation.outer=sgd", "federation.tau=0.1"}),
            "federation.tau has no meaning with federation.outer = \"sgd\"; remove it, or use \"adam\", \"yogi\" or "
            "\"adagrad\"");
  EXPECT_EQ(federated({"federation.outer=sgd", "federation.momentum=0", "federation.nesterov=true"}),
            "federation.nesterov = true has no meaning with federation.momentum = 0; remove it");
  EXPECT_EQ(federated({"federation.outer=yogi"}).substr(0, 26), "federation.lr is missing: ");
  EXPECT_EQ(federated({"federation.inner_state=reset", "optimizer.kind=sgd"}),
            "federation.inner_state has no meaning with optimizer.kind = \"sgd\", which has no moments; remove it");
  EXPECT_EQ(refusal_of({"federation.outer=sgd"}),
            "federation.outer = \"sgd\" has no meaning with parallel.strategy = \"fsdp\"; remove it, or use strategy "
            "\"fl+fsdp\" or \"fl+hsdp\"");
  EXPECT_EQ(refusal_of({"federation.inner_state=reset"}).substr(0, 57),
            "federation.inner_state has no meaning with parallel.strat");
  // What is in force without being given is shown.
  const std::string shown = show(loaded({"parallel.strategy=fl+fsdp", "parallel.groups=2", "federation.outer=sgd"}));
  for (const char* line : {"# lr = 0.7\n", "# momentum = 0.9\n", "# nesterov = true\n"})
    EXPECT_NE(shown.find(line), std::string::npos) << line;
}

TEST_F(RunConfigTest, GroupSizesAreNumbersOfRanks) {
  EXPECT_EQ(
      refusal_of({"parallel.group_sizes=[4, 0]"}),
      "--set parallel.group_sizes=[4, 0]: parallel.group_sizes = [4, 0] is out of range; each must be at least 1");
  EXPECT_NE(refusal_of({"parallel.group_sizes=[4, 1.5]"}).find("is not an array of integers"), std::string::npos);
  EXPECT_NE(refusal_of({"parallel.group_sizes=4"}), "accepted");
  EXPECT_NE(refusal_of({"parallel.group_by=nodes"}).find("did you mean \"node\"?"), std::string::npos);
  EXPECT_EQ(refusal_of({"parallel.group_sizes=[]", "parallel.group_by="}), "accepted");
}

TEST_F(RunConfigTest, EvaluationFollowsTheTrainingData) {
  EXPECT_EQ(loaded({}).data.eval, "synthetic");
  EXPECT_EQ(loaded({"data.train=train.h5"}).data.eval, "");
  const RunConfig mixture =
      loaded({"data.train=[\"a.h5\", \"b/*.bin\"]", "data.weights=[3, 0.5]", "data.raw_type=uint32"});
  EXPECT_EQ(mixture.data.train, (Overrides{"a.h5", "b/*.bin"}));
  EXPECT_EQ(mixture.data.weights, (std::vector<double>{3, 0.5}));
  EXPECT_EQ(mixture.data.raw_type, TokenType::u32);
  EXPECT_EQ(to_json(mixture).at("data").at("train"), nlohmann::json({"a.h5", "b/*.bin"}));
}

TEST_F(RunConfigTest, KeysOverrideAPreset) {
  LlamaConfig wider = llama_preset("tiny");
  wider.hidden_size = 128;
  wider.head_dim = 32;  // follows: another width has other heads
  EXPECT_EQ(resolve_model(loaded({"model.hidden_size=128"})), wider);
  wider.head_dim = 16;
  EXPECT_EQ(resolve_model(loaded({"model.hidden_size=128", "model.head_dim=16"})), wider);
  LlamaConfig plain = llama_preset("1b");
  plain.rope_scaling = {};
  EXPECT_EQ(resolve_model(loaded({"model.preset=1b", "model.rope_scaling={rope_type=\"default\"}"})), plain);
  EXPECT_EQ(resolve_model(loaded({"model.vocab_size=300"})).vocab_size, 300);
}

TEST_F(RunConfigTest, ModelFromAHuggingFaceFile) {
  const std::string file = (folder / "config.json").string();
  std::ofstream(file) << to_hugging_face_json(llama_preset("125m"));
  const RunConfig config =
      load("", {"model.config=" + file, "train.steps=1", "train.batch=1", "model.vocab_size=50000"});
  LlamaConfig expected = llama_preset("125m");
  expected.vocab_size = 50000;
  EXPECT_EQ(resolve_model(config), expected);
}

TEST_F(RunConfigTest, HashTellsConfigurationsApart) {
  const auto hash = hash_of(loaded({}));
  EXPECT_EQ(hash_of(loaded({"run.seed=1"})), hash);  // the default
  EXPECT_NE(hash_of(loaded({"run.seed=2"})), hash);
  EXPECT_NE(hash_of(loaded({"optimizer.betas=[0.9, 0.951]"})), hash);
  // The same path with another model behind it is another run.
  const std::string file = (folder / "config.json").string();
  const Overrides overrides = {"model.config=" + file, "train.steps=1", "train.batch=1"};
  std::ofstream(file) << to_hugging_face_json(llama_preset("125m"));
  const auto first = hash_of(load_run_config("", overrides));
  std::ofstream(file) << to_hugging_face_json(llama_preset("tiny"));
  EXPECT_NE(hash_of(load_run_config("", overrides)), first);
}

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST_F(RunConfigTest, DocumentationListsEveryKey) {
  const std::string text = read_text(ATOLL_SOURCE_DIR "/docs/configuration.md");
  RunConfig config;
  const ConfigTable table = run_config_table(config);
  std::string last;
  for (const auto& key : table.keys()) {
    if (key.table == last) continue;
    last = key.table;
    const std::string expected = "## [" + last + "]\n\n" + table.markdown(last);
    EXPECT_NE(text.find(expected), std::string::npos) << "docs/configuration.md must hold\n" << expected;
  }
}

TEST_F(RunConfigTest, ExamplesAreValid) {
  int examples = 0;
  for (const auto& entry : fs::directory_iterator(ATOLL_SOURCE_DIR "/examples")) {
    if (entry.path().extension() != ".toml") continue;
    EXPECT_NO_THROW(load_run_config(entry.path().string(), {})) << entry.path();
    ++examples;
  }
  EXPECT_GE(examples, 2);
}

}  // namespace
}  // namespace atl
