/// Kinds of characters. SPDX-License-Identifier: Apache-2.0
#pragma once

namespace atl {

/// White_Space of Unicode.
inline bool is_white_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/// A character of a word: Alphabetic, M, Nd, Pc, Join_Control (Unicode Technical Standard 18, annex C).
bool is_word(char32_t c);

}  // namespace atl
