// SPDX-License-Identifier: MIT
// An MPI program, which mpi.py compiles and runs: a token goes round, everybody sends to everybody, and windows take
// puts, gets and atomic operations. Ends with 0 and the word "right" where all data is as it should be.
#include <mpi.h>

#include <cstdio>
#include <vector>

namespace {

int g_rank, g_count;

bool ring() {
  constexpr int kRounds = 50;
  const int next = (g_rank + 1) % g_count, before = (g_rank + g_count - 1) % g_count;
  long token = 0;
  for (int round = 0; round < kRounds; ++round) {
    if (g_rank != 0) MPI_Recv(&token, 1, MPI_LONG, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    token += g_rank;
    MPI_Send(&token, 1, MPI_LONG, next, 0, MPI_COMM_WORLD);
    if (g_rank == 0) MPI_Recv(&token, 1, MPI_LONG, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  return g_rank != 0 || token == kRounds * (static_cast<long>(g_count) * (g_count - 1) / 2);
}

bool all_to_all() {
  constexpr int kEach = 20000;
  std::vector<int> out(static_cast<std::size_t>(g_count) * kEach), in(out.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = g_rank * 1000003 + static_cast<int>(i);
  MPI_Alltoall(out.data(), kEach, MPI_INT, in.data(), kEach, MPI_INT, MPI_COMM_WORLD);
  for (int from = 0; from < g_count; ++from) {
    for (int i = 0; i < kEach; ++i) {
      if (in[static_cast<std::size_t>(from * kEach + i)] != from * 1000003 + g_rank * kEach + i) return false;
    }
  }
  return true;
}

// Word 0 counts; word 1 + r takes what rank r puts.
bool one_sided() {
  constexpr int kAdds = 20;
  long* words = nullptr;
  MPI_Win window;
  MPI_Win_allocate((1 + g_count) * static_cast<MPI_Aint>(sizeof(long)), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD,
                   &words, &window);
  for (int i = 0; i <= g_count; ++i) words[i] = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock_all(0, window);
  const long one = 1, value = g_rank + 7;
  long old = 0, got = 0;
  for (int i = 0; i < kAdds; ++i) {
    MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, 0, MPI_SUM, window);
    MPI_Win_flush(0, window);
  }
  const int next = (g_rank + 1) % g_count;
  MPI_Put(&value, 1, MPI_LONG, next, 1 + g_rank, 1, MPI_LONG, window);
  MPI_Win_flush_all(window);
  MPI_Get(&got, 1, MPI_LONG, next, 1 + g_rank, 1, MPI_LONG, window);
  MPI_Win_flush_all(window);
  MPI_Win_unlock_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
  const bool right = got == value && (g_rank != 0 || words[0] == static_cast<long>(kAdds) * g_count);
  MPI_Win_free(&window);
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &g_count);
  // Each is collective, so none may be left out where another fails.
  const bool first = ring(), second = all_to_all(), third = one_sided();
  const int wrong = first && second && third ? 0 : 1;
  int all = 0;
  MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (g_rank == 0 && all == 0) std::puts("right");
  MPI_Finalize();
  return all == 0 ? 0 : 1;
}
