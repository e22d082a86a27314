/// `atoll inspect` of a checkpoint. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace atl {

/// Prints what it is; with `verify` reads and checks every byte first. Returns the exit code; DataError for a bad one.
int inspect_checkpoint(const std::string& folder, bool verify, bool json);

}  // namespace atl
