/// Tests of parallel/mailbox.hpp. SPDX-License-Identifier: Apache-2.0
#include "parallel/mailbox.hpp"

#include "parallel/waiting.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace atl {
namespace {

std::string letter(int rank, int number) {
  // Of lengths from nothing to what no MPI library sends eagerly.
  const std::size_t lengths[] = {0, 1, 1000, std::size_t{3} << 20};
  return std::string(lengths[number % 4], static_cast<char>('a' + (rank + number) % 26));
}

TEST(Mailbox, EveryLetterComesOnceAndInOrder) {
  const Communicator world(MPI_COMM_WORLD);
  Mailbox mailbox(world);
  constexpr int letters = 9;
  int sent = 0;
  std::vector<int> received(static_cast<std::size_t>(world.size()), 0);
  int total = 0;
  wait_until([&] {
    if (sent < letters && mailbox.empty()) mailbox.send(letter(world.rank(), sent++));
    if (world.rank() == 0)
      while (const auto mail = mailbox.receive()) {
        int& number = received[static_cast<std::size_t>(mail->first)];
        EXPECT_TRUE(mail->second == letter(mail->first, number)) << "letter " << number << " of " << mail->first;
        ++number;
        ++total;
      }
    return world.rank() == 0 ? total == letters * world.size() : sent == letters && mailbox.empty();
  });
  EXPECT_TRUE(mailbox.empty());
  if (world.rank() != 0) return;
  EXPECT_EQ(received, std::vector<int>(static_cast<std::size_t>(world.size()), letters));
  EXPECT_FALSE(mailbox.receive().has_value());
}

// Nobody waits: rank 0 asks before anybody has sent, and others go on while rank 0 does not ask.
TEST(Mailbox, NothingWaits) {
  const Communicator world(MPI_COMM_WORLD);
  Mailbox mailbox(world);
  EXPECT_TRUE(mailbox.empty());
  if (world.rank() == 0) {
    EXPECT_FALSE(mailbox.receive().has_value());
  }
  world.barrier();
  mailbox.send(letter(world.rank(), 3));
  EXPECT_TRUE(world.rank() != 0 || !mailbox.empty());
  world.barrier();  // all have sent, nothing was received
  for (int received = 0; world.rank() == 0 && received < world.size();)
    if (mailbox.receive()) ++received;
  wait_until([&] { return mailbox.empty(); });
}

TEST(Mailbox, TwoMailboxesMeetNoOthersLetters) {
  const Communicator world(MPI_COMM_WORLD);
  Mailbox one(world), two(world);
  two.send("two");
  one.send("one");
  for (int left = world.rank() == 0 ? world.size() : 0; left > 0;)
    if (const auto mail = one.receive()) {
      EXPECT_EQ(mail->second, "one");
      --left;
    }
  for (int left = world.rank() == 0 ? world.size() : 0; left > 0;)
    if (const auto mail = two.receive()) {
      EXPECT_EQ(mail->second, "two");
      --left;
    }
}

// The destructor waits until the letter was taken: a letter sent last is not lost.
TEST(Mailbox, TheLastLetterIsNotLost) {
  const Communicator world(MPI_COMM_WORLD);
  Mailbox mailbox(world);
  {
    Mailbox short_lived(world);
    short_lived.send(letter(world.rank(), 3));
    for (int left = world.rank() == 0 ? world.size() : 0; left > 0;)
      if (const auto mail = short_lived.receive()) {
        EXPECT_TRUE(mail->second == letter(mail->first, 3));
        --left;
      }
  }
  EXPECT_TRUE(mailbox.empty());
}

}  // namespace
}  // namespace atl
